"""confluent-kafka's admin client: every call that a single node can serve, and how the others are refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("confluent-admin")]

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def admin(topics: Topics) -> AdminClient:
    return topics.admin


def outcome(futures: Mapping[Any, Any], key: Any) -> Any:
    return futures[key].result(TIMEOUT_S)


def refusal(futures: Mapping[Any, Any], key: Any) -> int:
    """The Kafka code the call was refused with."""
    with pytest.raises(KafkaException) as caught:
        futures[key].result(TIMEOUT_S)
    return int(caught.value.args[0].code())


def config_of(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = outcome(admin.describe_configs([resource]), resource)
    return {name: entry.value for name, entry in entries.items()}


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    messages = [Message(value=b"%d" % number) for number in range(count)]
    ConfluentClient().write(broker.address, (topic, 0), messages, idempotent=False)


def test_created_topics_are_listed_with_their_partitions(admin: AdminClient) -> None:
    futures = admin.create_topics([NewTopic("made", 3, 1), NewTopic("made-by-default")])
    assert outcome(futures, "made") is None
    assert outcome(futures, "made-by-default") is None
    listed = admin.list_topics(timeout=TIMEOUT_S)
    assert set(listed.topics["made"].partitions) == {0, 1, 2}
    assert set(listed.topics["made-by-default"].partitions) == {0}
    (node,) = listed.brokers.values()
    assert listed.topics["made"].partitions[0].leader == node.id


def test_one_request_creates_the_good_topics_and_says_what_is_wrong_with_the_others(
    admin: AdminClient,
) -> None:
    futures = admin.create_topics(
        [
            NewTopic("good", 1, 1),
            NewTopic("../../bad-name", 1, 1),
            NewTopic("too-many-replicas", 1, 3),
            NewTopic("no-partitions", 0, 1),
            NewTopic("odd-setting", 1, 1, config={"no.such.setting": "1"}),
            NewTopic("bad-setting", 1, 1, config={"retention.ms": "soon"}),
        ]
    )
    assert outcome(futures, "good") is None
    assert refusal(futures, "../../bad-name") == KafkaError.TOPIC_EXCEPTION
    assert refusal(futures, "too-many-replicas") == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(futures, "no-partitions") == KafkaError.INVALID_PARTITIONS
    assert refusal(futures, "odd-setting") == KafkaError.INVALID_CONFIG
    assert refusal(futures, "bad-setting") == KafkaError.INVALID_CONFIG
    assert refusal(admin.create_topics([NewTopic("good", 1, 1)]), "good") == (
        KafkaError.TOPIC_ALREADY_EXISTS
    )


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    outcome(admin.create_topics([NewTopic("imagined", 1, 1)], validate_only=True), "imagined")
    assert "imagined" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_deleted_topics_are_gone_and_cannot_be_deleted_twice(
    admin: AdminClient, topics: Topics
) -> None:
    topic = topics.new("doomed")
    outcome(admin.delete_topics([topic]), topic)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert refusal(admin.delete_topics([topic]), topic) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_can_be_added_and_not_taken_away(admin: AdminClient, topics: Topics) -> None:
    topic = topics.new("growing")
    outcome(admin.create_partitions([NewPartitions(topic, 4)]), topic)
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 4
    fewer = admin.create_partitions([NewPartitions(topic, 2)])
    assert refusal(fewer, topic) == KafkaError.INVALID_PARTITIONS


def test_topics_are_described_with_id_leader_and_replicas(
    admin: AdminClient, topics: Topics
) -> None:
    topic = topics.new("described", partitions=2)
    futures = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    described = outcome(futures, topic)
    assert described.name == topic
    assert str(described.topic_id)
    assert [one.id for one in described.partitions] == [0, 1]
    first = described.partitions[0]
    assert [node.id for node in first.replicas] == [node.id for node in first.isr] == [1]
    assert first.leader.id == 1
    assert described.authorized_operations


def test_the_cluster_is_this_node(admin: AdminClient, broker: BrokerProcess) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert described.cluster_id
    assert described.controller.id == 1
    assert [(node.host, node.port) for node in described.nodes] == [(broker.host, broker.port)]


def test_a_topics_settings_are_described_with_their_source(
    admin: AdminClient, topics: Topics
) -> None:
    topic = topics.new("settings", retention_ms=4000)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = outcome(admin.describe_configs([resource]), resource)
    assert entries["retention.ms"].value == "4000"
    assert not entries["retention.ms"].is_default
    assert entries["compression.type"].value == "producer"
    assert entries["compression.type"].is_default


def test_settings_are_changed_one_by_one(admin: AdminClient, topics: Topics) -> None:
    topic = topics.new("tuned", retention_ms=4000, segment_bytes=100_000)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.bytes", "123", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    outcome(admin.incremental_alter_configs([change]), change)
    config = config_of(admin, topic)
    assert config["retention.bytes"] == "123"
    assert config["retention.ms"] == "604800000"
    assert config["segment.bytes"] == "100000"


def test_a_wrong_change_of_settings_changes_nothing(admin: AdminClient, topics: Topics) -> None:
    topic = topics.new("steadfast")
    before = config_of(admin, topic)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("segment.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    futures = admin.incremental_alter_configs([change])
    assert refusal(futures, change) == KafkaError.INVALID_CONFIG
    assert config_of(admin, topic) == before


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_altering_all_settings_resets_those_not_named(admin: AdminClient, topics: Topics) -> None:
    topic = topics.new("altered", retention_ms=4000)
    change = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "9000"})
    outcome(admin.alter_configs([change]), change)
    config = config_of(admin, topic)
    assert (config["segment.bytes"], config["retention.ms"]) == ("9000", "604800000")


def test_the_brokers_settings_are_described(admin: AdminClient, broker: BrokerProcess) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    entries = outcome(admin.describe_configs([resource]), resource)
    assert entries["log.dirs"].value == str(broker.data)


def test_deleted_records_move_the_start(
    admin: AdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("shortened")
    fill(broker, topic, 10)
    wish = TopicPartition(topic, 0, 4)
    assert outcome(admin.delete_records([wish]), wish).low_watermark == 4
    received = ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]
    assert [one.offset for one in received] == list(range(4, 10))


def test_records_beyond_the_end_cannot_be_deleted(
    admin: AdminClient, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("kept")
    fill(broker, topic, 3)
    wish = TopicPartition(topic, 0, 4)
    assert refusal(admin.delete_records([wish]), wish) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_offsets_are_listed_for_start_end_time_and_largest_time(
    admin: AdminClient, topics: Topics, broker: BrokerProcess, isolation: IsolationLevel
) -> None:
    topic = topics.new("listed")
    times = [1_000, 5_000, 3_000]
    messages = [Message(value=b"v", timestamp_ms=time_ms) for time_ms in times]
    ConfluentClient().write(broker.address, (topic, 0), messages, idempotent=False)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        futures = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=isolation)
        (future,) = futures.values()
        found = future.result(TIMEOUT_S)
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (3, -1)
    assert offset(OffsetSpec.for_timestamp(2_000)) == (1, 5_000)
    assert offset(OffsetSpec.for_timestamp(6_000)) == (-1, -1)
    assert offset(OffsetSpec.max_timestamp()) == (1, 5_000)


def test_a_leader_that_leads_need_not_be_elected(admin: AdminClient, topics: Topics) -> None:
    led = TopicPartition(topics.new("led"), 0)
    unknown = TopicPartition("nobody", 0)
    answer = admin.elect_leaders(ElectionType.PREFERRED, [led, unknown]).result(TIMEOUT_S)
    codes = {one.topic: None if why is None else why.code() for one, why in answer.items()}
    assert codes == {
        led.topic: KafkaError.ELECTION_NOT_NEEDED,
        "nobody": KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S) == {}


def test_unclean_election_can_be_allowed_for_a_topic(admin: AdminClient, topics: Topics) -> None:
    topic = topics.new("risky", unclean_leader_election_enable="true")
    assert config_of(admin, topic)["unclean.leader.election.enable"] == "true"
    assert config_of(admin, topics.new("plain"))["unclean.leader.election.enable"] == "false"


def test_acls_are_refused_since_the_broker_authorizes_nothing(admin: AdminClient) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        "rides",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    disabled = KafkaError.SECURITY_DISABLED
    assert refusal(admin.create_acls([acl]), acl) == disabled
    assert refusal(admin.delete_acls([every]), every) == disabled
    # This client hides the error of the reply as a whole, Apache Kafka's too.
    assert admin.describe_acls(every).result(TIMEOUT_S) == []


def test_users_are_made_and_deleted_though_nobody_has_to_log_in(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}
    named = admin.describe_user_scram_credentials(["alice", "bob"])
    assert {refusal(named, one) for one in named} == {KafkaError.RESOURCE_NOT_FOUND}
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("eve", info, b"pw")])
    assert made["eve"].result(TIMEOUT_S) is None
    described = admin.describe_user_scram_credentials(["eve"])["eve"].result(TIMEOUT_S)
    (credential,) = described.scram_credential_infos
    assert (credential.mechanism, credential.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    deletion = UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_256)
    deleted = admin.alter_user_scram_credentials([deletion])
    assert deleted["eve"].result(TIMEOUT_S) is None
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}


def test_a_login_where_none_is_possible_fails_with_the_reason(broker: BrokerProcess) -> None:
    told: list[KafkaError] = []
    client = AdminClient(
        {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "error_cb": told.append,
            "log_level": 0,
        }
    )
    wait_until(lambda: client.poll(0.1) is not None and told, "the client reports an error")
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "Request not valid in current SASL state" in told[0].str()
