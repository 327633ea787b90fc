"""Produce inside a transaction: its first batch in a partition is taken only if the coordinator says so (KIP-890).

A batch that comes late, after its transaction's end, would otherwise begin one that nobody ever ends, or become part of
the next one. In versions before 12 the producer has added the partition to the transaction; from then on its writing
there does it.
"""

from collections.abc import Iterable
from typing import Protocol

from respool.broker.handlers.verification_errors import to_producer
from respool.broker.partition import Partition
from respool.broker.transactions import TransactionalProducer, Transactions
from respool.coordination.transaction_requests import TransactionVersion
from respool.log.verification import VerificationGuard
from respool.model.errors import RequestError, TransactionalIdAuthorizationFailed
from respool.model.ids import ProducerId, TopicPartition
from respool.wire.codec import Request

IMPLICIT_ADD_VERSION = 12


class GuardedWrite(Protocol):
    """A batch on its way into a partition; with a guard, it begins its transaction there."""

    partition: Partition | None
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
    # A request may name a partition several times; its batches then share one guard, and one answer.
    by_producer: dict[TransactionalProducer, dict[TopicPartition, list[GuardedWrite]]] = {}
    for write in writes:
        guard = write.guard
        if guard is None or write.error is not None or write.partition is None:
            continue
        producer = TransactionalProducer(
            transactional_id=request.body.transactional_id,
            producer_id=ProducerId(guard.producer_id),
            producer_epoch=guard.producer_epoch,
        )
        guarded = by_producer.setdefault(producer, {})
        guarded.setdefault(write.partition.name, []).append(write)
    is_implicit = request.version >= IMPLICIT_ADD_VERSION
    version = TransactionVersion.V2 if is_implicit else TransactionVersion.V1
    for producer, guarded in by_producer.items():
        errors = await transactions.admit_writes(producer, guarded, version=version)
        for name, same in guarded.items():
            if (error := errors[name]) is not None:
                for write in same:
                    write.error = to_producer(error, version=request.version)
