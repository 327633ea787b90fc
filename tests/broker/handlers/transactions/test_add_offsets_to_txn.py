"""AddOffsetsToTxn, in every version."""

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    OFFSETS_TOPIC,
    PRODUCER_FENCED,
    Producer,
    begin_to_load,
    describe,
    start_with_transactions,
    state_of,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.ADD_OFFSETS_TO_TXN)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


@every_version
def test_the_partition_of_the_groups_offsets_becomes_part_of_it(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)

    assert producer.add_offsets("drivers", version) == 0

    (topic,) = describe(broker).topics
    number = broker.broker.groups.runtimes.partition_of("drivers")
    assert (topic.topic, topic.partitions) == (OFFSETS_TOPIC, (number,))
    assert state_of(broker) == "Ongoing"


@every_version
def test_the_topic_of_groups_is_made_for_the_first_of_them(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(offsets_topic_partitions=3, transactions_topic_partitions=3)
    assert broker.ask(Api.FIND_COORDINATOR, 2, key="bank", key_type=1).error_code == 0
    producer = Producer(broker)
    assert OFFSETS_TOPIC not in broker.broker.image.topics

    assert producer.add_offsets("drivers", version) == 0

    assert len(broker.broker.image.topics[OFFSETS_TOPIC].partitions) == 3


@every_version
def test_without_room_for_the_topic_of_groups_nothing_begins(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(
        offsets_topic_partitions=3, transactions_topic_partitions=3, partitions_max=4
    )
    assert broker.ask(Api.FIND_COORDINATOR, 2, key="bank", key_type=1).error_code == 0
    producer = Producer(broker)

    assert producer.add_offsets("drivers", version) == COORDINATOR_NOT_AVAILABLE
    assert state_of(broker) == "Empty"


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, INVALID_PRODUCER_EPOCH), (1, INVALID_PRODUCER_EPOCH)]
    + [(version, PRODUCER_FENCED) for version in VERSIONS[2:]],
)
def test_a_producer_of_an_older_epoch_is_fenced(
    broker: RunningBroker, version: int, code: int
) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()

    assert zombie.add_offsets("drivers", version) == code
    assert state_of(broker) == "Empty"


@every_version
def test_who_is_not_known_begins_nothing(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    producer.id += 1

    assert producer.add_offsets("drivers", version) == INVALID_PRODUCER_ID_MAPPING
    for unknown in ("nobody", ""):
        other = Producer(broker, unknown, init=False)
        assert other.add_offsets("drivers", version) == INVALID_PRODUCER_ID_MAPPING


@every_version
def test_a_coordinator_that_loads_says_so(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    begin_to_load(broker)

    assert producer.add_offsets("drivers", version) == COORDINATOR_LOAD_IN_PROGRESS
