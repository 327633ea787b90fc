"""TxnOffsetCommit, in every version: KIP-447 from 3 on, the implicit add of KIP-890 from 5 on, topic ids in 6."""

from typing import Any
from uuid import UUID

import pytest

from broker.group_client import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID,
    commit,
    settled,
)
from broker.group_client import begin_to_load as begin_to_load_groups
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NEW,
    NOT_COORDINATOR,
    OFFSETS_TOPIC,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    UNSTABLE_OFFSET_COMMIT,
    Producer,
    begin_to_load,
    describe,
    fetch_offsets,
    start_with_transactions,
    state_of,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.TXN_OFFSET_COMMIT)
every_version = pytest.mark.parametrize("version", VERSIONS)
versions_with_add = pytest.mark.parametrize("version", VERSIONS[:5])
versions_without_add = pytest.mark.parametrize("version", VERSIONS[5:])
versions_with_member = pytest.mark.parametrize("version", VERSIONS[3:])
OFFSET_METADATA_TOO_LARGE = 12
STALE_MEMBER_EPOCH = 113
TOPIC_IDS_VERSION = 6


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def with_offsets_added(broker: RunningBroker, group_id: str = "drivers") -> Producer:
    producer = Producer(broker)
    assert producer.add_offsets(group_id) == 0
    return producer


def missing_code(version: int) -> int:
    return UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_VERSION else UNKNOWN_TOPIC


@every_version
@pytest.mark.parametrize("is_commit", [False, True])
def test_offsets_count_from_the_end_of_the_transaction_on(
    broker: RunningBroker, version: int, is_commit: bool
) -> None:
    commit(broker, "drivers", ("rides", 0, 3))
    producer = with_offsets_added(broker)

    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == [0]

    assert fetch_offsets(broker, "drivers", "rides", stable=False) == (0, 3)
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (UNSTABLE_OFFSET_COMMIT, -1)
    if is_commit:
        producer.commit()
    else:
        producer.abort()
    expected = (0, 7 if is_commit else 3)
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == expected
    assert fetch_offsets(broker, "drivers", "rides", stable=False) == expected


@versions_with_add
def test_without_add_offsets_to_txn_nothing_is_committed(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))

    code = TRANSACTION_ABORTABLE if version >= 4 else INVALID_TXN_STATE
    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == [code]

    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, -1)


@versions_without_add
def test_the_request_itself_makes_the_offsets_part_of_the_transaction(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker, speaks=NEW)

    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == [0]

    (topic,) = describe(broker).topics
    assert topic.topic == OFFSETS_TOPIC
    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


@every_version
def test_partitions_that_are_not_there_do_not_keep_the_others(
    broker: RunningBroker, version: int
) -> None:
    producer = with_offsets_added(broker)

    codes = producer.commit_offsets(
        "drivers", ("nowhere", 0, 1), ("rides", 0, 7), ("rides", 9, 1), version=version
    )

    assert codes == [missing_code(version), 0, UNKNOWN_TOPIC]
    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


@every_version
def test_with_no_partition_that_is_there_nothing_begins(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker, speaks=NEW)

    codes = producer.commit_offsets("drivers", ("nowhere", 0, 1), version=version)

    assert codes == [missing_code(version)]
    assert state_of(broker) == "Empty"


@every_version
def test_a_producer_of_an_older_epoch_is_fenced(broker: RunningBroker, version: int) -> None:
    producer = with_offsets_added(broker)
    zombie = producer.zombie()
    # First where the partition has seen nothing of it, then where a newer one has written.
    producer.init()
    refused = [INVALID_PRODUCER_EPOCH]
    assert zombie.commit_offsets("drivers", ("rides", 0, 1), version=version) == refused
    producer.write_offsets("drivers", ("rides", 0, 7))
    assert zombie.commit_offsets("drivers", ("rides", 0, 1), version=version) == refused

    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


@every_version
def test_who_is_not_known_commits_nothing(broker: RunningBroker, version: int) -> None:
    producer = with_offsets_added(broker)
    producer.id += 1
    refused = [INVALID_PRODUCER_ID_MAPPING]

    assert producer.commit_offsets("drivers", ("rides", 0, 1), version=version) == refused
    for unknown in ("nobody", ""):
        other = Producer(broker, unknown, init=False)
        assert other.commit_offsets("drivers", ("rides", 0, 1), version=version) == refused


@versions_with_member
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation_id": 99}, ILLEGAL_GENERATION),
        ({"member_id": "somebody", "group_instance_id": None}, UNKNOWN_MEMBER_ID),
        ({"member_id": "", "group_instance_id": None}, UNKNOWN_MEMBER_ID),
        ({"member_id": "somebody"}, FENCED_INSTANCE_ID),
        ({"group_instance_id": "bus"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_that_lost_its_share_is_fenced(
    broker: RunningBroker, version: int, changes: dict[str, Any], code: int
) -> None:
    (member,) = settled(broker, "drivers", 1, instance_id="taxi")
    who = {
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": "taxi",
    }
    producer = with_offsets_added(broker)

    refused = producer.commit_offsets(
        "drivers", ("rides", 0, 1), version=version, **{**who, **changes}
    )
    taken = producer.commit_offsets("drivers", ("rides", 0, 7), version=version, **who)

    assert (refused, taken) == ([code], [0])
    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


@versions_with_member
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    broker: RunningBroker, version: int
) -> None:
    producer = with_offsets_added(broker)

    codes = producer.commit_offsets(
        "drivers", ("rides", 0, 1), version=version, generation_id=3, member_id="somebody"
    )

    # Older producers know no other code for that.
    assert codes == [GROUP_ID_NOT_FOUND if version >= TOPIC_IDS_VERSION else ILLEGAL_GENERATION]


@versions_with_member
def test_an_older_epoch_of_a_next_generation_member_is_stale(
    broker: RunningBroker, version: int
) -> None:
    member = broker.ask(
        Api.CONSUMER_GROUP_HEARTBEAT,
        0,
        group_id="drivers",
        member_id="",
        member_epoch=0,
        rebalance_timeout=30_000,
        subscribed_topic_names=["rides"],
        topic_partitions=[],
    )
    producer = with_offsets_added(broker)

    def commit_at(epoch: int) -> list[int]:
        return producer.commit_offsets(
            "drivers",
            ("rides", 0, 1),
            version=version,
            generation_id=epoch,
            member_id=member.member_id,
        )

    stale = STALE_MEMBER_EPOCH if version >= TOPIC_IDS_VERSION else ILLEGAL_GENERATION
    assert commit_at(member.member_epoch - 1) == [stale]
    assert commit_at(member.member_epoch) == [0]


def test_offsets_of_a_deleted_topic_do_not_go_to_the_next_one_of_its_name(
    broker: RunningBroker,
) -> None:
    producer = with_offsets_added(broker)
    old = producer.topic_id("rides")
    broker.ask(Api.DELETE_TOPICS, 5, topic_names=["rides"], timeout=1000)
    broker.create_topic("rides")

    def commit_to(topic_id: UUID) -> list[int]:
        partition = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics = [{"topic_id": topic_id, "partitions": [partition]}]
        return producer.commit_offsets("drivers", version=TOPIC_IDS_VERSION, topics=topics)

    assert commit_to(old) == [UNKNOWN_TOPIC_ID]
    assert commit_to(UUID(int=0)) == [UNKNOWN_TOPIC_ID]
    assert commit_to(producer.topic_id("rides")) == [0]


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_clients_without_generations_are_not_fenced_by_them(
    broker: RunningBroker, version: int
) -> None:
    settled(broker, "drivers", 1)
    producer = with_offsets_added(broker)

    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == [0]


@every_version
def test_offsets_with_too_much_to_say_are_refused_alone(
    broker: RunningBroker, version: int
) -> None:
    producer = with_offsets_added(broker)

    def partition(number: int, metadata: str) -> dict[str, Any]:
        return {
            "partition_index": number,
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }

    partitions = [partition(0, "x" * 5_000), partition(1, "fine")]
    codes = producer.commit_offsets(
        "drivers",
        version=version,
        topics=[
            {"name": "rides", "topic_id": producer.topic_id("rides"), "partitions": partitions}
        ],
    )

    assert codes == [OFFSET_METADATA_TOO_LARGE, 0]
    producer.commit()
    assert fetch_offsets(broker, "drivers", "rides", 0, stable=True) == (0, -1)
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == (0, 7)


@every_version
def test_while_either_coordinator_loads_the_client_is_told(
    broker: RunningBroker, start_broker: StartBroker, version: int
) -> None:
    producer = with_offsets_added(broker)
    begin_to_load_groups(broker)
    # Old clients know only one of the two as passing (KAFKA-9656).
    loading = [COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else COORDINATOR_NOT_AVAILABLE]
    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == loading

    other = start_with_transactions(start_broker)
    producer = with_offsets_added(other)
    begin_to_load(other)
    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == loading


@every_version
def test_where_the_groups_partition_is_offline_its_coordinator_is_not_available(
    broker: RunningBroker, version: int
) -> None:
    producer = with_offsets_added(broker)
    number = broker.broker.groups.runtimes.partition_of("drivers")
    broker.take_offline(OFFSETS_TOPIC, number)

    codes = producer.commit_offsets("drivers", ("rides", 0, 7), version=version)

    assert codes == [COORDINATOR_NOT_AVAILABLE]


@every_version
def test_without_a_topic_of_groups_the_coordinator_is_elsewhere(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(transactions_topic_partitions=3)
    broker.create_topic("rides")
    broker.ask(Api.FIND_COORDINATOR, 2, key="bank", key_type=1)
    producer = Producer(broker)

    codes = producer.commit_offsets("drivers", ("rides", 0, 7), version=version)

    assert codes == [NOT_COORDINATOR]


@every_version
def test_an_epoch_that_somebody_invented_does_not_get_in_the_way_of_the_true_one(
    broker: RunningBroker, version: int
) -> None:
    producer = with_offsets_added(broker)
    ahead = producer.zombie()
    ahead.epoch += 1
    refused = [INVALID_PRODUCER_EPOCH]

    assert ahead.commit_offsets("drivers", ("rides", 0, 1), version=version) == refused
    assert producer.commit_offsets("drivers", ("rides", 0, 7), version=version) == [0]
