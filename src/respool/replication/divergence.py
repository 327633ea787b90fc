"""Where two logs part, found by comparing leader epochs (KIP-101, 279, 320, 595).

A follower says with each fetch which epoch its last record has. The leader looks up where that epoch ends in its own
log; where it does not have it, the one before. If that is before the follower's end, the follower cuts its log off to
where both can be the same, and asks again, until they agree. High watermarks have no part in it: they lag.

```
leader     1 1 1 1 1 2 2 2 2 4 4       "the last of mine up to your epoch 3 is 2, and ends at 9"
follower   1 1 1 1 1 3 3 3 3 3 3 3     I have no 2; my last before it is 1, and ends at 5: cut off to 5
```
"""

from dataclasses import dataclass
from typing import Protocol

from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset


class EpochHistory(Protocol):
    """A log's leader epochs. `PartitionLog` is one."""

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not after `epoch`, and the offset where it ends; (-1, -1) if that is not known."""
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
    """The leader's side: where the logs part, if they do."""
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end = history.end_of_epoch(last_fetched_epoch)
    if epoch < last_fetched_epoch or end < fetch_offset:
        return EndOfEpoch(epoch=epoch, end=end)
    return None


def agreed_end(history: EpochHistory, theirs: EndOfEpoch, *, log_end: Offset) -> Offset:
    """The follower's side: up to where its log may be the leader's."""
    assert theirs.is_known, f"epoch {theirs.epoch} ends at {theirs.end}"
    epoch, end = history.end_of_epoch(theirs.epoch)
    if epoch == NO_LEADER_EPOCH:
        end = theirs.end
    # What lies beyond their end of the epoch was written by later leaders there; beyond ours, by others here.
    return min(end, theirs.end, log_end)
