"""Stray keys of partitions and views that belong to no topic, left over from an interrupted deletion or creation.

Only the broker that creates a topic knows whether the creation is still in progress. The controller's own creations are
in the view (`creating`); it waits `stray_after_ms` for those of other brokers. If one is still in progress then, it
fails and is retried; `topic_requests.py` explains why collecting never deletes a partition of an existing topic.

A view becomes a stray if it is created while another broker deletes its parent, or if an older version deletes that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from respool.cluster import keys
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.ids import TopicId
from respool.ports.metadata_store import Guard


class StrayAges:
    """Records since when each stray exists. In memory only: a new controller starts from zero."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, int], int] = {}

    def on_view(self, strays: Mapping[str, int], *, now_ms: int, wait_ms: int) -> Mapping[str, int]:
        """Record the current strays; return those that have existed unchanged for `wait_ms`."""
        self._since_ms = {one: self._since_ms.get(one, now_ms) for one in strays.items()}
        return {
            key: revision
            for (key, revision), since_ms in self._since_ms.items()
            if now_ms - since_ms >= wait_ms
        }


def collect(view: ClusterView) -> list[GuardedWrite]:
    """Delete the strays, the first partition of each topic first: from then on its creation cannot succeed.

    The view must be of one revision of the store. Otherwise partitions may appear before the topic that they belong to.
    """
    views = [
        KeyChange(key=key, value=None, revision=view.strays[key], why=key)
        for key in sorted(keys.topic_keys(view.strays))
    ]
    by_topic: dict[TopicId, list[KeyChange]] = {}
    for key in sorted(keys.partition_keys(view.strays), key=keys.parse_partition_key):
        topic_id, _ = keys.parse_partition_key(key)
        if topic_id not in view.creating:
            change = KeyChange(key=key, value=None, revision=view.strays[key], why=key)
            by_topic.setdefault(topic_id, []).append(change)
    return [
        *(write for garbage in by_topic.values() for write in _deleted(garbage, view)),
        *in_writes(views, guard=view.guard, why=f"{len(views)} views belong to no topic"),
    ]


def _deleted(garbage: Sequence[KeyChange], view: ClusterView) -> list[GuardedWrite]:
    first, *others = in_writes(
        garbage,
        guard=view.guard,
        why=f"{len(garbage)} partitions belong to no topic",
        # Leave room for one more guard.
        operations_max=OPERATIONS_MAX - 1,
    )
    is_first_gone = Guard(key=garbage[0].key, revision=0)
    return [first, *(replace(one, guards=(*one.guards, is_first_gone)) for one in others)]
