"""Partitions that no topic counts: of topics deleted in parts, or whose creation was not finished.

Whether a creation still goes on, only the broker knows that carries it out; what it is itself at, the controller's view
has in `creating`. Of others' it waits for so long that they are surely broken off. If one is not, it fails and is tried
anew: see `topics.py` for why collecting can never take something of a topic that exists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from respool.cluster import keys
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.ids import TopicId
from respool.ports.metadata_store import Guard


class StrayAges:
    """Since when strays are seen. The controller remembers it itself; a new one starts counting anew."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, int], int] = {}

    def on_view(self, strays: Mapping[str, int], *, now_ms: int, wait_ms: int) -> Mapping[str, int]:
        """Note which there are now; those of them that were there, unchanged, for so long."""
        self._since_ms = {one: self._since_ms.get(one, now_ms) for one in strays.items()}
        return {
            key: revision
            for (key, revision), since_ms in self._since_ms.items()
            if now_ms - since_ms >= wait_ms
        }


def collect(view: ClusterView) -> list[GuardedWrite]:
    """Delete them, of each topic the first partition first: from then on its creation cannot succeed any more.

    The view must be the store's at one revision. Else partitions may be seen before the topic that counts them.
    """
    by_topic: dict[TopicId, list[KeyChange]] = {}
    for key in sorted(view.strays, key=keys.parse_partition_key):
        topic_id, _ = keys.parse_partition_key(key)
        if topic_id not in view.creating:
            change = KeyChange(key=key, value=None, revision=view.strays[key], why=key)
            by_topic.setdefault(topic_id, []).append(change)
    return [write for garbage in by_topic.values() for write in _deleted(garbage, view)]


def _deleted(garbage: Sequence[KeyChange], view: ClusterView) -> list[GuardedWrite]:
    first, *others = in_writes(
        garbage,
        guard=view.guard,
        why=f"{len(garbage)} partitions belong to no topic",
        # Room for one guard more.
        operations_max=OPERATIONS_MAX - 1,
    )
    is_first_gone = Guard(key=garbage[0].key, revision=0)
    return [first, *(replace(one, guards=(*one.guards, is_first_gone)) for one in others)]
