"""kafka-python's admin client: every call that a single node can serve."""

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import (
    ElectionNotNeededError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from support.broker_process import BrokerProcess
from support.kafka_python_client import KafkaPythonClient
from support.message import Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("kafka-python-admin")]


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def settings_of(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    """Only what was set for the topic itself: kafka-python leaves defaults out."""
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {name: entry["value"] for name, entry in described["topic"][topic].items()}


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    messages = [Message(value=b"%d" % number) for number in range(count)]
    KafkaPythonClient().write(broker.address, (topic, 0), messages)


def test_it_takes_the_broker_for_the_newest_kafka(admin: KafkaAdminClient) -> None:
    """It asks no broker for its version, but guesses it from single APIs; some calls depend on the guess."""
    assert admin.get_broker_version_data(1).broker_version >= (4, 3)


def test_created_topics_are_listed(admin: KafkaAdminClient) -> None:
    answer = admin.create_topics(
        [
            NewTopic("made", num_partitions=2, topic_configs={"retention.ms": "5000"}),
            NewTopic("made-by-default"),
            NewTopic("placed", replica_assignments={0: [1], 1: [1]}),
        ]
    )
    assert [topic["num_partitions"] for topic in answer["topics"]] == [2, 1, 2]
    assert {"made", "made-by-default", "placed"} <= set(admin.list_topics())


def test_a_topic_that_cannot_be_is_refused_with_its_reason(admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("there")])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("there")])
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("a/b")])
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics([NewTopic("odd", topic_configs={"no.such.setting": "1"})])


def test_topics_are_described_by_name(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("described", partitions=2)
    found, missing = admin.describe_topics([topic, "missing"])
    assert [one["partition_index"] for one in found["partitions"]] == [0, 1]
    assert {one["leader_id"] for one in found["partitions"]} == {1}
    assert missing["error_code"] == UnknownTopicOrPartitionError.errno


def test_topics_are_described_page_by_page(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("paged", partitions=5)
    seen: list[int] = []
    cursor = None
    while True:
        page = admin.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        (described,) = page["topics"]
        seen += [one["partition_index"] for one in described["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_the_cluster_is_this_node(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] == 1
    assert [(one["host"], one["port"]) for one in cluster["brokers"]] == [
        (broker.host, broker.port)
    ]


def test_log_dirs_tell_where_the_data_lies_and_how_much_it_is(
    admin: KafkaAdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("weighed")
    fill(broker, topic, 10)
    (described,) = admin.describe_log_dirs()
    (log_dir,) = described["log_dirs"]
    assert log_dir["log_dir"] == str(broker.data)
    sizes = {
        one["name"]: sum(partition["partition_size"] for partition in one["partitions"])
        for one in log_dir["topics"]
    }
    stored = sum(path.stat().st_size for path in broker.data.glob(f"{topic}-0/*.log"))
    assert sizes[topic] == stored > 0


def test_what_a_deployment_sets_for_kafka_is_accepted_and_shown_as_it_was_set(
    admin: KafkaAdminClient,
) -> None:
    configs = {
        "cleanup.policy": "",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "flush.messages": "1",
        "message.downconversion.enable": "false",
        "preallocate": "false",
        "remote.storage.enable": "false",
    }
    admin.create_topics([NewTopic("deployed", topic_configs=configs)])
    assert settings_of(admin, "deployed") == configs
    with pytest.raises(InvalidConfigurationError, match="needs an archive"):
        admin.create_topics([NewTopic("tiered", topic_configs={"remote.storage.enable": "true"})])


def test_settings_are_altered_and_reset(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("tuned")
    change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})
    admin.alter_configs([change])
    assert settings_of(admin, topic) == {"retention.ms": "5000"}
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    assert settings_of(admin, topic) == {}


def test_resources_with_settings_are_listed(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("resource")
    listed = admin.list_config_resources()
    assert topic in listed["topic"]
    assert listed["broker"] == ["1"]


def test_partitions_can_be_added_and_not_taken_away(
    admin: KafkaAdminClient, topics: Topics
) -> None:
    topic = topics.new("growing")
    admin.create_partitions({topic: NewPartitions(3)})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: NewPartitions(2)})


def test_deleted_records_move_the_start(
    admin: KafkaAdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("shortened")
    fill(broker, topic, 10)
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 4})[place]["low_watermark"] == 4
    start = admin.list_partition_offsets({place: OffsetSpec.EARLIEST})
    assert start[place].offset == 4
    received = KafkaPythonClient().read(broker.address, [(topic, 0)])[topic, 0]
    assert [one.offset for one in received] == list(range(4, 10))
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({place: 11})


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 1),
        (OffsetSpec.EARLIEST_LOCAL, 0),
    ],
)
def test_offsets_are_listed_for_each_wish(
    admin: KafkaAdminClient, topics: Topics, broker: BrokerProcess, spec: OffsetSpec, offset: int
) -> None:
    topic = topics.new("listed")
    messages = [Message(value=b"v", timestamp_ms=time_ms) for time_ms in (1_000, 5_000, 3_000)]
    KafkaPythonClient().write(broker.address, (topic, 0), messages)
    place = TopicPartition(topic, 0)
    assert admin.list_partition_offsets({place: spec})[place].offset == offset


def test_producers_of_a_partition_are_described(
    admin: KafkaAdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("written")
    fill(broker, topic, 3)
    place = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([place])[place].active_producers
    assert producer.last_sequence == 2


def test_deleted_topics_are_gone(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("doomed")
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_transactions_are_listed_and_described(
    admin: KafkaAdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("paid")
    producer = KafkaProducer(bootstrap_servers=broker.address, transactional_id="payer")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v").get(timeout=20)

    listed = [one for found in admin.list_transactions().values() for one in found]
    assert [(one.transactional_id, one.state.value) for one in listed] == [("payer", "Ongoing")]
    described = admin.describe_transactions(["payer"])["payer"]
    assert described.topic_partitions == {TopicPartition(topic, 0)}

    producer.commit_transaction()
    # The commit is answered before its markers are written.
    wait_until(
        lambda: not admin.describe_transactions(["payer"])["payer"].topic_partitions,
        "the markers are written",
    )
    producer.close()


def test_a_single_node_moves_no_replicas(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("settled", partitions=3)
    here, nowhere, still = (TopicPartition(topic, number) for number in range(3))
    answer = admin.alter_partition_reassignments({here: [1], nowhere: [2], still: None})
    assert answer == {
        here: None,
        nowhere: InvalidReplicationAssignmentError,
        still: NoReassignmentInProgressError,
    }
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments({topic: [0, 1]}) == {}


def test_a_leader_that_leads_need_not_be_elected(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.new("led")
    answer = admin.elect_leaders(0, {topic: [0]})
    (result,) = answer.replica_election_results
    assert result.partition_result[0].error_code == ElectionNotNeededError.errno


def test_features_are_described_and_keep_their_level(admin: KafkaAdminClient) -> None:
    described = admin.describe_features()
    assert {name: one["finalized"] for name, one in described.items()} == {
        "metadata.version": (30, 30),
        "group.version": (1, 1),
        "share.version": (1, 1),
        "transaction.version": (2, 2),
    }
    # Kind of update and level: a safe downgrade, then an upgrade to the level there is.
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"transaction.version": (2, 1)})
    admin.update_features({"transaction.version": (1, 2)})


def test_a_single_broker_is_the_quorums_leader(admin: KafkaAdminClient) -> None:
    described = admin.describe_metadata_quorum()
    (partition,) = described["topics"][0]["partitions"]
    assert (partition["error"], partition["leader_id"]) == (None, 1)
    assert [one["replica_id"] for one in partition["current_voters"]] == [1]


def test_there_are_no_acls_and_no_users(admin: KafkaAdminClient) -> None:
    every = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError, match="ACLs are off"):
        admin.describe_acls(every)
    assert admin.describe_user_scram_credentials() == {}
