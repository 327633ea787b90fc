"""Tracks which partitions of a finished transaction still need markers, and the next step. Pure: no clock, no I/O.

```
            begin_round                end_round: nothing to retry
  WAITING ---------------> WRITING ------------------------------> WAITING
    ^                         |
    | on_retry                | end_round, or a later event: a partition without its marker is not in flight
    +------ RETRYING <--------+                          all partitions have it: DONE
```
The outcome of the transaction is final, so markers are retried until every partition has one or is deleted. A fenced
coordinator (FENCED) stops: its successor writes the markers.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TypeAlias

from respool.model.ids import BrokerId, TopicPartition

LeaderOf: TypeAlias = Callable[[TopicPartition], BrokerId | None]


class MarkerPhase(Enum):
    # For markers in flight, or before the first round.
    WAITING = auto()
    # A round is in progress: results may arrive at any time, but the next step is decided at its end.
    WRITING = auto()
    # A retry is scheduled.
    RETRYING = auto()
    DONE = auto()
    FENCED = auto()


class NextStep(Enum):
    NOTHING = auto()
    # Start another round after a pause; call `on_retry` then.
    RETRY = auto()
    # Every partition has its marker. Returned only once.
    DONE = auto()


class PendingMarkers:
    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._missing = set(partitions)
        # Appended but not synced yet, or sent to another broker. Invariant: a subset of `_missing`.
        self._in_flight: set[TopicPartition] = set()
        # The leader of each partition at its last attempt; only in a cluster.
        self._tried_leaders: dict[TopicPartition, BrokerId | None] = {}
        self._phase = MarkerPhase.WAITING
        self._rounds = 0
        # Rounds since a partition's leader changed; the backoff grows with each.
        self._rounds_at_leaders = 0

    @property
    def is_fenced(self) -> bool:
        """True if another coordinator has taken over before this one has learned so from the metadata."""
        return self._phase is MarkerPhase.FENCED

    @property
    def is_done(self) -> bool:
        return self._phase is MarkerPhase.DONE

    @property
    def is_first_round(self) -> bool:
        return self._rounds == 1

    @property
    def retries(self) -> int:
        """The number of rounds with the current leaders, for the backoff."""
        return self._rounds_at_leaders

    def has_other_leaders(self, leader_of: LeaderOf) -> bool:
        """True if a marker that can be retried would go to another broker than at its last attempt."""
        return any(
            name in self._missing
            # A marker in flight is not retried, so it would be reported repeatedly.
            and name not in self._in_flight
            and leader_of(name) != leader
            for name, leader in self._tried_leaders.items()
        )

    # -- rounds ------------------------------------------------------------------------------------------------------

    def on_retry(self) -> None:
        """The pause before a retry is over, or was interrupted."""
        if self._phase is MarkerPhase.RETRYING:
            self._phase = MarkerPhase.WAITING

    def begin_round(self, leader_of: LeaderOf | None) -> list[TopicPartition]:
        """Start a round; return the partitions to write to now, in order."""
        assert self._phase is MarkerPhase.WAITING, f"a round begins in phase {self._phase.name}"
        if leader_of is not None and self.has_other_leaders(leader_of):
            # A new leader, possibly this broker, only leads once its epoch is durable. So the first attempt may come
            # too early; the next one must not wait as long as after minutes without a leader.
            self._rounds_at_leaders = 0
        self._rounds += 1
        self._rounds_at_leaders += 1
        self._phase = MarkerPhase.WRITING
        return sorted(self._missing - self._in_flight)

    def end_round(self) -> NextStep:
        assert self._phase in {MarkerPhase.WRITING, MarkerPhase.FENCED}, (
            f"a round ends in {self._phase.name}"
        )
        if self._phase is MarkerPhase.WRITING:
            self._phase = MarkerPhase.WAITING
        return self.next_step()

    def next_step(self) -> NextStep:
        """The next step; call it after every event. During a round it is NOTHING."""
        if self._phase not in {MarkerPhase.WAITING, MarkerPhase.RETRYING}:
            return NextStep.NOTHING
        if not self._missing:
            self._phase = MarkerPhase.DONE
            return NextStep.DONE
        if self._phase is MarkerPhase.WAITING and len(self._in_flight) < len(self._missing):
            self._phase = MarkerPhase.RETRYING
            return NextStep.RETRY
        return NextStep.NOTHING

    # -- attempts ----------------------------------------------------------------------------------------------------

    def on_attempt(self, name: TopicPartition, leader: BrokerId | None) -> None:
        """A marker is being written to this leader."""
        self._tried_leaders[name] = leader

    def leader_tried(self, name: TopicPartition) -> BrokerId | None:
        return self._tried_leaders[name]

    def on_in_flight(self, name: TopicPartition) -> None:
        """The marker was appended but not synced yet, or was sent to another broker."""
        assert name in self._missing, f"{name} needs no marker"
        self._in_flight.add(name)

    def on_written(self, name: TopicPartition) -> None:
        """The marker is durable, or the partition needs none."""
        self._in_flight.discard(name)
        self._missing.discard(name)

    def on_not_written(self, name: TopicPartition) -> None:
        """The attempt failed; a later round retries the marker."""
        self._in_flight.discard(name)

    def on_fenced(self) -> None:
        self._phase = MarkerPhase.FENCED
