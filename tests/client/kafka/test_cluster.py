"""A cluster as a client sees it."""

from threading import Thread

import pytest

from respool.client.arrow.reading.read import retention_of
from respool.client.arrow.reading.read_plan import Retention
from respool.client.kafka.bootstrap import FIRST_CONTACT_MS
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    UnknownPartition,
    UnknownTopic,
    VersionUnsupported,
)
from respool.client.kafka.list_offsets import EARLIEST, LATEST, OffsetAt, leaders_of, offsets_for
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata, newer_of
from respool.wire.api_table import Api
from support.scripted_broker import HANG_UP, TOPIC, ScriptedBroker

METADATA = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def test_leaders_are_learnt_from_whichever_bootstrap_address_answers() -> None:
    with ScriptedBroker(partitions=2) as broker:
        broker.leader_epoch = 7
        with Cluster(f"127.0.0.1:1, {broker.address}") as cluster:
            seen = cluster.topic(TOPIC)
            assert seen.id == broker.topic_id
            assert dict(seen.leaders) == {n: PartitionLeader(broker=1, epoch=7) for n in range(2)}
            assert dict(cluster.brokers) == {1: ("127.0.0.1", broker.port)}
            assert leaders_of(cluster, [(TOPIC, 1), (TOPIC, 0)]) == {1: [(TOPIC, 0), (TOPIC, 1)]}
            with pytest.raises(UnknownPartition):
                seen.leader_of(2)


def test_a_topic_is_remembered_until_it_is_asked_for_anew() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address) as cluster:
        cluster.topic(TOPIC)
        broker.leader_epoch = 3
        assert cluster.topic(TOPIC).leaders[0] == PartitionLeader(broker=1, epoch=0)
        assert cluster.refresh(TOPIC).leaders[0] == PartitionLeader(broker=1, epoch=3)
        with pytest.raises(UnknownTopic):
            cluster.topic("nothing")


def test_a_broker_that_does_not_answer_is_asked_last_the_next_time() -> None:
    with ScriptedBroker() as broker, ScriptedBroker() as silent:
        address = silent.address
        silent.metadata_script += [HANG_UP, HANG_UP]
        with Cluster(f"{address},{broker.address}") as cluster:
            cluster.request_any(Api.METADATA, METADATA)
            cluster.request_any(Api.METADATA, METADATA)
        assert len(silent.metadata_script) == 1


def test_a_topic_that_only_some_brokers_know_yet_is_found() -> None:
    with ScriptedBroker() as behind, ScriptedBroker() as broker:
        behind.topic = "other"
        behind.others = [broker]
        with Cluster(behind.address) as cluster:
            assert cluster.topic(TOPIC).id == broker.topic_id
            with pytest.raises(UnknownTopic):
                cluster.topic("nothing")


def test_a_broker_that_is_behind_does_not_bring_an_older_leader_back() -> None:
    def seen(*epochs: int | None) -> TopicMetadata:
        leaders = {
            number: None if epoch is None else PartitionLeader(broker=epoch, epoch=epoch)
            for number, epoch in enumerate(epochs)
        }
        return TopicMetadata(name="rides", id=None, leaders=leaders)

    merged = newer_of(seen(5, 5, 5, 5), seen(4, 6, None))
    assert list(merged.leaders) == [0, 1, 2, 3]
    assert merged.leaders == seen(5, 6, None, 5).leaders


def test_an_idle_connection_that_ended_is_made_again_without_anybody_noticing() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address) as cluster:
        cluster.refresh(TOPIC)
        broker.hang_up()
        # The end of the connection is on its way; it is seen before or after the request is sent.
        assert cluster.retrying(lambda: cluster.refresh(TOPIC)).partitions == 1


def test_a_version_that_the_broker_does_not_speak_is_told() -> None:
    with ScriptedBroker() as broker:
        broker.versions[Api.METADATA] = (0, 9)
        with Cluster(broker.address) as cluster, pytest.raises(VersionUnsupported, match="0 to 9"):
            cluster.topic(TOPIC)


def test_a_closed_cluster_answers_nobody() -> None:
    with ScriptedBroker() as broker:
        cluster = Cluster(broker.address)
        cluster.topic(TOPIC)
        twin = cluster.twin()
        cluster.close()
        with pytest.raises(ClientClosed):
            cluster.refresh(TOPIC)
        with pytest.raises(ClientClosed):
            cluster.sleep(60)
        # Its twin is another one.
        with twin:
            assert twin.refresh(TOPIC).partitions == 1


def test_who_tries_again_is_woken_when_it_is_closed() -> None:
    caught: list[BaseException] = []
    cluster = Cluster("127.0.0.1:1", retry_ms=600_000)

    def ask() -> None:
        try:
            cluster.topic(TOPIC)
        except ClientClosed as error:
            caught.append(error)

    thread = Thread(target=ask)
    thread.start()
    cluster.interrupt()
    thread.join(10)
    cluster.close()
    assert len(caught) == 1


@pytest.mark.parametrize("address", ["", "localhost", "host:port", "a:1,", "host:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadArgument, match="bootstrap"):
        Cluster(address)


def test_addresses_in_a_list_are_refused_with_the_way_to_say_them() -> None:
    with pytest.raises(BadArgument, match="several with commas"):
        Cluster(["127.0.0.1:9092"])  # type: ignore[arg-type]


def test_a_broker_that_is_not_known_cannot_be_asked() -> None:
    with (
        Cluster("127.0.0.1:1") as cluster,
        pytest.raises(BrokerUnreachable, match="broker 5 is not"),
    ):
        cluster.connect(5)


def test_error_codes_are_told_by_their_names_also_those_yet_to_come() -> None:
    assert "reading failed: NOT_LEADER_OR_FOLLOWER (6)" in str(refused("reading", 6))
    assert refused("reading", 6).retriable
    assert not refused("reading", 29).retriable
    assert refused("reading", 9_999).code == 9_999


def test_offsets_are_found_at_the_ends_and_by_time() -> None:
    with ScriptedBroker(partitions=2) as broker, Cluster(broker.address) as cluster:
        broker.append(b"a", b"b", times=[100, 200])
        broker.append(b"c", times=[300])
        broker.log_start = 1

        def at(when: int) -> OffsetAt | None:
            return offsets_for(cluster, TOPIC, [1], when)[1]

        assert at(EARLIEST) == OffsetAt(offset=1, timestamp_ms=-1)
        assert at(LATEST) == OffsetAt(offset=3, timestamp_ms=-1)
        assert at(250) == OffsetAt(offset=2, timestamp_ms=300)
        assert at(301) is None
        with pytest.raises(UnknownPartition):
            offsets_for(cluster, TOPIC, [2], EARLIEST)


def test_how_messages_are_deleted_is_learnt_and_compaction_alone_deletes_none() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address) as cluster:
        broker.settings = {"retention.ms": "1000", "retention.bytes": "5"}
        assert retention_of(cluster, TOPIC) == Retention(ms=1000, bytes=5)
        broker.settings["cleanup.policy"] = "compact"
        assert retention_of(cluster, TOPIC) == Retention(ms=-1, bytes=-1)
        broker.settings["cleanup.policy"] = "compact,delete"
        assert retention_of(cluster, TOPIC) == Retention(ms=1000, bytes=5)
        broker.settings = {"retention.ms": "soon"}
        assert retention_of(cluster, TOPIC) is None


def test_a_request_that_was_broken_off_does_not_leave_its_reply_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ctrl_c(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with ScriptedBroker() as broker, Cluster(broker.address) as cluster:
        cluster.refresh(TOPIC)
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "receive_reply", ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                offsets_for(cluster, TOPIC, [0], LATEST)
        assert cluster.refresh(TOPIC).partitions == 1


def test_a_first_contact_is_given_up_sooner_than_brokers_that_were_there() -> None:
    with Cluster("127.0.0.1:1", retry_ms=60_000) as cluster:
        assert cluster.retry_timer().limit_ms == FIRST_CONTACT_MS
        assert cluster.retry_timer(500).limit_ms == 500
        cluster._metadata.brokers = {1: ("127.0.0.1", 1)}
        assert cluster.retry_timer().limit_ms == 60_000
