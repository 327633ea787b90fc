"""Partitions that no topic counts: of topics deleted in parts, or whose creation was not finished.

Those of a topic that is being created now are told apart by `creating`; if its creation is another controller's, that
one's next write fails, for it is guarded by the controller's key.
"""

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView


def collect(view: ClusterView) -> list[GuardedWrite]:
    garbage = [
        KeyChange(key=key, value=None, revision=view.strays[key], why=key)
        for key in sorted(view.strays)
        if keys.parse_partition_key(key)[0] not in view.creating
    ]
    return in_writes(
        garbage,
        guard=view.guard,
        why=f"{len(garbage)} partitions belong to no topic",
    )
