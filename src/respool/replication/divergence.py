"""Finds where two logs diverge by comparing leader epochs (KIP-101, 279, 320, 595).

A follower's fetch contains the epoch of its last record. The leader looks up the end of that epoch in its own log, or,
if it does not have the epoch, the end of the one before. If that end is before the fetch offset, the follower
truncates its log to the last offset at which both logs can agree, and fetches again, until they agree. High
watermarks are not used for this: they lag.

```
leader     1 1 1 1 1 2 2 2 2 4 4       "my largest epoch up to your epoch 3 is 2, and ends at 9"
follower   1 1 1 1 1 3 3 3 3 3 3 3     no epoch 2 here; the largest before it is 1 and ends at 5: truncate to 5
```
"""

from dataclasses import dataclass
from typing import Protocol

from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset


class EpochHistory(Protocol):
    """A log's leader epochs. `PartitionLog` implements it."""

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch`, and its end offset; (-1, -1) if unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfEpoch:
    epoch: LeaderEpoch
    end: Offset

    @property
    def is_known(self) -> bool:
        return self.epoch >= 0 and self.end >= 0


def diverging_epoch(
    history: EpochHistory, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch
) -> EndOfEpoch | None:
    """On the leader: where the logs diverge; None if they agree."""
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end = history.end_of_epoch(last_fetched_epoch)
    if epoch < last_fetched_epoch or end < fetch_offset:
        return EndOfEpoch(epoch=epoch, end=end)
    return None


def agreed_end(history: EpochHistory, theirs: EndOfEpoch, *, log_end: Offset) -> Offset:
    """On the follower: the end of the prefix that may be equal to the leader's log."""
    assert theirs.is_known, f"epoch {theirs.epoch} ends at {theirs.end}"
    epoch, end = history.end_of_epoch(theirs.epoch)
    if epoch == NO_LEADER_EPOCH:
        end = theirs.end
    # Beyond the end of the epoch on either side, that log's records belong to later leaders.
    return min(end, theirs.end, log_end)
