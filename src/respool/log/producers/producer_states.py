"""Which producers write to a partition and what came last from each: so that a retry is not written twice, and nothing
of a transaction that is over.

The state is part of the log: every batch carries its producer, epoch and first sequence in its header, so whoever has
the headers (a follower, a recovery) has the state; of the ends of transactions, what the markers say. `check` decides
and changes nothing; `update` and `end_transaction` replay what was appended, whoever appended it, and never refuse.

A `.snapshot` holds the whole window of five batches per producer, in Kafka's bytes (see `producer_snapshot.py`), so
that retries are recognised after a clean stop as well, where no header is replayed.

Memory is bounded twice. `expire` forgets who was silent for `expiration_ms`. And a client may invent producer ids as
fast as it can send batches, so there are at most `producers_max`, about 1.2 KB each with a full window: beyond that
the longest silent one is forgotten. Whoever is forgotten may go on, with any sequence; only its retries are no
longer recognised. Nobody is forgotten while it has a transaction open.
"""

from collections.abc import Iterable
from typing import Self

from respool.log.index.transaction_index import AbortedTransaction
from respool.log.producers.open_transactions import OpenTransactions
from respool.log.producers.producer_check import (
    DuplicateOf,
    check_batch,
    check_marker,
    check_transactional,
)
from respool.log.producers.producer_snapshot import (
    add_entry,
    decode_entries,
    encode_entries,
    entries_of,
)
from respool.log.producers.producer_state import (
    NO_OFFSET,
    NO_SEQUENCE,
    AppendedBatch,
    ProducerState,
)
from respool.log.producers.verification import VerificationGuard, Verifications
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from respool.records.markers import EndTransactionMarker

__all__ = ["DuplicateOf", "ProducerStates"]

PRODUCERS_MAX = 20_000
# How long a producer may take from asking for a transaction's verification to its first batch.
VERIFICATION_MS = 600_000


class ProducerStates:
    def __init__(self, *, expiration_ms: int, producers_max: int = PRODUCERS_MAX) -> None:
        self._expiration_ms = expiration_ms
        self._producers_max = producers_max
        # By producer id, the longest silent first.
        self._states: dict[int, ProducerState] = {}
        # The broker's clock as `expire` last brought it.
        self._clock_ms = NO_TIMESTAMP
        # The same transactions as in the states, in the order in which they began.
        self.transactions = OpenTransactions()
        self._verifications = Verifications()

    def check(
        self, header: BatchHeader, guard: VerificationGuard | None = None
    ) -> DuplicateOf | None:
        """May this batch of data be appended? None: yes. Otherwise it already was, and lies there.

        Only the leader asks, before it appends; what comes by replication was checked there.

        Raises:
            OutOfOrderSequence: it does not follow the producer's last batch.
            InvalidProducerEpoch: the producer id was taken over by a newer epoch.
            InvalidTransactionState: it is part of a transaction that is not known to be open, or of none while one is.
        """
        state = self._states.get(header.producer_id)
        if header.attributes & TRANSACTIONAL_BIT:
            return check_transactional(
                state,
                header,
                is_verified=self._verifications.is_current(guard, header),
                guard=guard,
            )
        # Never seen, expired or deleted by retention: there is nothing to compare with.
        return check_batch(state, header) if state is not None else None

    def check_marker(self, marker: EndTransactionMarker, *, needs_newer_epoch: bool) -> None:
        """May this end of a transaction be appended?

        Raises:
            InvalidProducerEpoch: a newer producer has taken over.
            TransactionCoordinatorFenced: a newer coordinator has.
        """
        state = self._states.get(marker.producer_id)
        if state is not None:
            check_marker(state, marker, needs_newer_epoch=needs_newer_epoch)

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """What `check` wants to see before this batch may begin a transaction; None where that is open already."""
        state = self._states.get(header.producer_id)
        if (
            state is not None
            and state.has_open_transaction
            and state.epoch == header.producer_epoch
        ):
            return None
        return self._verifications.begin(header, now_ms=self._clock_ms)

    def give_back(self, guard: VerificationGuard) -> None:
        """The coordinator refused what the guard was asked for."""
        self._verifications.give_back(guard)

    def aborting(self, producer_id: int, *, marker_offset: Offset) -> AbortedTransaction | None:
        """What readers must be told once a marker there aborts the producer's transaction; None when none is open."""
        state = self._states.get(producer_id)
        if state is None or not state.has_open_transaction:
            return None
        return AbortedTransaction(
            producer_id,
            state.current_txn_first_offset,
            marker_offset,
            self.transactions.last_stable_without(producer_id, marker_offset=marker_offset),
        )

    def update(self, header: BatchHeader, *, base_offset: Offset) -> None:
        """A batch of data was appended at `base_offset`; batches without a producer id change nothing.

        `header` is as written, with the log-append time where the topic has that.
        """
        if header.producer_id < 0 or header.attributes & CONTROL_BIT:
            return
        state = self._take(header.producer_id, header.producer_epoch, header.max_timestamp)
        # Batches written by a coordinator carry a producer, and no sequence.
        last_sequence = header.last_sequence if header.base_sequence >= 0 else NO_SEQUENCE
        delta = header.last_offset_delta
        state.add(
            AppendedBatch(last_sequence, Offset(base_offset + delta), delta, header.max_timestamp)
        )
        if header.attributes & TRANSACTIONAL_BIT and state.current_txn_first_offset < 0:
            state.current_txn_first_offset = base_offset
            self.transactions.begin(state.producer_id, base_offset)
            self._verifications.end(state.producer_id)
        self._states[header.producer_id] = state

    def end_transaction(
        self, marker: EndTransactionMarker, *, offset: Offset, timestamp_ms: int
    ) -> None:
        """A marker was appended: the producer's transaction has ended, whether it wrote anything here or not."""
        state = self._take(marker.producer_id, marker.producer_epoch, timestamp_ms)
        state.coordinator_epoch = marker.coordinator_epoch
        self._verifications.end(state.producer_id)
        if state.has_open_transaction:
            state.current_txn_first_offset = NO_OFFSET
            self.transactions.end(state.producer_id, offset)
        self._states[marker.producer_id] = state

    def expire(self, now_ms: int) -> int:
        """Forget who was silent for `expiration_ms`, but nobody in a transaction; return how many.

        Kafka goes by the timestamps of the records, and so forgets at once whoever writes old ones, as a backfill does.
        Here the broker's clock counts: it is brought by these calls, a producer lives up to one interval between
        them longer. Call it after opening, and before a snapshot, so that the snapshot knows the time.
        """
        self._clock_ms = now_ms
        self._verifications.expire(now_ms - VERIFICATION_MS)
        silent = [state for state in self._states.values() if self._is_silent(state, now_ms)]
        for state in silent:
            del self._states[state.producer_id]
        return len(silent)

    def forget_before(self, log_start: Offset) -> int:
        """Forget whose last batch lies before the log's start; return how many.

        It makes the state what the log alone would give. A producer known by a marker only is left to expiry, and one
        with an open transaction may go on with it.
        """
        gone = [
            state
            for state in self._states.values()
            if 0 <= state.last_offset < log_start and not state.has_open_transaction
        ]
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
        for state in sorted(states.active(), key=lambda one: one.current_txn_first_offset):
            if state.has_open_transaction:
                states.transactions.begin(state.producer_id, state.current_txn_first_offset)
        return states

    def active(self) -> Iterable[ProducerState]:
        """The producers known, the longest silent first. Look, do not touch."""
        return self._states.values()

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._states

    def __eq__(self, other: object) -> bool:
        """Do both decide alike?"""
        return isinstance(other, ProducerStates) and self._states == other._states

    # It changes, so it cannot be a key.
    __hash__ = None  # type: ignore[assignment]

    def _take(self, producer_id: int, epoch: int, timestamp_ms: int) -> ProducerState:
        """Take the producer's state out, for putting back at the end of the line: it was active then."""
        state = self._states.pop(producer_id, None)
        if state is None:
            self._make_room()
            return ProducerState(producer_id=producer_id, epoch=epoch, active_at_ms=timestamp_ms)
        # Not only upwards: the log is right. A forgotten producer's older epoch was accepted by the leader.
        if state.epoch != epoch:
            state.begin_epoch(epoch)
        state.active_at_ms = timestamp_ms
        state.is_fresh = True
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
