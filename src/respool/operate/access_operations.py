"""ACLs and quotas of a cluster: list, create, delete and check them, and switch what is done with ACLs."""

from collections.abc import Mapping, Sequence

from respool.access.authorizer import AccessDecision, Authorizer
from respool.client.kafka import acls as requests
from respool.client.kafka.acls import ClientQuota
from respool.client.kafka.configs import ConfigResource, alter_configs, describe_configs
from respool.model.broker_config import ALL_BROKERS, AUTHORIZATION
from respool.model.errors import RequestError
from respool.model.operator_errors import UsageError
from respool.model.security.acl import (
    AccessMode,
    AclBinding,
    AclFilter,
    AclImage,
    AclOperation,
    AclResource,
    ResourcePattern,
    StoredAcls,
    check_acl,
    checked_host,
)
from respool.model.security.principal import Principal
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated

_SUPER_USERS = "super.users"
_ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


def list_acls(admin: ClusterAdmin, wanted: AclFilter) -> list[AclBinding]:
    """
    Raises:
        OperatorError
    """
    with client_errors_translated():
        found = requests.describe_acls(admin.cluster, wanted)
    return sorted(found, key=str)


def create_acls(admin: ClusterAdmin, acls: Sequence[AclBinding]) -> list[AclBinding]:
    """Create the ACLs and return them as they are stored. None is created if one of them is invalid.

    Raises:
        OperatorError
    """
    checked = [_checked(one) for one in acls]
    with client_errors_translated():
        requests.create_acls(admin.cluster, checked)
    return checked


def delete_acls(admin: ClusterAdmin, wanted: AclFilter) -> list[AclBinding]:
    """
    Raises:
        OperatorError
    """
    with client_errors_translated():
        return sorted(requests.delete_acls(admin.cluster, [wanted]), key=str)


def check_access(
    admin: ClusterAdmin,
    *,
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> AccessDecision:
    """The decision of the ACLs, whether they are enforced or not, and the ACL that made it.

    Raises:
        OperatorError
    """
    try:
        Principal.parse(principal)
        host = checked_host(host)
    except RequestError as error:
        raise UsageError(str(error)) from error
    broker = str(min(admin.cluster.brokers or admin.cluster.refresh_brokers()))
    by_pattern: dict[ResourcePattern, StoredAcls] = {}
    with client_errors_translated():
        for one in requests.describe_acls(admin.cluster, AclFilter(resource=resource)):
            known = by_pattern.get(one.pattern, StoredAcls(()))
            by_pattern[one.pattern] = StoredAcls((*known.entries, one.entry))
        settings = describe_configs(
            admin.cluster, ConfigResource.BROKER, [broker], keys=[_SUPER_USERS, _ALLOW_EVERYONE]
        )[broker]
    super_users = (settings[_SUPER_USERS].value or "") if _SUPER_USERS in settings else ""
    is_open = _ALLOW_EVERYONE in settings and settings[_ALLOW_EVERYONE].value == "true"
    authorizer = Authorizer(
        AclImage(by_pattern=by_pattern),
        super_users=[one.strip() for one in super_users.split(";") if one.strip()],
        allows_without_acl=is_open,
    )
    return authorizer.explain(principal, host, operation, resource, name)


def set_mode(admin: ClusterAdmin, mode: AccessMode) -> None:
    """Switch for the whole cluster what is done with ACLs.

    Raises:
        OperatorError: for example, nobody could change ACLs afterwards.
    """
    with client_errors_translated():
        alter_configs(
            admin.cluster, ConfigResource.BROKER, ALL_BROKERS, values={AUTHORIZATION: mode.value}
        )


def list_quotas(admin: ClusterAdmin) -> list[ClientQuota]:
    """
    Raises:
        OperatorError
    """
    with client_errors_translated():
        found = requests.describe_quotas(admin.cluster)
    return sorted(found, key=lambda one: str(sorted(one.entity.items(), key=str)))


def alter_quota(
    admin: ClusterAdmin, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> None:
    """Set limits of an entity; None removes one.

    Raises:
        OperatorError
    """
    with client_errors_translated():
        requests.alter_quota(admin.cluster, entity, limits)


def _checked(acl: AclBinding) -> AclBinding:
    try:
        return check_acl(acl)
    except RequestError as error:
        raise UsageError(str(error)) from error
