"""DescribeTransactions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REQUEST,
    NOT_COORDINATOR,
    TIMEOUT_MS,
    TRANSACTIONAL_ID_NOT_FOUND,
    Producer,
    begin_to_load,
    settle,
    start_with_transactions,
)
from broker.wire_client import encode_request
from respool.broker.dispatch import handle
from respool.wire.api_table import Api
from respool.wire.codec import decode_request


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def ask(broker: RunningBroker, *transactional_ids: str) -> list[Any]:
    reply = broker.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=transactional_ids)
    assert [one.transactional_id for one in reply.transaction_states] == list(transactional_ids)
    return list(reply.transaction_states)


def test_an_open_transaction_is_told_with_its_partitions_and_its_time(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    broker.clock.advance(1_234)
    began_at = datetime.fromtimestamp(broker.clock.now_ms() / 1000, tz=UTC)
    producer.add(("rides", 0), ("rides", 2), ("fares", 1))
    broker.clock.advance(10)

    (one,) = ask(broker, "bank")

    assert (one.error_code, one.transaction_state) == (0, "Ongoing")
    assert (one.producer_id, one.producer_epoch) == (producer.id, producer.epoch)
    assert one.transaction_timeout == timedelta(milliseconds=TIMEOUT_MS)
    assert one.transaction_start_time == began_at
    assert {(topic.topic, topic.partitions) for topic in one.topics} == {
        ("rides", (0, 2)),
        ("fares", (1,)),
    }


def test_a_transaction_that_has_ended_has_no_partitions(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides")
    producer.commit()

    (one,) = ask(broker, "bank")

    assert (one.error_code, one.transaction_state, one.topics) == (0, "CompleteCommit", ())


def test_between_decision_and_markers_it_is_prepared(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides")
    broker.take_offline("rides")
    producer.end(commit=False)
    settle(broker)

    (one,) = ask(broker, "bank")

    assert one.transaction_state == "PrepareAbort"
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("rides", (0,))]


def test_what_has_never_begun_has_no_time(broker: RunningBroker) -> None:
    Producer(broker)
    no_time = (-1).to_bytes(8, "big", signed=True)

    async def ask_raw() -> bytes:
        frame = encode_request(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["bank"])
        # kio refuses to read it.
        return b"".join(await handle(decode_request(frame), broker.broker))  # type: ignore[misc]

    reply = broker.run(ask_raw())
    assert b"Empty" + TIMEOUT_MS.to_bytes(4, "big") + no_time in reply


def test_ids_that_cannot_be_told_say_why_and_the_others_are_told(broker: RunningBroker) -> None:
    for name in ("one", "two"):
        Producer(broker, name).write("rides")

    one, unknown, empty, two, again = ask(broker, "one", "nobody", "", "two", "one")

    assert [each.error_code for each in (one, two, again)] == [0, 0, 0]
    assert (unknown.error_code, unknown.transaction_state) == (TRANSACTIONAL_ID_NOT_FOUND, "")
    assert empty.error_code == INVALID_REQUEST
    assert (unknown.producer_id, unknown.producer_epoch, unknown.topics) == (-1, -1, ())


def test_a_coordinator_that_loads_or_is_not_there_says_so(
    broker: RunningBroker, start_broker: StartBroker
) -> None:
    Producer(broker).write("rides")
    begin_to_load(broker)

    assert ask(broker, "bank")[0].error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert ask(start_broker(), "bank")[0].error_code == NOT_COORDINATOR
