"""The switch that says what all brokers do with ACLs, and when it must not be turned."""

from collections.abc import Collection

from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS
from respool.model.errors import InvalidConfig
from respool.model.security.acl import (
    ANY,
    CLUSTER_NAME,
    AccessMode,
    AclOperation,
    AclResource,
    Permission,
    ResourcePattern,
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
    if not super_users and not _may_somebody_alter(view):
        raise InvalidConfig(
            "nobody could change ACLs any more: set super_users, or allow somebody to ALTER the cluster"
        )


def _may_somebody_alter(view: ClusterView) -> bool:
    patterns = (
        ResourcePattern(AclResource.CLUSTER, CLUSTER_NAME),
        ResourcePattern(AclResource.CLUSTER, ANY),
    )
    stored = (view.image.acls.by_pattern.get(one) for one in patterns)
    return any(
        entry.permission is Permission.ALLOW
        and entry.operation in (AclOperation.ALTER, AclOperation.ALL)
        for one in stored
        if one is not None
        for entry in one.entries
    )
