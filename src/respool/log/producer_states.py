"""Which producers write to a partition and what came last from each: so that a retry is not written twice.

The state is part of the log: every batch carries its producer, epoch and first sequence in its header, so whoever has
the headers (a follower, a recovery) has the state. `check` decides and changes nothing; `update` replays what was
appended, whoever appended it, and never refuses.

A `.snapshot` holds the whole window of five batches per producer, in Kafka's bytes (see `producer_snapshot.py`), so
that retries are recognised after a clean stop as well, where no header is replayed.

Memory is bounded twice. `expire` forgets who was silent for `expiration_ms`. And a client may invent producer ids as
fast as it can send batches, so there are at most `producers_max`, about 1.2 KB each with a full window: beyond that
the longest silent one is forgotten. Whoever is forgotten may go on, with any sequence; only its retries are no
longer recognised.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from respool.log.producer_snapshot import add_entry, decode_entries, encode_entries, entries_of
from respool.log.producer_state import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    NO_SEQUENCE,
    AppendedBatch,
    ProducerState,
)
from respool.model.errors import InvalidProducerEpoch, OutOfOrderSequence
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.records.batch import BatchHeader

PRODUCERS_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateOf:
    """Where the batch lies since it came the first time: the answer to its retry."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


class ProducerStates:
    def __init__(self, *, expiration_ms: int, producers_max: int = PRODUCERS_MAX) -> None:
        self._expiration_ms = expiration_ms
        self._producers_max = producers_max
        # By producer id, the longest silent first.
        self._states: dict[int, ProducerState] = {}
        # The broker's clock as `expire` last brought it.
        self._clock_ms = NO_TIMESTAMP

    def check(self, header: BatchHeader) -> DuplicateOf | None:
        """May this batch of a client be appended? None: yes. Otherwise it already was, and lies there.

        Only the leader asks, before it appends; what comes by replication was checked there.

        Raises:
            OutOfOrderSequence: it does not follow the producer's last batch.
            InvalidProducerEpoch: the producer id was taken over by a newer epoch.
        """
        state = self._states.get(header.producer_id)
        # Never seen, expired or deleted by retention: there is nothing to compare with.
        if state is None:
            return None
        if header.producer_epoch == state.epoch:
            # The common case, first. (Batches of 2^31 records together would make it ambiguous.)
            if header.base_sequence == state.next_sequence:
                return None
            return _duplicate(state, header)
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {state.epoch}, the batch {header.producer_epoch}"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins epoch {header.producer_epoch} (after {state.epoch}) "
                f"with sequence {header.base_sequence}, expected 0"
            )
        return None

    def update(
        self,
        header: BatchHeader,
        *,
        base_offset: Offset,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> None:
        """A batch was appended at `base_offset`; batches without a producer id change nothing.

        `header` is as written, with the log-append time where the topic has that. A control batch ends the producer's
        transaction; `coordinator_epoch` comes from the marker inside it.
        """
        if header.producer_id < 0:
            return
        # A control batch emptied by compaction says nothing any more.
        if header.is_control and header.record_count == 0:
            return
        state = self._take(header)
        # Not only upwards: the log is right. A forgotten producer's older epoch was accepted by the leader.
        if state.epoch != header.producer_epoch:
            state.begin_epoch(header.producer_epoch)
        state.active_at_ms = header.max_timestamp
        state.is_fresh = True
        if header.is_control:
            state.coordinator_epoch = coordinator_epoch
            state.current_txn_first_offset = NO_OFFSET
        else:
            _add(state, header, base_offset)
        self._states[header.producer_id] = state

    def expire(self, now_ms: int) -> int:
        """Forget who was silent for `expiration_ms`, but nobody in a transaction; return how many.

        Kafka goes by the timestamps of the records, and so forgets at once whoever writes old ones, as a backfill does.
        Here the broker's clock counts: it is brought by these calls, a producer lives up to one interval between
        them longer. Call it after opening, and before a snapshot, so that the snapshot knows the time.
        """
        self._clock_ms = now_ms
        silent = [state for state in self._states.values() if self._is_silent(state, now_ms)]
        for state in silent:
            del self._states[state.producer_id]
        return len(silent)

    def forget_before(self, log_start: Offset) -> int:
        """Forget whose last batch lies before the log's start; return how many.

        It makes the state what the log alone would give. A producer known by a marker only is left to expiry.
        """
        gone = [state for state in self._states.values() if 0 <= state.last_offset < log_start]
        for state in gone:
            del self._states[state.producer_id]
        return len(gone)

    def encode_snapshot(self) -> bytes:
        return encode_entries(
            entry
            for state in self._states.values()
            for entry in entries_of(state, active_at_ms=self._active_at_ms(state))
        )

    @classmethod
    def decode_snapshot(
        cls, data: bytes, *, expiration_ms: int, producers_max: int = PRODUCERS_MAX
    ) -> Self:
        """Read what `encode_snapshot` or Kafka wrote.

        Raises:
            ValueError: it is damaged or of another version. An older snapshot, or none, and more headers to
                replay give the same state.
        """
        states = cls(expiration_ms=expiration_ms, producers_max=producers_max)
        for entry in decode_entries(data):
            state = states._states.pop(entry.producer_id, None)
            if state is None:
                states._make_room()
            states._states[entry.producer_id] = add_entry(state, entry)
        return states

    def active(self) -> Iterable[ProducerState]:
        """The producers known, the longest silent first. Look, do not touch."""
        return self._states.values()

    def __len__(self) -> int:
        return len(self._states)

    def __eq__(self, other: object) -> bool:
        """Do both decide alike?"""
        return isinstance(other, ProducerStates) and self._states == other._states

    # It changes, so it cannot be a key.
    __hash__ = None  # type: ignore[assignment]

    def _take(self, header: BatchHeader) -> ProducerState:
        """Take the producer's state out, for putting back at the end of the line."""
        state = self._states.pop(header.producer_id, None)
        if state is None:
            self._make_room()
            state = ProducerState(
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                active_at_ms=header.max_timestamp,
            )
        return state

    def _make_room(self) -> None:
        if len(self._states) < self._producers_max:
            return
        # An open transaction must be remembered: readers of committed records stop before it.
        for state in self._states.values():
            if not state.has_open_transaction:
                del self._states[state.producer_id]
                return

    def _is_silent(self, state: ProducerState, now_ms: int) -> bool:
        # A time that lies ahead comes from a record or from a clock set back; it must not keep the state for ever.
        if state.is_fresh or state.active_at_ms > now_ms:
            state.active_at_ms = now_ms
            state.is_fresh = False
        return not state.has_open_transaction and now_ms - state.active_at_ms >= self._expiration_ms

    def _active_at_ms(self, state: ProducerState) -> int:
        if state.is_fresh:
            return max(state.active_at_ms, self._clock_ms)
        return state.active_at_ms


def _duplicate(state: ProducerState, header: BatchHeader) -> DuplicateOf:
    batch = state.find(base_sequence=header.base_sequence, last_sequence=header.last_sequence)
    if batch is None:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequences {header.base_sequence} "
            f"to {header.last_sequence}, expected {state.next_sequence} next"
        )
    return DuplicateOf(
        base_offset=batch.base_offset, last_offset=batch.last_offset, timestamp=batch.timestamp
    )


def _add(state: ProducerState, header: BatchHeader, base_offset: Offset) -> None:
    # Batches written by a coordinator carry a producer, and no sequence.
    last_sequence = header.last_sequence if header.base_sequence >= 0 else NO_SEQUENCE
    delta = header.last_offset_delta
    state.add(
        AppendedBatch(last_sequence, Offset(base_offset + delta), delta, header.max_timestamp)
    )
    if header.is_transactional and not state.has_open_transaction:
        state.current_txn_first_offset = base_offset
