"""The stored state of a share partition: what a leader reads, and what it writes. Pure.

A *share partition* is one group's view of one partition. Records below `start_offset` are finished. Records at or
above it have the state of the batch that covers them; without one, nobody has acquired them yet.
"""

from dataclasses import dataclass
from typing import NamedTuple

from respool.model.ids import LeaderEpoch, Offset, TopicId

# States of records as they are stored. 1, acquired, never is: locks end with the leader.
AVAILABLE = 0
ACKNOWLEDGED = 2
# Rejected, or delivered too often, and its dead letter is not known to be committed.
ARCHIVING = 3
ARCHIVED = 4
STORED_STATES = frozenset({AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED})
# Neither is delivered again.
FINISHED_STATES = frozenset({ACKNOWLEDGED, ARCHIVED})

# The start is not decided yet: `share.auto.offset.reset` does, at the partition's leader.
UNDECIDED_START = Offset(-1)
# In an update: the start is as it was.
UNCHANGED_START = Offset(-1)
NOT_DELAYED = -1


class ShareKey(NamedTuple):
    """Names a share partition."""

    group: str
    topic_id: TopicId
    partition: int


class StateBatch(NamedTuple):
    """Consecutive offsets in one state."""

    first: int
    last: int
    state: int
    # How often the records were delivered: a lower bound, since an acquisition alone is not stored.
    delivery_count: int
    # Of available records: wall time before which they are not delivered again, or NOT_DELAYED.
    due_at_ms: int = NOT_DELAYED


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """Everything stored of a share partition."""

    # Raised by every initialization, so by altered and deleted offsets.
    state_epoch: int
    # The highest epoch of a leader that has read the state; older ones write no more.
    leader_epoch: LeaderEpoch
    start_offset: Offset
    # Sorted and disjoint, all at or above the start.
    batches: tuple[StateBatch, ...] = ()
    # Finished records at or above the start, or -1: unknown. For the group's lag.
    finished_count: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateUpdate:
    """A change of the state by the partition's leader. Applying it twice is the same as once."""

    # As read by this leader: a write under another one is refused.
    state_epoch: int
    leader_epoch: LeaderEpoch
    # UNCHANGED_START, or the new start: what is below it is forgotten.
    start_offset: Offset = UNCHANGED_START
    finished_count: int = -1
    # Sorted and disjoint: they replace whatever they overlap.
    batches: tuple[StateBatch, ...] = ()
