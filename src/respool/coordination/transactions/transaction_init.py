"""InitProducerId: decides which producer owns a transactional id, and with which epoch.

| the id is          | a new producer                    | the current producer, or one that lost the reply           |
|--------------------|-----------------------------------|------------------------------------------------------------|
| unknown            | a new producer id                 | a new producer id: the id was forgotten                    |
| idle               | the next epoch                    | the next epoch; the same again, if the reply was lost      |
| Ongoing            | abort with the next epoch, wait   | the same                                                   |
| Prepare            | wait                              | wait                                                       |

All other producers are fenced. When the epochs are exhausted, a new producer id is assigned.
"""

from respool.coordination.record_bytes import fits_a_string
from respool.coordination.transactions.transaction_end import fence
from respool.coordination.transactions.transaction_metadata import (
    LAST_USABLE_EPOCH,
    PRODUCER_EPOCH_MAX,
    WAIT,
    TransactionMetadata,
    TransactionStep,
)
from respool.coordination.transactions.transaction_requests import (
    InitProducerId,
    InitProducerIdReply,
    ProducerIdNeeded,
    TransactionState,
)
from respool.model.coordinator_errors import InvalidTransactionTimeout, ProducerFenced
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import NO_PRODUCER_ID, ProducerId


def init_producer_id(
    transaction: TransactionMetadata | None,
    request: InitProducerId,
    *,
    timeout_ms_max: int,
    now_ms: int,
) -> TransactionStep:
    error = _check(request, timeout_ms_max)
    if error is not None:
        return TransactionStep(None, InitProducerIdReply(error=error))
    if transaction is None:
        return _with_new_producer_id(request, previous_producer_id=NO_PRODUCER_ID, now_ms=now_ms)
    is_new = request.producer_id == NO_PRODUCER_ID
    who = (request.producer_id, request.producer_epoch)
    is_open = transaction.state is TransactionState.ONGOING
    is_repeated = not is_open and transaction.was_bumped_by(*who)
    if not (
        is_new
        or is_repeated
        or transaction.is_next(*who)
        or who == (transaction.producer_id, transaction.producer_epoch)
    ):
        return TransactionStep(None, InitProducerIdReply(error=_fenced(transaction, request)))
    if transaction.is_prepared:
        return TransactionStep(None, WAIT)
    if is_open:
        return TransactionStep(fence(transaction, by_producer=not is_new, now_ms=now_ms), WAIT)
    return _next_epoch(transaction, request, is_new=is_new, is_repeated=is_repeated, now_ms=now_ms)


def _next_epoch(
    idle: TransactionMetadata,
    request: InitProducerId,
    *,
    is_new: bool,
    is_repeated: bool,
    now_ms: int,
) -> TransactionStep:
    epoch = idle.producer_epoch
    previous_producer_id = NO_PRODUCER_ID if is_new else idle.producer_id
    if epoch == PRODUCER_EPOCH_MAX or (epoch == LAST_USABLE_EPOCH and not is_repeated):
        return _with_new_producer_id(
            request, previous_producer_id=previous_producer_id, now_ms=now_ms
        )
    if is_repeated:
        previous_producer_id = idle.previous_producer_id
    else:
        epoch += 1
    return _initialised(
        request,
        producer_id=idle.producer_id,
        producer_epoch=epoch,
        previous_producer_id=previous_producer_id,
        now_ms=now_ms,
    )


def _with_new_producer_id(
    request: InitProducerId, *, previous_producer_id: ProducerId, now_ms: int
) -> TransactionStep:
    if request.new_producer_id is None:
        return TransactionStep(None, ProducerIdNeeded())
    return _initialised(
        request,
        producer_id=request.new_producer_id,
        producer_epoch=0,
        previous_producer_id=previous_producer_id,
        now_ms=now_ms,
    )


def _initialised(
    request: InitProducerId,
    *,
    producer_id: ProducerId,
    producer_epoch: int,
    previous_producer_id: ProducerId,
    now_ms: int,
) -> TransactionStep:
    return TransactionStep(
        TransactionMetadata(
            transactional_id=request.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=request.timeout_ms,
            updated_at_ms=now_ms,
            previous_producer_id=previous_producer_id,
        ),
        InitProducerIdReply(producer_id=producer_id, producer_epoch=producer_epoch),
    )


def _check(request: InitProducerId, timeout_ms_max: int) -> RequestError | None:
    if not request.transactional_id:
        return InvalidRequest("the transactional id is empty")
    if not fits_a_string(request.transactional_id):
        return InvalidRequest(
            f"a transactional id of {len(request.transactional_id)} characters is too long"
        )
    if not 0 < request.timeout_ms <= timeout_ms_max:
        return InvalidTransactionTimeout(
            f"transaction timeout {request.timeout_ms} ms is not within 1 and {timeout_ms_max}"
        )
    return None


def _fenced(transaction: TransactionMetadata, request: InitProducerId) -> ProducerFenced:
    return ProducerFenced(
        f"{request.transactional_id} is producer {transaction.producer_id} at epoch "
        f"{transaction.producer_epoch}, not {request.producer_id} at {request.producer_epoch}"
    )
