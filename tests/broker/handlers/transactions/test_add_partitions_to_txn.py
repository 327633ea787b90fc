"""AddPartitionsToTxn: clients in versions 0 to 3, brokers and those who only verify from 4 on."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TOPIC,
    NOT_COORDINATOR,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    STATE_TOPIC,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC,
    Producer,
    begin_to_load,
    codes_by_partition,
    describe,
    let_pass,
    release,
    start_with_transactions,
    state_of,
    topics_of,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.ADD_PARTITIONS_TO_TXN)
clients_versions = pytest.mark.parametrize("version", VERSIONS[:4])
brokers_versions = pytest.mark.parametrize("version", VERSIONS[4:])
HOLD_MS = 1_000


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def asked(
    producer: Producer, *names: tuple[str, int], verify_only: bool = False, **changes: Any
) -> dict[str, Any]:
    fields = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "verify_only": verify_only,
        "topics": topics_of(names),
    }
    return {**fields, **changes}


def ask_as_broker(
    broker: RunningBroker, version: int, *transactions: dict[str, Any]
) -> list[dict[tuple[str, int], int]]:
    reply = broker.ask(Api.ADD_PARTITIONS_TO_TXN, version, transactions=transactions)
    assert reply.error_code == 0
    answered = [one.transactional_id for one in reply.results_by_transaction]
    assert answered == [one["transactional_id"] for one in transactions]
    return [codes_by_partition(one.topic_results) for one in reply.results_by_transaction]


def partitions_of(broker: RunningBroker) -> set[tuple[str, int]]:
    return {
        (topic.topic, number) for topic in describe(broker).topics for number in topic.partitions
    }


@clients_versions
def test_the_first_partition_begins_the_transaction(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    assert state_of(broker) == "Empty"

    codes = producer.add(("rides", 0), ("rides", 2), ("fares", 1), version=version)

    assert codes == {("rides", 0): 0, ("rides", 2): 0, ("fares", 1): 0}
    assert state_of(broker) == "Ongoing"
    assert partitions_of(broker) == set(codes)


@clients_versions
def test_partitions_named_again_are_part_of_it_once(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)

    producer.add(("rides", 0), version=version)
    producer.add(("rides", 0), ("rides", 0), ("rides", 1), version=version)

    (topic,) = describe(broker).topics
    assert sorted(topic.partitions) == [0, 1]


@clients_versions
def test_with_a_partition_that_is_not_there_none_is_added(
    broker: RunningBroker, version: int
) -> None:
    codes = Producer(broker).add(("rides", 0), ("rides", 7), ("nowhere", 0), version=version)

    assert codes == {
        ("rides", 0): OPERATION_NOT_ATTEMPTED,
        ("rides", 7): UNKNOWN_TOPIC,
        ("nowhere", 0): UNKNOWN_TOPIC,
    }
    assert state_of(broker) == "Empty"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, INVALID_PRODUCER_EPOCH),
        (1, INVALID_PRODUCER_EPOCH),
        (2, PRODUCER_FENCED),
        (3, PRODUCER_FENCED),
    ],
)
def test_a_producer_of_an_older_epoch_is_fenced(
    broker: RunningBroker, version: int, code: int
) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()

    assert zombie.add(("rides", 0), version=version) == {("rides", 0): code}
    assert state_of(broker) == "Empty"


@clients_versions
def test_another_producer_id_or_an_unknown_name_is_not_mapped(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.id += 1
    refused = {("rides", 0): INVALID_PRODUCER_ID_MAPPING}

    assert producer.add(("rides", 0), version=version) == refused
    for unknown in ("nobody", ""):
        other = Producer(broker, unknown, init=False)
        assert other.add(("rides", 0), version=version) == refused


@clients_versions
def test_a_coordinator_that_loads_or_is_not_there_says_so(
    broker: RunningBroker, start_broker: StartBroker, version: int
) -> None:
    producer = Producer(broker)
    begin_to_load(broker)
    assert producer.add(("rides", 0), version=version) == {
        ("rides", 0): COORDINATOR_LOAD_IN_PROGRESS
    }

    fresh = start_broker()
    fresh.create_topic("rides")
    stranger = Producer(fresh, init=False)
    assert stranger.add(("rides", 0), version=version) == {("rides", 0): NOT_COORDINATOR}


@clients_versions
def test_while_markers_are_written_it_waits_and_is_then_added(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0)
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))
    adding = broker.start(producer.add_(("rides", 1), version=version))
    assert not adding.done()

    release(broker)

    assert broker.finish(ending).error_code == 0
    assert broker.finish(adding) == {("rides", 1): 0}
    assert partitions_of(broker) == {("rides", 1)}


@clients_versions
def test_when_markers_take_too_long_the_client_tries_again(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0)
    broker.take_offline("rides", 0)
    assert producer.end(commit=True) == 0
    adding = broker.start(producer.add_(("rides", 1), version=version))

    let_pass(broker, HOLD_MS)

    assert broker.finish(adding) == {("rides", 1): CONCURRENT_TRANSACTIONS}


@clients_versions
def test_the_topic_of_transactions_cannot_be_part_of_one(
    broker: RunningBroker, version: int
) -> None:
    codes = Producer(broker).add((STATE_TOPIC, 0), ("rides", 0), version=version)

    assert codes == {(STATE_TOPIC, 0): INVALID_TOPIC, ("rides", 0): OPERATION_NOT_ATTEMPTED}
    assert state_of(broker) == "Empty"


@brokers_versions
def test_brokers_add_for_several_transactions_at_once(broker: RunningBroker, version: int) -> None:
    one, two = Producer(broker, "one"), Producer(broker, "two")

    codes = ask_as_broker(
        broker, version, asked(one, ("rides", 0)), asked(two, ("rides", 0), ("fares", 1))
    )

    assert codes == [{("rides", 0): 0}, {("rides", 0): 0, ("fares", 1): 0}]
    assert (state_of(broker, "one"), state_of(broker, "two")) == ("Ongoing", "Ongoing")


@brokers_versions
def test_one_transaction_that_waits_for_its_markers_does_not_keep_the_others(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "respool.broker.handlers.transactions.add_partitions_to_txn.HELD_S_MAX", 0.001
    )
    one, two = Producer(broker, "one"), Producer(broker, "two")
    one.write("rides", 0)
    broker.take_offline("rides", 0)
    assert one.end(commit=True) == 0

    codes = ask_as_broker(broker, version, asked(one, ("rides", 1)), asked(two, ("rides", 1)))

    assert codes == [{("rides", 1): CONCURRENT_TRANSACTIONS}, {("rides", 1): 0}]
    assert state_of(broker, "two") == "Ongoing"


@brokers_versions
def test_one_transaction_that_is_refused_does_not_keep_the_others(
    broker: RunningBroker, version: int
) -> None:
    one, two = Producer(broker, "one"), Producer(broker, "two")
    zombie = one.zombie()
    one.init()

    codes = ask_as_broker(
        broker,
        version,
        asked(zombie, ("rides", 0)),
        asked(two, ("rides", 0), ("rides", 9)),
        asked(two, ("rides", 1)),
        asked(two, ("rides", 1), transactional_id="nobody"),
    )

    assert codes == [
        {("rides", 0): PRODUCER_FENCED},
        {("rides", 0): OPERATION_NOT_ATTEMPTED, ("rides", 9): UNKNOWN_TOPIC},
        {("rides", 1): 0},
        {("rides", 1): INVALID_PRODUCER_ID_MAPPING},
    ]


@brokers_versions
def test_verify_only_tells_what_is_part_of_it_and_adds_nothing(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))

    (codes,) = ask_as_broker(
        broker, version, asked(producer, ("rides", 0), ("rides", 1), verify_only=True)
    )

    assert codes == {("rides", 0): 0, ("rides", 1): TRANSACTION_ABORTABLE}
    assert partitions_of(broker) == {("rides", 0)}


@brokers_versions
def test_verify_only_fences_and_does_not_wait(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()
    producer.write("rides", 0)
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))

    def verify(who: Producer, **changes: Any) -> dict[str, Any]:
        return asked(who, ("rides", 0), verify_only=True, **changes)

    asking = broker.start(
        broker.answer(
            Api.ADD_PARTITIONS_TO_TXN,
            version,
            transactions=[verify(zombie), verify(producer), verify(producer, producer_id=99)],
        )
    )
    release(broker, 1)

    codes = [
        codes_by_partition(one.topic_results)
        for one in broker.finish(asking).results_by_transaction
    ]
    assert codes == [
        {("rides", 0): PRODUCER_FENCED},
        {("rides", 0): CONCURRENT_TRANSACTIONS},
        {("rides", 0): INVALID_PRODUCER_ID_MAPPING},
    ]
    release(broker)
    assert broker.finish(ending).error_code == 0
