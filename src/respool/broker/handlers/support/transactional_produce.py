"""Produce inside a transaction: the coordinator verifies its first batch in each partition (KIP-890).

A batch that arrives late, after the end of its transaction, would otherwise begin a transaction that nobody ever ends,
or join the next one. Before version 12 the producer has already added the partition to the transaction; from version 12
on, writing to the partition adds it.
"""

from collections.abc import Iterable

from respool.broker.coordinators.remote_coordinators import TransactionalProducer
from respool.broker.coordinators.transaction_coordinators import TransactionCoordinators
from respool.broker.handlers.support.batch_stages import Admitted
from respool.broker.handlers.support.client_errors import is_transient, to_producer
from respool.broker.handlers.support.produced_batch import (
    IMPLICIT_ADD_VERSION,
    ProducedBatch,
)
from respool.coordination.transactions.transaction_requests import TransactionVersion
from respool.model.errors import NotEnoughReplicas, RequestError
from respool.model.ids import ProducerId, TopicPartition
from respool.wire.codec import Request

# A guard becomes void when the transaction before it ends, and again if that marker is written twice. A guard that is
# void every time belongs to an epoch older than one that has been verified: asking forever would block all others.
ASKED_MAX = 3


async def verify(
    writes: Iterable[ProducedBatch], request: Request, transactions: TransactionCoordinators
) -> None:
    """Ask the coordinator to verify all batches that begin a transaction; refuse those that it refuses."""
    is_implicit = request.version >= IMPLICIT_ADD_VERSION
    version = TransactionVersion.V2 if is_implicit else TransactionVersion.V1
    guarded = [one for one in writes if one.unverified is not None]
    left = guarded
    for _ in range(ASKED_MAX):
        if not left:
            return
        await _ask(left, request, transactions, version)
        if not is_implicit:
            return
        # The coordinator may have delayed its reply until the previous transaction was over, whose marker makes guards
        # void. In version 2 an epoch belongs to one transaction only, so it is safe to verify the same batch again;
        # before, the batch might by now be taken for part of the next transaction. Batches verified in an earlier round
        # are looked at too: while others were verified again, a marker may have made their guards void.
        left = [one for one in guarded if _gets_new_guard(one)]
    for one in left:
        # The last guard was never verified. For this code old clients retry.
        one.refuse(NotEnoughReplicas("the transaction's verification was void whenever it came"))


async def _ask(
    writes: Iterable[ProducedBatch],
    request: Request,
    transactions: TransactionCoordinators,
    version: TransactionVersion,
) -> None:
    # A request may name a partition several times; its batches then share one guard and one answer.
    by_producer: dict[TransactionalProducer, dict[TopicPartition, list[ProducedBatch]]] = {}
    for write in writes:
        admitted = write.unverified
        assert admitted is not None
        assert admitted.guard is not None
        producer = TransactionalProducer(
            transactional_id=request.body.transactional_id,
            # Its own id: with its log's, where it is an alias, the coordinator knows nothing.
            producer_id=ProducerId(admitted.producer_id),
            producer_epoch=admitted.guard.producer_epoch,
        )
        guarded = by_producer.setdefault(producer, {})
        guarded.setdefault(admitted.name, []).append(write)
    for producer, guarded in by_producer.items():
        errors = await transactions.admit_writes(producer, guarded, version=version)
        for name, same in guarded.items():
            if (error := errors[name]) is not None:
                for write in same:
                    _release_guard(write.unverified, error)
                    write.refuse(to_producer(error, version=request.version))


def _gets_new_guard(write: ProducedBatch) -> bool:
    """Get a new guard if the old one is void. Return True if the batch has a new guard that must be verified."""
    admitted = write.unverified
    if admitted is None:
        return False
    partition, void = admitted.partition, admitted.guard
    admitted.guard = None
    try:
        admitted.guard = partition.log.begin_verification(admitted.batch.header)
    except RequestError as error:
        write.refuse(error)
    if admitted.guard is void and void is not None:
        # `begin_verification` counted this request twice.
        partition.cancel_verification(void)
    return admitted.guard is not None and admitted.guard is not void


def _release_guard(admitted: Admitted | None, error: RequestError) -> None:
    """Cancel the guard, since its batch will not be written. After a transient error it stays, to keep the sequence."""
    if admitted is not None and admitted.guard is not None and not is_transient(error):
        admitted.partition.cancel_verification(admitted.guard)
