"""The current leader in NOT_LEADER replies (KIP-951): clients go there without a metadata request."""

from collections.abc import Iterable

from respool.model.cluster import ClusterImage
from respool.model.errors import FencedLeaderEpoch, NotLeader
from respool.model.ids import BrokerId
from respool.wire.hot_replies import NodeEndpoint

_MISSED = frozenset({NotLeader.code, FencedLeaderEpoch.code})

# Broker id and leader epoch.
Hint = tuple[int, int]


def leader_hint(
    image: ClusterImage, me: BrokerId, topic: str, partition: int, error_code: int
) -> Hint | None:
    """Return the leader that this broker knows of; None if it knows no other."""
    if error_code not in _MISSED or not image.has_partition(topic, partition):
        return None
    found = image.topics[topic].partitions[partition]
    leader = found.serving_leader
    if leader is None or leader == me or leader not in image.brokers:
        return None
    return leader, found.leader_epoch


def endpoints_of(image: ClusterImage, hints: Iterable[Hint | None]) -> list[NodeEndpoint]:
    """Return the endpoints of the brokers that a reply names."""
    ids = sorted({BrokerId(hint[0]) for hint in hints if hint is not None})
    return [
        NodeEndpoint(one.id, one.host, one.port, one.rack)
        for one in (image.brokers[broker] for broker in ids if broker in image.brokers)
    ]
