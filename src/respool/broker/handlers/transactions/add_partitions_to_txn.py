"""AddPartitionsToTxn (key 24): a transaction is going to write to these partitions.

In versions 0 to 3 clients add partitions to one transaction. From version 4 on brokers send it, for several
transactions at once, and may only verify that the partitions belong to one (KIP-890). If any partition does not
exist, none is added.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import for_version
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import (
    CLUSTER_ACTION,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from respool.broker.outcome import Outcome, Reply
from respool.broker.partitions.mirror_validation import mirror_refusal
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    TransactionVersion,
    VerifyPartitions,
    VerifyPartitionsReply,
)
from respool.model.coordinator_errors import ConcurrentTransactions
from respool.model.errors import (
    InvalidTopic,
    OperationNotAttempted,
    PolicyViolation,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicPartition
from respool.model.internal_topics import TRANSACTION_STATE
from respool.wire.api_table import Api
from respool.wire.codec import ReplyTemplates, Request, encode_reply

SEVERAL_TRANSACTIONS_VERSION = 4
FENCED_CODE_VERSION = 2
# Brokers ask about many transactions at once. One that must wait for the end of the previous transaction delays the
# other answers for at most this long; the broker asks about it again.
HELD_S_MAX = 0.05

Errors = Mapping[TopicPartition, RequestError | None]


@serves(
    Api.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    rights=(
        WRITE_TRANSACTIONAL_ID.when("up to version 3"),
        WRITE_TOPIC.when("up to version 3"),
        CLUSTER_ACTION.when("from version 4 on"),
    ),
)
def add_partitions_to_txn(request: Request, broker: Broker) -> Outcome:
    if request.version >= SEVERAL_TRANSACTIONS_VERSION:
        # Clients send older versions.
        refusal = broker.access.refusal(request, CLUSTER_ACTION)
        if refusal is not None:
            fields = {"error_code": refusal.code, "results_by_transaction": ()}
            return [encode_reply(request, {"throttle_time": 0, **fields})]
        return _several(request, broker)
    body = request.body
    names = _names(body.v3_and_below_topics)
    refusal = broker.access.refusal(
        request, WRITE_TRANSACTIONAL_ID, body.v3_and_below_transactional_id
    )
    if refusal is not None:
        return _reply(request, body.v3_and_below_topics, dict.fromkeys(names, refusal))
    missing = _missing(broker, names, partial(broker.access.refusal, request, WRITE_TOPIC))
    if missing:
        return _reply(request, body.v3_and_below_topics, missing)

    def encode(answer: AddPartitionsReply | RequestError) -> Reply:
        error = answer if isinstance(answer, RequestError) else answer.error
        error = for_version(error, request, fenced_code_from=FENCED_CODE_VERSION)
        topics = body.v3_and_below_topics
        if error is None:
            # A producer adds the same partitions to transaction after transaction.
            return [
                _TEMPLATES.encode(request, topics, lambda: _fields(topics, dict.fromkeys(names)))
            ]
        return _reply(request, topics, dict.fromkeys(names, error))

    question = AddPartitions(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        partitions=names,
        version=TransactionVersion.V1,
    )
    return ask_coordinator(
        broker.transactions.runtimes, question.transactional_id, question, encode
    )


async def _several(request: Request, broker: Broker) -> Reply:
    transactions = request.body.transactions
    answers = [_ask_one(broker, one) for one in transactions]
    waiting = [one for one in answers if isinstance(one, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting, timeout=HELD_S_MAX)
    results = [
        {
            "transactional_id": one.transactional_id,
            "topic_results": _topic_results(one.topics, _errors(one, answer)),
        }
        for one, answer in zip(transactions, answers, strict=True)
    ]
    fields = {"throttle_time": 0, "error_code": 0, "results_by_transaction": results}
    return [encode_reply(request, fields)]


def _ask_one(broker: Broker, asked: Any) -> "Errors | asyncio.Future[Any]":
    names = _names(asked.topics)
    missing = _missing(broker, names)
    if missing:
        return missing
    producer = {
        "transactional_id": asked.transactional_id,
        "producer_id": asked.producer_id,
        "producer_epoch": asked.producer_epoch,
        "partitions": names,
    }
    question = (
        VerifyPartitions(**producer)
        if asked.verify_only
        else AddPartitions(**producer, version=TransactionVersion.V2)
    )
    try:
        return broker.transactions.runtimes.ask(asked.transactional_id, question)
    except RequestError as error:
        return dict.fromkeys(names, error)


def _errors(asked: Any, answer: "Errors | asyncio.Future[Any]") -> Errors:
    if not isinstance(answer, asyncio.Future):
        return answer
    error: RequestError | None
    if not answer.done():
        # The request keeps waiting and may take effect later, as if its reply were lost; a retry then succeeds.
        answer.add_done_callback(_look_away)
        error = ConcurrentTransactions(f"{asked.transactional_id} cannot be answered for yet")
    elif (raised := answer.exception()) is not None:
        assert isinstance(raised, RequestError), raised
        error = raised
    else:
        reply: VerifyPartitionsReply | AddPartitionsReply = answer.result()
        if isinstance(reply, VerifyPartitionsReply):
            return reply.errors
        error = reply.error
    return dict.fromkeys(_names(asked.topics), error)


def _look_away(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()


def _names(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    # Each partition once, even if the client repeats it.
    return tuple(
        dict.fromkeys(
            TopicPartition(topic.name, one) for topic in topics for one in topic.partitions
        )
    )


def _missing(
    broker: Broker,
    names: Iterable[TopicPartition],
    refusal_of: Callable[[str], RequestError | None] = lambda _: None,
) -> Errors | None:
    """Return an error for each partition if any cannot be added, else None."""
    errors: dict[TopicPartition, RequestError | None] = {}
    is_any_missing = False
    for name in names:
        errors[name] = refusal_of(name.topic) or _why_not(broker, name)
        is_any_missing = is_any_missing or errors[name] is not None
    if not is_any_missing:
        return None
    not_attempted = OperationNotAttempted("another partition of the request is not there")
    return {name: error or not_attempted for name, error in errors.items()}


def _why_not(broker: Broker, name: TopicPartition) -> RequestError | None:
    if name.topic == TRANSACTION_STATE:
        return InvalidTopic(f"{name.topic!r} is not written in transactions")
    try:
        broker.image.check_is_no_view(name.topic, instead="write to")
    except PolicyViolation as error:
        return error
    if broker.image.taker(name) is None:
        return UnknownTopicOrPartition(f"there is no partition {name}")
    if broker.image.topics[name.topic].config.respool_mirror:
        # Its transaction marker would have to be written there too, and only the mirror writes to this topic.
        return mirror_refusal(name)
    return None


def _reply(request: Request, topics: Iterable[Any], errors: Errors) -> Reply:
    return [encode_reply(request, _fields(topics, errors))]


def _fields(topics: Iterable[Any], errors: Errors) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "results_by_topic_v3_and_below": _topic_results(topics, errors),
    }


_TEMPLATES = ReplyTemplates()


def _topic_results(topics: Iterable[Any], errors: Errors) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": one,
                    "partition_error_code": error_code(errors[TopicPartition(topic.name, one)]),
                }
                for one in topic.partitions
            ],
        }
        for topic in topics
    ]
