"""The idempotent and transactional producers of a partition: detects duplicate batches and batches of ended
transactions.

The state is part of the log: every batch header has producer id, epoch and first sequence, and markers end
transactions. So followers and recoveries derive it from the headers. `check` decides without
changing anything; `update` and `end_transaction` replay appended batches and never refuse.

A `.snapshot` holds the last five batches per producer in Kafka's format (see `producer_snapshot.py`), so retries are
also recognised after a clean stop, when no header is replayed.

Memory is bounded twice. `expire` forgets producers idle for `expiration_ms`. And because a client can invent producer
ids, there are at most `producers_max`, each about 1.2 KB with five batches: beyond that, the longest idle one is
forgotten. A forgotten producer may continue with any sequence; only its retries are no longer recognised. Producers
with an open transaction are never forgotten.
"""

from collections.abc import Iterable
from typing import Self

from respool.log.index.transaction_index import AbortedTransaction
from respool.log.producers.open_transactions import OpenTransactions
from respool.log.producers.producer_check import (
    DuplicateOf,
    check_after,
    check_batch,
    check_marker,
    check_transactional,
)
from respool.log.producers.producer_snapshot import (
    SnapshotEntry,
    decode_entries,
    encode_entries,
    entries_of,
    state_of,
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
# Maximum time from a producer's verification request to its first batch.
VERIFICATION_MS = 600_000


class ProducerStates:
    def __init__(self, *, expiration_ms: int, producers_max: int = PRODUCERS_MAX) -> None:
        self._expiration_ms = expiration_ms
        self._producers_max = producers_max
        # By producer id, longest idle first.
        self._states: dict[int, ProducerState] = {}
        # The broker's time at the last `expire`.
        self._clock_ms = NO_TIMESTAMP
        # The open transactions of the states, in the order of their first offsets.
        self.transactions = OpenTransactions()
        self._verifications = Verifications()

    def check(
        self,
        header: BatchHeader,
        guard: VerificationGuard | None = None,
        earlier: ProducerState | None = None,
    ) -> DuplicateOf | None:
        """Check a data batch before it is appended; return its first copy if it is a duplicate.

        Only the leader checks; replicated batches were checked there. `earlier`: what another log knows of the
        producer, whose batches were appended there before.

        Raises:
            OutOfOrderSequence: it does not follow the producer's last batch.
            InvalidProducerEpoch: the producer id has a newer epoch.
            InvalidTransactionState: its transaction is not known to be open, or it is outside of the open one.
        """
        state = self._states.get(header.producer_id)
        if earlier is not None and (state is None or earlier.is_later_than(state)):
            check_after(
                earlier,
                state,
                header,
                is_verified=self._verifications.is_current(guard, header),
                guard=guard,
            )
            return None
        if header.attributes & TRANSACTIONAL_BIT:
            return check_transactional(
                state,
                header,
                is_verified=self._verifications.is_current(guard, header),
                guard=guard,
            )
        # Never seen, expired or deleted by retention: nothing to compare with.
        return check_batch(state, header) if state is not None else None

    def check_marker(self, marker: EndTransactionMarker, *, needs_newer_epoch: bool) -> None:
        """Check a transaction marker before it is appended.

        Raises:
            InvalidProducerEpoch: a newer producer has fenced this one.
            TransactionCoordinatorFenced: a newer coordinator exists.
        """
        state = self._states.get(marker.producer_id)
        if state is not None:
            check_marker(state, marker, needs_newer_epoch=needs_newer_epoch)

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """Return the guard that `check` requires before this batch may start a transaction; None if it is open
        already.
        """
        state = self._states.get(header.producer_id)
        if (
            state is not None
            and state.has_open_transaction
            and state.epoch == header.producer_epoch
        ):
            return None
        return self._verifications.begin(header, now_ms=self._clock_ms)

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """The coordinator rejected the verification."""
        self._verifications.cancel(guard)

    def aborting(self, producer_id: int, *, marker_offset: Offset) -> AbortedTransaction | None:
        """Return the transaction index entry for an abort marker at this offset; None if no transaction is open."""
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
        """A data batch was appended at `base_offset`; batches without a producer id change nothing.

        `header` is as stored, with LogAppendTime if the topic uses it.
        """
        if header.producer_id < 0 or header.attributes & CONTROL_BIT:
            return
        state = self._take(header.producer_id, header.producer_epoch, header.max_timestamp)
        # Coordinators' batches have a producer id but no sequence.
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
        """A marker was appended: the producer's transaction has ended, whether or not it wrote here."""
        state = self._take(marker.producer_id, marker.producer_epoch, timestamp_ms)
        state.coordinator_epoch = marker.coordinator_epoch
        self._verifications.end(state.producer_id)
        if state.has_open_transaction:
            state.current_txn_first_offset = NO_OFFSET
            self.transactions.end(state.producer_id, offset)
        self._states[marker.producer_id] = state

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for `expiration_ms` without an open transaction; return how many.

        Kafka uses record timestamps, and so forgets producers of old records, such as backfills, at once. We use the
        broker's time, which these calls provide: a producer lives up to one call interval longer. Call it after
        opening, and before a snapshot so that the snapshot has the time.
        """
        self._clock_ms = now_ms
        self._verifications.expire(now_ms - VERIFICATION_MS)
        silent = [state for state in self._states.values() if self._is_silent(state, now_ms)]
        for state in silent:
            del self._states[state.producer_id]
        return len(silent)

    def forget_before(self, log_start: Offset) -> int:
        """Forget producers whose last batch is before the log start; return how many.

        The state is then what the log alone implies. Producers known by a marker only are left to expiration, and one
        with an open transaction may continue it.
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
        """Decode a snapshot written by `encode_snapshot` or by Kafka.

        Raises:
            ValueError: it is damaged or has another version. An older snapshot, or none, and more replayed headers give
                the same state.
        """
        states = cls(expiration_ms=expiration_ms, producers_max=producers_max)
        by_producer: dict[int, list[SnapshotEntry]] = {}
        for entry in decode_entries(data):
            by_producer.setdefault(entry.producer_id, []).append(entry)
        for producer_id, entries in by_producer.items():
            states._make_room()
            states._states[producer_id] = state_of(entries)
        for state in sorted(states.active(), key=lambda one: one.current_txn_first_offset):
            if state.has_open_transaction:
                states.transactions.begin(state.producer_id, state.current_txn_first_offset)
        return states

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of one producer. Read only."""
        return self._states.get(producer_id)

    def void_verifications(self, producer_id: int) -> None:
        """The producer's transaction has ended, in another log: pending verifications are void here, too."""
        self._verifications.end(producer_id)

    def active(self) -> Iterable[ProducerState]:
        """All known producers, longest idle first. Read only."""
        return self._states.values()

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._states

    def __eq__(self, other: object) -> bool:
        """True if both lead to the same decisions."""
        return isinstance(other, ProducerStates) and self._states == other._states

    # Mutable, so not hashable.
    __hash__ = None  # type: ignore[assignment]

    def _take(self, producer_id: int, epoch: int, timestamp_ms: int) -> ProducerState:
        """Remove and return the producer's state; the caller re-inserts it as the most recently active one."""
        state = self._states.pop(producer_id, None)
        if state is None:
            self._make_room()
            return ProducerState(
                producer_id=producer_id,
                epoch=epoch,
                active_at_ms=timestamp_ms,
                last_timestamp=timestamp_ms,
            )
        # The epoch may go down: the log is authoritative. The leader accepted an older epoch of a forgotten producer.
        if state.epoch != epoch:
            state.begin_epoch(epoch)
        state.active_at_ms = state.last_timestamp = timestamp_ms
        state.is_fresh = True
        return state

    def _make_room(self) -> None:
        if len(self._states) < self._producers_max:
            return
        # Open transactions must be kept: they bound the last stable offset.
        for state in self._states.values():
            if not state.has_open_transaction:
                del self._states[state.producer_id]
                return

    def _is_silent(self, state: ProducerState, now_ms: int) -> bool:
        # A future time comes from a record or a clock set back; it must not keep the state forever.
        if state.is_fresh or state.active_at_ms > now_ms:
            state.active_at_ms = now_ms
            state.is_fresh = False
        return not state.has_open_transaction and now_ms - state.active_at_ms >= self._expiration_ms

    def _active_at_ms(self, state: ProducerState) -> int:
        if state.is_fresh:
            return max(state.active_at_ms, self._clock_ms)
        return state.active_at_ms
