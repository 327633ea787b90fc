"""DescribeTransactions (key 65): state, producer, start time and partitions of transactional ids."""

from collections.abc import Callable
from functools import partial
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from respool.broker.outcome import Reply
from respool.coordination.transactions.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    # Topics that the client may not describe are left out of the reply.
    rights=(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC.when("the transaction has partitions")),
)
async def describe_transactions(request: Request, broker: Broker) -> Reply:
    described = await ask_coordinators(
        broker.transactions.runtimes,
        request.body.transactional_ids,
        name_of=str,
        check=partial(broker.access.check, request, DESCRIBE_TRANSACTIONAL_ID),
        ask=lambda ids: DescribeTransactions(transactional_ids=ids),
        results_of=lambda reply: reply.transactions,
        refuse=lambda one, error: DescribedTransaction(transactional_id=one, error=error),
    )
    sees = partial(broker.access.sees, request, DESCRIBE_TOPIC)
    states = [_fields(one, sees) for one in described]
    return [encode_reply(request, {"throttle_time": 0, "transaction_states": states})]


def _fields(one: DescribedTransaction, sees: Callable[[str], bool]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, number in one.partitions:
        if sees(topic):
            topics.setdefault(topic, []).append(number)
    return {
        "error_code": error_code(one.error),
        "transactional_id": one.transactional_id,
        "transaction_state": "" if one.error else one.state.kafka_name,
        "transaction_timeout": one.timeout_ms,
        # As in Kafka, 0 for an unknown transactional id, and -1 for a transaction that has not begun.
        "transaction_start_time": 0 if one.error else one.started_at_ms,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }
