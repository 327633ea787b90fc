"""Produce inside a transaction: its first batch in a partition is taken only if the coordinator says so (KIP-890).

A batch that comes late, after its transaction's end, would otherwise begin one that nobody ever ends, or become part of
the next one. In versions before 12 the producer has added the partition to the transaction; from then on its writing
there does it.
"""

from collections.abc import Iterable
from typing import Protocol

from respool.broker.coordinators.remote_coordinators import TransactionalProducer
from respool.broker.coordinators.transaction_coordinators import Transactions
from respool.broker.handlers.support.client_errors import is_transient, to_producer
from respool.broker.partitions.partition import Partition
from respool.coordination.transactions.transaction_requests import TransactionVersion
from respool.log.partition_log import VerificationGuard
from respool.model.coordinator_errors import TransactionalIdAuthorizationFailed
from respool.model.errors import NotEnoughReplicas, RequestError
from respool.model.ids import ProducerId, TopicPartition
from respool.records.batch import RecordBatch
from respool.wire.codec import Request

IMPLICIT_ADD_VERSION = 12
# One transaction before it makes a guard void, and perhaps a marker written twice. A guard that is void at once, and
# always, is that of an epoch below one that somebody has asked with: asking for ever would keep all others waiting.
ASKED_MAX = 3


class GuardedWrite(Protocol):
    """A batch on its way into a partition; with a guard, it begins its transaction there."""

    partition: Partition | None
    batch: RecordBatch | None
    guard: VerificationGuard | None
    error: RequestError | None


def check_transactional_id(request: Request) -> None:
    """Raises:
    TransactionalIdAuthorizationFailed: the request names no transactional id, though its batches are transactional.
    """
    if not request.body.transactional_id:
        raise TransactionalIdAuthorizationFailed(
            "a transactional batch, and the request names no transactional id"
        )


async def verify(
    writes: Iterable[GuardedWrite], request: Request, transactions: Transactions
) -> None:
    """Ask the coordinator about all batches that begin a transaction; those that may not get the error."""
    is_implicit = request.version >= IMPLICIT_ADD_VERSION
    version = TransactionVersion.V2 if is_implicit else TransactionVersion.V1
    left = [one for one in writes if one.guard is not None and one.error is None]
    for _ in range(ASKED_MAX):
        if not left:
            return
        await _ask(left, request, transactions, version)
        # The coordinator may have kept us waiting until the transaction before was over, whose marker makes guards
        # void. In version 2 an epoch is of one transaction only, so it is safe to ask about the same batch again;
        # before, the batch might by now be taken for one of the next transaction.
        left = [one for one in left if is_implicit and one.error is None and _begins_anew(one)]
    for one in left:
        # Its last guard was never asked about. Old clients retry on this one.
        one.error = NotEnoughReplicas("the transaction's verification was void whenever it came")


async def _ask(
    writes: Iterable[GuardedWrite],
    request: Request,
    transactions: Transactions,
    version: TransactionVersion,
) -> None:
    # A request may name a partition several times; its batches then share one guard, and one answer.
    by_producer: dict[TransactionalProducer, dict[TopicPartition, list[GuardedWrite]]] = {}
    for write in writes:
        assert write.guard is not None
        assert write.partition is not None
        producer = TransactionalProducer(
            transactional_id=request.body.transactional_id,
            producer_id=ProducerId(write.guard.producer_id),
            producer_epoch=write.guard.producer_epoch,
        )
        guarded = by_producer.setdefault(producer, {})
        guarded.setdefault(write.partition.name, []).append(write)
    for producer, guarded in by_producer.items():
        errors = await transactions.admit_writes(producer, guarded, version=version)
        for name, same in guarded.items():
            if (error := errors[name]) is not None:
                for write in same:
                    write.error = to_producer(error, version=request.version)
                    _give_back(write, error)


def _begins_anew(write: GuardedWrite) -> bool:
    """Whether the guard has become void, and the batch has another one now that must be asked for."""
    assert write.partition is not None
    assert write.batch is not None
    void, write.guard = write.guard, None
    try:
        write.guard = write.partition.log.begin_verification(write.batch.header)
    except RequestError as error:
        write.error = error
    if write.guard is void and void is not None:
        # It was asked for twice.
        write.partition.cancel_verification(void)
    return write.guard is not None and write.guard is not void


def _give_back(write: GuardedWrite, error: RequestError) -> None:
    """Nobody comes with the guard any more. Where the batch may be tried again, its sequence is remembered by it."""
    if write.partition is not None and write.guard is not None and not is_transient(error):
        write.partition.cancel_verification(write.guard)
