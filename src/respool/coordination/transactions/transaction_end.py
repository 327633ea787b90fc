"""How a transaction ends: by its producer, by fencing, and when all markers are written.

In version 2 each end bumps the epoch. So a request with the current epoch concerns the next transaction, and a request
with the previous epoch repeats the last end and must have the same outcome. Before version 2 the epoch stays the same,
and a request for the same outcome counts as a retry.
"""

from respool.coordination.transactions.transaction_metadata import (
    LAST_USABLE_EPOCH,
    PRODUCER_EPOCH_MAX,
    WAIT,
    TransactionMetadata,
    TransactionStep,
)
from respool.coordination.transactions.transaction_partitions import not_current
from respool.coordination.transactions.transaction_requests import (
    EndTransaction,
    EndTransactionReply,
    ProducerIdNeeded,
    TransactionState,
)
from respool.model.coordinator_errors import ConcurrentTransactions, InvalidTransactionState
from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, ProducerId

_ENDED = EndTransactionReply()
_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
_COMMITS = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def end_transaction(
    transaction: TransactionMetadata | None, request: EndTransaction, now_ms: int
) -> TransactionStep:
    if transaction is None:
        return _refused(not_current(transaction, request))
    if request.version.bumps_epoch:
        return _end_with_bump(transaction, request, now_ms)
    if not transaction.is_current(request.producer_id, request.producer_epoch):
        return _refused(not_current(transaction, request))
    if transaction.state is TransactionState.ONGOING:
        return TransactionStep(_prepared(transaction, request, now_ms), _ENDED)
    return _end_again(transaction, request, _ENDED)


def fence(
    transaction: TransactionMetadata, *, by_producer: bool, now_ms: int
) -> TransactionMetadata:
    """Abort an open transaction with the next epoch, which fences the producer.

    With `by_producer`, the producer itself requested it and will receive that epoch.
    """
    assert transaction.state is TransactionState.ONGOING, transaction
    return TransactionMetadata(
        transaction.transactional_id,
        transaction.producer_id,
        min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        transaction.timeout_ms,
        TransactionState.PREPARE_ABORT,
        transaction.partitions,
        now_ms,
        transaction.started_at_ms,
        transaction.producer_id if by_producer else NO_PRODUCER_ID,
        NO_PRODUCER_ID,
        transaction.version,
    )


def complete(prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Complete a prepared transaction, after all partitions have their markers."""
    assert prepared.is_prepared, prepared
    is_exchanged = prepared.next_producer_id != NO_PRODUCER_ID
    return TransactionMetadata(
        prepared.transactional_id,
        prepared.next_producer_id if is_exchanged else prepared.producer_id,
        0 if is_exchanged else prepared.producer_epoch,
        prepared.timeout_ms,
        _COMPLETED[prepared.state],
        (),
        now_ms,
        prepared.started_at_ms,
        prepared.previous_producer_id,
        NO_PRODUCER_ID,
        prepared.version,
    )


def _end_with_bump(
    transaction: TransactionMetadata, request: EndTransaction, now_ms: int
) -> TransactionStep:
    who = (request.producer_id, request.producer_epoch)
    is_open = transaction.state is TransactionState.ONGOING
    has_ended = not is_open and transaction.state is not TransactionState.EMPTY
    if has_ended and transaction.was_bumped_by(*who):
        return _end_again(transaction, request, _reply_with(transaction))
    is_current = transaction.is_current(*who)
    if transaction.is_next(*who) or (is_current and transaction.is_prepared):
        # The request concerns the next transaction.
        return TransactionStep(None, WAIT)
    if not is_current:
        return _refused(not_current(transaction, request))
    if not is_open and request.is_commit:
        return _refused(_contradiction(transaction, request))
    next_producer_id = NO_PRODUCER_ID
    if transaction.producer_epoch >= LAST_USABLE_EPOCH:
        if request.new_producer_id is None:
            return TransactionStep(None, ProducerIdNeeded())
        next_producer_id = request.new_producer_id
    ended = _prepared(transaction, request, now_ms, next_producer_id=next_producer_id)
    if not is_open:
        # No markers are needed: the client aborts because it does not know whether its first write succeeded.
        ended = complete(ended, now_ms)
    return TransactionStep(ended, _reply_with(ended))


def _prepared(
    transaction: TransactionMetadata,
    request: EndTransaction,
    now_ms: int,
    *,
    next_producer_id: ProducerId = NO_PRODUCER_ID,
) -> TransactionMetadata:
    bumps_epoch = request.version.bumps_epoch
    is_open = transaction.state is TransactionState.ONGOING
    return TransactionMetadata(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch + bumps_epoch,
        transaction.timeout_ms,
        TransactionState.PREPARE_COMMIT if request.is_commit else TransactionState.PREPARE_ABORT,
        transaction.partitions,
        now_ms,
        transaction.started_at_ms if is_open else now_ms,
        transaction.producer_id if bumps_epoch else NO_PRODUCER_ID,
        next_producer_id,
        request.version,
    )


def _end_again(
    transaction: TransactionMetadata, request: EndTransaction, reply: EndTransactionReply
) -> TransactionStep:
    """Reply to a request whose transaction may have ended already."""
    is_commit = transaction.state in _COMMITS
    if transaction.state is TransactionState.EMPTY or is_commit != request.is_commit:
        return _refused(_contradiction(transaction, request))
    if transaction.is_prepared:
        return _refused(
            ConcurrentTransactions(f"{request.transactional_id} is at {transaction.state.name}")
        )
    return TransactionStep(None, reply)


def _reply_with(ended: TransactionMetadata) -> EndTransactionReply:
    if ended.next_producer_id != NO_PRODUCER_ID:
        return EndTransactionReply(producer_id=ended.next_producer_id, producer_epoch=0)
    return EndTransactionReply(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)


def _refused(error: RequestError) -> TransactionStep:
    return TransactionStep(None, EndTransactionReply(error=error))


def _contradiction(
    transaction: TransactionMetadata, request: EndTransaction
) -> InvalidTransactionState:
    action = "commit" if request.is_commit else "abort"
    return InvalidTransactionState(
        f"{request.transactional_id} is at {transaction.state.name}, so it cannot {action}"
    )
