"""The switch that says what all brokers do with ACLs, and when it must not be turned."""

from collections.abc import Collection, Iterable

from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS
from respool.model.errors import InvalidConfig
from respool.model.security.acl import (
    ANY,
    CLUSTER_NAME,
    EVERYONE,
    AccessMode,
    AclEntry,
    AclOperation,
    AclResource,
    Permission,
    ResourcePattern,
)

CLUSTER = ResourcePattern(AclResource.CLUSTER, CLUSTER_NAME)
NOBODY_LEFT = (
    "nobody could change ACLs any more: set super_users, or allow somebody to ALTER the cluster"
)


def check_mode(
    view: ClusterView, name: str, mode: str | None, *, super_users: Collection[str]
) -> None:
    """Check a new value of `respool.authorization` for this broker, or for all.

    Raises:
        InvalidConfig: it would be no switch for the whole cluster, or lock everybody out.
    """
    if name != ALL_BROKERS and mode is not None:
        raise InvalidConfig(
            "respool.authorization is one switch for all brokers: set it for the default of brokers"
        )
    if mode != AccessMode.ENFORCE:
        return
    old = sorted(one.id for one in view.brokers.values() if not one.knows_acls)
    if old:
        raise InvalidConfig(
            f"brokers {', '.join(map(str, old))} run a version that knows no ACLs: upgrade them first"
        )
    stored = view.image.acls.by_pattern.get(CLUSTER)
    if not super_users and not may_somebody_alter(() if stored is None else stored.entries):
        raise InvalidConfig(NOBODY_LEFT)


def may_somebody_alter(entries: Iterable[AclEntry]) -> bool:
    """True if these entries of the cluster leave somebody who may change ACLs: an ALLOW that no DENY covers."""
    of_alter = [one for one in entries if gives_alter(one)]
    denied = [one for one in of_alter if one.permission is Permission.DENY]
    return any(
        one.permission is Permission.ALLOW and not any(_covers(each, one) for each in denied)
        for one in of_alter
    )


def gives_alter(entry: AclEntry) -> bool:
    """True if the entry decides who may ALTER what it is about."""
    return entry.operation in (AclOperation.ALTER, AclOperation.ALL)


def _covers(deny: AclEntry, allow: AclEntry) -> bool:
    return deny.principal in (EVERYONE, allow.principal) and deny.host in (ANY, allow.host)
