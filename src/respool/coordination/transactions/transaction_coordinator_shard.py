"""The transaction coordinator's state machine for one partition of `__transaction_state`.

`decision.py` describes the interface, `transaction_metadata.py` the states of a transactional id.
`transaction_init.py`, `transaction_partitions.py` and `transaction_end.py` decide the effect of a request from the
state of its id alone. This module owns the waiting requests, the timers and the records.

Only InitProducerId creates an entry for a transactional id; other requests for an unknown id leave no state.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from respool.coordination.decision import CoordinatorRecord, Decision, Ticket, TimerKey
from respool.coordination.draft import Draft
from respool.coordination.groups.group_records import kind_of
from respool.coordination.transactions.transaction_admin import TransactionAdmin
from respool.coordination.transactions.transaction_end import complete, end_transaction, fence
from respool.coordination.transactions.transaction_init import init_producer_id
from respool.coordination.transactions.transaction_metadata import (
    WAIT,
    TransactionMetadata,
    TransactionStep,
)
from respool.coordination.transactions.transaction_partitions import (
    add_partitions,
    verify_partitions,
)
from respool.coordination.transactions.transaction_records import (
    TRANSACTION_KEY_VERSION,
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    DescribeTransactions,
    EndTransaction,
    InitProducerId,
    InitProducerIdReply,
    ListTransactions,
    MarkersWritten,
    TransactionRequest,
    TransactionState,
    VerifyPartitions,
    WriteMarkers,
)
from respool.coordination.transactions.waiting_requests import (
    WAITING_TIMER,
    WaitingRequest,
    WaitingRequests,
)
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.coordinator_settings import TransactionSettings
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

logger = logging.getLogger(__name__)

EXPIRY_TIMER: TimerKey = ("transactional id expiry",)
TIMEOUT_TIMER: TimerKey = ("transaction timeout",)
# The size limit of a batch when many timeouts are due; the rest follow at once, after other requests that are waiting.
# A batch must stay well below the log's limit.
RECORD_BYTES_PER_TIMER = 128 * 1_024
# The minimum interval between scans of all open transactions for timeouts.
TIMEOUT_PAUSE_MS = 100
# Any client may invent transactional ids. This limits the bytes for the ids of one partition, with an overhead per id;
# above the limit, the least recently used ids are forgotten before they expire.
IDS_BYTES_MAX = 8 * 1_024 * 1_024
ID_BYTES = 512
# How many ids are examined to find some that may be forgotten.
FORGETTABLE_MAX = 1_000


class _Due(NamedTuple):
    started_at_ms: int
    at_ms: int


class TransactionCoordinatorShard:
    writing_requests = (InitProducerId, AddPartitions, EndTransaction)

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        # Least recently used first.
        self._transactions: dict[str, TransactionMetadata] = {}
        self._ids_bytes = 0
        # Invariant: exactly the ids in state Ongoing.
        self._open: dict[str, TransactionMetadata] = {}
        # Deadlines by the monotonic clock, because records have wall-clock times, and the wall clock may be changed.
        # And start times from the records: a decision whose write failed is made again, with another start time.
        self._due: dict[str, _Due] = {}
        self._admin = TransactionAdmin(self._transactions)
        self._waiting = WaitingRequests(hold_ms_max=settings.hold_ms_max)
        # By id: partitions that still need markers, if some partitions have theirs.
        self._unmarked: dict[str, set[TopicPartition]] = {}
        # When the timeout timer fires; None if it is not set. Invariant: not later than the deadline of any open
        # transaction, or than TIMEOUT_PAUSE_MS after it last fired.
        self._rings_at_ms: int | None = None
        self._skipped_kinds: set[int] = set()
        # Values of records that were just decided on: replay uses them without decoding the records.
        self._written: dict[tuple[bytes, bytes], TransactionMetadata] = {}
        self._repliers: dict[type, Callable[[Any, Draft], Any]] = {
            VerifyPartitions: lambda request, _: verify_partitions(
                self._transactions.get(request.transactional_id), request
            ),
            ListTransactions: lambda request, draft: self._admin.list(request, draft.wall_ms),
            DescribeTransactions: lambda request, _: self._admin.describe(request),
        }

    def decide(
        self,
        request: TransactionRequest,
        *,
        ticket: Ticket,
        now_ms: int,
        wall_ms: int | None = None,
    ) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        if isinstance(request, AddPartitions | EndTransaction | InitProducerId):
            transaction = self._transactions.get(request.transactional_id)
            step = self._step(transaction, request, draft.wall_ms)
            _log_takeover(transaction, step, request)
            if transaction is None and step.transaction is not None:
                step = self._make_room(step, draft)
            self._write_step(step, draft)
            if step.reply is WAIT:
                self._waiting.add(request, ticket, draft)
            else:
                draft.answer(ticket, step.reply)
        elif isinstance(request, MarkersWritten):
            self._on_markers_written(request, draft)
            draft.answer(ticket, None)
        else:
            draft.answer(ticket, self._repliers[type(request)](request, draft))
        return draft.decision()

    def on_timer(self, key: TimerKey, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        if key == TIMEOUT_TIMER:
            self._abort_overdue(draft)
        elif key == WAITING_TIMER:
            self._waiting.on_timer(draft)
        else:
            assert key == EXPIRY_TIMER, key
            self._expire(draft)
        return draft.decision()

    def on_loaded(self, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        """After the whole log was replayed: write missing markers, and start the timeouts of transactions."""
        draft = Draft(now_ms, wall_ms=wall_ms)
        draft.set_timer(
            EXPIRY_TIMER, now_ms + self._settings.transactional_id_expiration_check_interval_ms
        )
        for transaction in self._transactions.values():
            if transaction.is_prepared:
                draft.carry_out(_markers_of(transaction))
        for transaction in self._open.values():
            self._watch(transaction, draft)
        return draft.decision()

    def replay(
        self, record: CoordinatorRecord, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a record.

        Raises:
            CoordinatorRecordDamaged: the record cannot be read.
        """
        assert producer_id == NO_PRODUCER_ID, "a transactional record in this topic"
        kind = kind_of(record.key)
        if kind != TRANSACTION_KEY_VERSION:
            if kind not in self._skipped_kinds:
                self._skipped_kinds.add(kind)
                logger.warning("records of kind %d are unknown here and skipped", kind)
            return
        if record.value is None:
            transactional_id = read_transaction_key(record.key)
            if self._transactions.pop(transactional_id, None) is not None:
                self._ids_bytes -= _bytes_of(transactional_id)
            self._open.pop(transactional_id, None)
            self._due.pop(transactional_id, None)
            return
        transaction = self._written.pop((record.key, record.value), None)
        if transaction is None:
            transaction = read_transaction_value(read_transaction_key(record.key), record.value)
        transactional_id = transaction.transactional_id
        if self._transactions.pop(transactional_id, None) is None:
            self._ids_bytes += _bytes_of(transactional_id)
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._open[transactional_id] = transaction
        elif self._open.pop(transactional_id, None) is not None:
            self._due.pop(transactional_id, None)

    # --- steps of one transactional id

    def _step(
        self, transaction: TransactionMetadata | None, request: WaitingRequest, wall_ms: int
    ) -> TransactionStep:
        if isinstance(request, AddPartitions):
            return add_partitions(transaction, request, wall_ms)
        if isinstance(request, EndTransaction):
            return end_transaction(transaction, request, wall_ms)
        return init_producer_id(
            transaction,
            request,
            timeout_ms_max=self._settings.transaction_max_timeout_ms,
            now_ms=wall_ms,
        )

    def _write_step(self, step: TransactionStep, draft: Draft) -> None:
        if step.transaction is not None:
            self._write(step.transaction, draft)

    def _write(self, transaction: TransactionMetadata, draft: Draft) -> None:
        key = write_transaction_key(transaction.transactional_id)
        value = write_transaction_value(transaction)
        self._written[key, value] = transaction
        draft.write(key, value)
        if transaction.state is TransactionState.ONGOING:
            self._watch(transaction, draft)
        elif transaction.is_prepared:
            draft.carry_out(_markers_of(transaction))

    def _on_markers_written(self, report: MarkersWritten, draft: Draft) -> None:
        transactional_id = report.transactional_id
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or not transaction.is_prepared
            or transaction.producer_id != report.producer_id
            or transaction.producer_epoch != report.producer_epoch
        ):
            # Markers of a transaction that is already complete.
            return
        unmarked = self._unmarked.pop(transactional_id, None) or set(transaction.partitions)
        unmarked.difference_update(report.partitions)
        if unmarked:
            self._unmarked[transactional_id] = unmarked
            return
        transaction = complete(transaction, draft.wall_ms)
        self._write(transaction, draft)
        # Each request is decided on the state that the previous one left.
        for waiting in self._waiting.take(transactional_id):
            step = self._step(transaction, waiting.request, draft.wall_ms)
            self._write_step(step, draft)
            transaction = step.transaction or transaction
            if step.reply is WAIT:
                self._waiting.put_back(waiting)
            else:
                draft.answer(waiting.ticket, step.reply)

    # --- time

    def _watch(self, transaction: TransactionMetadata, draft: Draft) -> None:
        """Set the timer to an open transaction's deadline, unless it fires earlier."""
        due_at_ms = self._due_at_ms(transaction, draft)
        if self._rings_at_ms is None or due_at_ms < self._rings_at_ms:
            self._ring_at(due_at_ms, draft)

    def _due_at_ms(self, transaction: TransactionMetadata, draft: Draft) -> int:
        """The transaction's deadline, which does not move if the wall clock changes.

        The clock of the broker that wrote the first record may have been wrong: wait at most the timeout from now.
        """
        name, started_at_ms = transaction.transactional_id, transaction.started_at_ms
        known = self._due.get(name)
        if known is None or known.started_at_ms != started_at_ms:
            left_ms = min(
                max(0, transaction.due_at_ms - draft.earlier_clock_ms), transaction.timeout_ms
            )
            self._due[name] = known = _Due(
                started_at_ms=started_at_ms, at_ms=draft.now_ms + left_ms
            )
        return known.at_ms

    def _ring_at(self, due_at_ms: int, draft: Draft) -> None:
        self._rings_at_ms = due_at_ms
        draft.set_timer(TIMEOUT_TIMER, due_at_ms)

    def _abort_overdue(self, draft: Draft) -> None:
        now_ms = draft.now_ms
        self._rings_at_ms = None
        rings_at_ms: int | None = None
        for transaction in self._open.values():
            due_at_ms = self._due_at_ms(transaction, draft)
            if due_at_ms <= now_ms and draft.record_bytes < RECORD_BYTES_PER_TIMER:
                logger.info(
                    "%r: the transaction of producer %d is open for more than %d ms and is aborted",
                    transaction.transactional_id,
                    transaction.producer_id,
                    transaction.timeout_ms,
                )
                self._write(fence(transaction, by_producer=False, now_ms=draft.wall_ms), draft)
            elif rings_at_ms is None or due_at_ms < rings_at_ms:
                rings_at_ms = due_at_ms
        if rings_at_ms is not None:
            is_more_due = rings_at_ms <= now_ms
            self._ring_at(
                now_ms if is_more_due else max(rings_at_ms, now_ms + TIMEOUT_PAUSE_MS), draft
            )

    def _make_room(self, step: TransactionStep, draft: Draft) -> TransactionStep:
        """Admit a new id, and forget old ids to make room for it; if none may be forgotten, the client must retry.

        As with expired ids, a producer that returns must initialise again. No transaction is lost.
        """
        assert step.transaction is not None
        excess = self._ids_bytes + _bytes_of(step.transaction.transactional_id) - IDS_BYTES_MAX
        for transaction in islice(self._transactions.values(), FORGETTABLE_MAX):
            if excess <= 0:
                break
            if transaction.is_idle:
                draft.write(write_transaction_key(transaction.transactional_id), None)
                excess -= _bytes_of(transaction.transactional_id)
        if excess <= 0:
            return step
        draft.discard_records()
        error = CoordinatorNotAvailable(
            f"{len(self._transactions)} transactional ids are known here, and too many are in use"
        )
        return TransactionStep(None, InitProducerIdReply(error=error))

    def _expire(self, draft: Draft) -> None:
        """Remove expired ids."""
        unused_since_ms = draft.earlier_clock_ms - self._settings.transactional_id_expiration_ms
        for transaction in self._transactions.values():
            if draft.record_bytes >= RECORD_BYTES_PER_TIMER:
                draft.set_timer(EXPIRY_TIMER, draft.now_ms)
                return
            if transaction.is_idle and transaction.updated_at_ms <= unused_since_ms:
                draft.write(write_transaction_key(transaction.transactional_id), None)
        interval_ms = self._settings.transactional_id_expiration_check_interval_ms
        draft.set_timer(EXPIRY_TIMER, draft.now_ms + interval_ms)


def _bytes_of(transactional_id: str) -> int:
    # A character takes up to four bytes.
    return ID_BYTES + 4 * len(transactional_id)


def _markers_of(prepared: TransactionMetadata) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        is_commit=prepared.state is TransactionState.PREPARE_COMMIT,
        partitions=prepared.partitions,
        version=prepared.version,
    )


def _log_takeover(
    before: TransactionMetadata | None, step: TransactionStep, request: TransactionRequest
) -> None:
    """Log for operators why a producer's open transaction was aborted."""
    if (
        isinstance(request, InitProducerId)
        and before is not None
        and before.state is TransactionState.ONGOING
        and step.transaction is not None
    ):
        logger.info(
            "%r: the transaction of producer %d, epoch %d is aborted: its id was taken over",
            before.transactional_id,
            before.producer_id,
            before.producer_epoch,
        )
