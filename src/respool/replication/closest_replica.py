"""Chooses the replica that a consumer reads from: one in its own rack, if it has the requested offset (KIP-392)."""

from collections.abc import Iterable
from dataclasses import dataclass

from respool.model.ids import BrokerId, Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableReplica:
    """A follower that is in sync and alive, according to its leader."""

    broker: BrokerId
    rack: str | None
    log_start: Offset
    log_end: Offset


def closest_replica(
    *,
    client_rack: str | None,
    leader_rack: str | None,
    offset: Offset,
    followers: Iterable[ReadableReplica],
) -> BrokerId | None:
    """The follower that the consumer should read from; None for the leader.

    Only members of the ISR: a consumer sent to a lagging replica would lag for ever, as it is sent there each time.
    """
    if not client_rack or client_rack == leader_rack:
        return None
    nearby = [
        follower
        for follower in followers
        if follower.rack == client_rack and follower.log_start <= offset <= follower.log_end
    ]
    if not nearby:
        return None
    # The one with the highest log end; ties are broken by id, so that consumers do not switch between replicas.
    return max(nearby, key=lambda follower: (follower.log_end, -follower.broker)).broker
