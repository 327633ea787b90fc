"""The partitions of a transaction: adds them, and verifies that they were added."""

from collections.abc import Container

from respool.coordination.transactions.transaction_metadata import (
    WAIT,
    TransactionMetadata,
    TransactionStep,
)
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    EndTransaction,
    TransactionState,
    VerifyPartitions,
    VerifyPartitionsReply,
)
from respool.model.coordinator_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAbortable,
)
from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, TopicPartition

_ADDED = AddPartitionsReply()
# Up to this number, a linear search is faster.
_FEW_PARTITIONS = 16


def add_partitions(
    transaction: TransactionMetadata | None, request: AddPartitions, now_ms: int
) -> TransactionStep:
    if transaction is not None and transaction.is_next(request.producer_id, request.producer_epoch):
        return TransactionStep(None, WAIT)
    if transaction is None or not transaction.is_current(
        request.producer_id, request.producer_epoch
    ):
        return TransactionStep(None, AddPartitionsReply(error=not_current(transaction, request)))
    if transaction.is_prepared:
        return TransactionStep(None, WAIT)
    known = transaction.partitions
    known_here = _lookup(known)
    # Also removes duplicates within the request.
    added = tuple(dict.fromkeys(one for one in request.partitions if one not in known_here))
    if not added:
        return TransactionStep(None, _ADDED)
    is_open = transaction.state is TransactionState.ONGOING
    return TransactionStep(
        TransactionMetadata(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            TransactionState.ONGOING,
            known + added,
            now_ms,
            transaction.started_at_ms if is_open else now_ms,
            # The producer uses the current epoch, so it has received the reply: no request can be repeated.
            NO_PRODUCER_ID,
            NO_PRODUCER_ID,
            request.version,
        ),
        _ADDED,
    )


def verify_partitions(
    transaction: TransactionMetadata | None, request: VerifyPartitions
) -> VerifyPartitionsReply:
    error: RequestError | None = None
    if transaction is None or not transaction.is_current(
        request.producer_id, request.producer_epoch
    ):
        error = not_current(transaction, request)
    elif transaction.is_prepared:
        error = ConcurrentTransactions(f"{request.transactional_id} is at {transaction.state.name}")
    if error is not None or transaction is None:
        return VerifyPartitionsReply(errors=dict.fromkeys(request.partitions, error))
    known_here = _lookup(transaction.partitions)
    return VerifyPartitionsReply(
        errors={
            one: None
            if one in known_here
            else TransactionAbortable(f"{one} is not part of {request.transactional_id}'s")
            for one in request.partitions
        }
    )


def _lookup(partitions: tuple[TopicPartition, ...]) -> Container[TopicPartition]:
    """A container for membership tests, because a transaction and a request may have very many partitions."""
    return partitions if len(partitions) <= _FEW_PARTITIONS else frozenset(partitions)


def not_current(
    transaction: TransactionMetadata | None,
    request: AddPartitions | VerifyPartitions | EndTransaction,
) -> RequestError:
    """The error that says why a request is not from the current producer of the transactional id."""
    if transaction is None:
        return InvalidProducerIdMapping(
            f"there is no transactional id {request.transactional_id!r}"
        )
    if transaction.producer_id != request.producer_id:
        return InvalidProducerIdMapping(
            f"{request.transactional_id} is producer {transaction.producer_id}, "
            f"not {request.producer_id}"
        )
    return ProducerFenced(
        f"{request.transactional_id} is at epoch {transaction.producer_epoch}, "
        f"not {request.producer_epoch}"
    )
