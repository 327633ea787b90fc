"""AddPartitionsToTxn requests to transaction coordinators on other brokers, batched.

A partition's leader verifies with the coordinator before it appends the first records of a transaction (KIP-890). In
version 2 of transactions that also adds the partition to the transaction. If the producer's previous transaction has
not ended, the coordinator says so after a short wait and the request is retried, so it delays the rest of its batch
briefly.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from respool.broker.peer_link import PeerLink
from respool.broker.peer_request_queue import PeerRequestQueue, Spawn
from respool.model.coordinator_errors import ConcurrentTransactions, CoordinatorNotAvailable
from respool.model.error_codes import UnknownError, error_for
from respool.model.errors import OperationNotAttempted, RequestError, UnknownTopicOrPartition
from respool.model.ids import BrokerId, ProducerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import API_TABLE, Api

VERSION = API_TABLE[Api.ADD_PARTITIONS_TO_TXN].version_max
# These requests may wait for markers, so markers must not queue behind them.
CHANNEL = 4
# Keeps a request well below the frame size limit.
QUESTIONS_PER_REQUEST = 500
# In total about as long as a coordinator makes its own clients wait.
TRIES_MAX = 15
PAUSE_S = 0.02

Errors = dict[TopicPartition, RequestError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """The producer of a transaction, as requests identify it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    producer: TransactionalProducer
    names: tuple[TopicPartition, ...]
    is_verifying_only: bool
    answer: "asyncio.Future[Errors]"

    def goes_with(self, other: "_Question") -> bool:
        """True if both fit into one transaction of a request, which may name a transactional id only once."""
        return (self.producer, self.is_verifying_only) == (other.producer, other.is_verifying_only)


class RemoteCoordinators:
    def __init__(self, link: PeerLink, *, spawn: Spawn) -> None:
        self._link = link
        self._queue: PeerRequestQueue[_Question] = PeerRequestQueue(
            self._ask, spawn=spawn, at_once_max=QUESTIONS_PER_REQUEST
        )

    async def verify(
        self, broker: BrokerId, producer: TransactionalProducer, names: tuple[TopicPartition, ...]
    ) -> Errors:
        """Verify that the partitions are part of the producer's transaction.

        This is never retried: by then another transaction of the same epoch may be open, and a late batch of the
        previous one would be taken for part of it.
        """
        return await self._put(broker, producer, names, is_verifying_only=True)

    async def add(
        self, broker: BrokerId, producer: TransactionalProducer, names: tuple[TopicPartition, ...]
    ) -> Errors:
        """Add the partitions to the transaction."""
        errors: Errors = {}
        for tries in range(TRIES_MAX):
            if tries:
                await asyncio.sleep(PAUSE_S)
            errors = await self._put(broker, producer, names, is_verifying_only=False)
            if not any(isinstance(one, ConcurrentTransactions) for one in errors.values()):
                break
        return errors

    async def _put(
        self,
        broker: BrokerId,
        producer: TransactionalProducer,
        names: tuple[TopicPartition, ...],
        *,
        is_verifying_only: bool,
    ) -> Errors:
        answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        question = _Question(
            producer=producer, names=names, is_verifying_only=is_verifying_only, answer=answer
        )
        self._queue.put(broker, question)
        return await answer

    async def _ask(self, broker: BrokerId, waiting: list[_Question]) -> Iterable[_Question]:
        asked: dict[str, list[_Question]] = {}
        left: list[_Question] = []
        for one in waiting:
            # A cancelled caller needs no answer.
            if not one.answer.done():
                together = asked.setdefault(one.producer.transactional_id, [one])
                if together[0] is not one:
                    (together if one.goes_with(together[0]) else left).append(one)
        try:
            codes = await self._codes(broker, asked) if asked else {}
        except PeerUnreachable as error:
            _answer_all(asked, CoordinatorNotAvailable(str(error)))
            return left
        except RequestError as error:
            _answer_all(asked, error)
            return left
        for transactional_id, questions in asked.items():
            told = codes.get(transactional_id, {})
            for one in questions:
                _answer(one, {name: _error(told.get(name), broker) for name in one.names})
        return left

    async def _codes(
        self, broker: BrokerId, asked: dict[str, list[_Question]]
    ) -> dict[str, dict[TopicPartition, int]]:
        reply = await self._link.ask(
            broker,
            Api.ADD_PARTITIONS_TO_TXN,
            VERSION,
            channel=CHANNEL,
            transactions=[_transaction(questions) for questions in asked.values()],
        )
        if (error := error_for(reply.error_code, by=broker)) is not None:
            raise error
        return {
            each.transactional_id: {
                TopicPartition(topic.name, one.partition_index): one.partition_error_code
                for topic in each.topic_results
                for one in topic.results_by_partition
            }
            for each in reply.results_by_transaction
        }


def _transaction(questions: list[_Question]) -> dict[str, Any]:
    producer = questions[0].producer
    topics: dict[str, dict[int, None]] = {}
    for one in questions:
        for topic, number in one.names:
            topics.setdefault(topic, {})[number] = None
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "verify_only": questions[0].is_verifying_only,
        "topics": [{"name": name, "partitions": list(each)} for name, each in topics.items()],
    }


def _error(code: int | None, broker: BrokerId) -> RequestError | None:
    if code is None:
        return CoordinatorNotAvailable(f"broker {broker} did not answer for the partition")
    error = error_for(code, by=broker)
    if isinstance(error, UnknownTopicOrPartition | OperationNotAttempted | UnknownError):
        # The partition exists. The coordinator will learn of it, or this broker will learn that it was deleted.
        return CoordinatorNotAvailable(f"broker {broker} does not know the partition: {code}")
    return error


def _answer_all(asked: dict[str, list[_Question]], error: RequestError) -> None:
    for questions in asked.values():
        for one in questions:
            _answer(one, dict.fromkeys(one.names, error))


def _answer(question: _Question, errors: Errors) -> None:
    if not question.answer.done():
        question.answer.set_result(errors)
