"""Metadata, in every version: who is asked for is who is answered for."""

from typing import Any
from uuid import UUID

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.METADATA)
UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
INVALID_PARTITIONS = 37
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100
NOT_ASKED = -2147483648

every_version = pytest.mark.parametrize("version", VERSIONS)
every_version_with_ids = pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 12])


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


def by_id(*ids: UUID) -> list[dict[str, Any]]:
    return [{"name": None, "topic_id": one} for one in ids]


def ask(broker: RunningBroker, version: int, topics: Any, **flags: bool) -> Any:
    flags = {"allow_auto_topic_creation": False, **flags}
    for asked in ("include_cluster_authorized_operations", "include_topic_authorized_operations"):
        flags.setdefault(asked, False)
    return broker.ask(Api.METADATA, version, topics=topics, **flags)


@every_version
def test_tells_the_broker_the_cluster_and_every_partition(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(broker_id=3, listen="127.0.0.1:9099", rack="r1")
    topic = broker.create_topic("rides", partitions=2)

    reply = ask(broker, version, named("rides"), allow_auto_topic_creation=True)

    (node,) = reply.brokers
    assert (node.node_id, node.host, node.port) == (3, "127.0.0.1", 9099)
    (told,) = reply.topics
    assert (told.error_code, told.name) == (0, "rides")
    assert [one.partition_index for one in told.partitions] == [0, 1]
    for partition in told.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 3)
        assert (partition.replica_nodes, partition.isr_nodes) == ((3,), (3,))
        assert getattr(partition, "leader_epoch", 0) == 0
        assert getattr(partition, "offline_replicas", ()) == ()
    assert getattr(reply, "controller_id", 3) == 3
    assert getattr(node, "rack", "r1") == "r1"
    assert (
        getattr(reply, "cluster_id", broker.broker.image.cluster_id)
        == broker.broker.image.cluster_id
    )
    assert getattr(told, "topic_id", topic.id) == topic.id
    assert getattr(told, "is_internal", False) is False


@every_version
def test_all_topics_are_asked_for_by_null_and_in_version_0_by_none(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("a")
    running_broker.create_topic("b")

    reply = ask(running_broker, version, [] if version == 0 else None)

    assert [topic.name for topic in reply.topics] == ["a", "b"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_no_topics_are_told_when_none_are_asked_for(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("a")

    assert ask(running_broker, version, []).topics == ()


@every_version
def test_an_unknown_topic_is_created_where_client_and_settings_allow(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(num_partitions=3)

    (told,) = ask(broker, version, named("new"), allow_auto_topic_creation=True).topics

    assert (told.error_code, told.name, len(told.partitions)) == (0, "new", 3)
    assert all(partition.leader_id == 1 for partition in told.partitions)
    assert broker.produce("new", 2) == 0


def test_a_deleted_topic_is_not_created_again_by_those_who_wait_to_see_it_gone(
    running_broker: RunningBroker,
) -> None:
    newest = VERSIONS[-1]

    def code_of(name: str) -> int:
        wish = named(name)
        return int(
            ask(running_broker, newest, wish, allow_auto_topic_creation=True).topics[0].error_code
        )

    running_broker.create_topic("rides")
    running_broker.run(running_broker.broker.topics.delete("rides"))

    assert code_of("rides") == UNKNOWN_TOPIC
    running_broker.clock.advance(9_999)
    assert code_of("rides") == UNKNOWN_TOPIC
    assert "rides" not in running_broker.broker.image.topics
    assert code_of("others") == 0
    running_broker.clock.advance(1)
    assert code_of("rides") == 0


def test_a_deleted_topic_is_created_at_once_where_a_client_asks_for_that(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides")
    running_broker.run(running_broker.broker.topics.delete("rides"))
    running_broker.create_topic("rides")

    (told,) = ask(
        running_broker, VERSIONS[-1], named("rides"), allow_auto_topic_creation=True
    ).topics
    assert told.error_code == 0


@every_version
def test_an_unknown_topic_is_not_created_where_the_settings_forbid_it(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(auto_create_topics=False)

    (told,) = ask(broker, version, named("new"), allow_auto_topic_creation=True).topics

    assert (told.error_code, told.name, told.partitions) == (UNKNOWN_TOPIC, "new", ())
    assert not broker.broker.image.topics


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_an_unknown_topic_is_not_created_for_a_client_that_does_not_want_it(
    running_broker: RunningBroker, version: int
) -> None:
    (told,) = ask(running_broker, version, named("new")).topics

    assert (told.error_code, told.name, told.partitions) == (UNKNOWN_TOPIC, "new", ())
    assert not running_broker.broker.image.topics


@every_version
@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250])
def test_a_name_that_cannot_be_is_refused_and_never_created(
    running_broker: RunningBroker, version: int, name: str
) -> None:
    (told,) = ask(running_broker, version, named(name), allow_auto_topic_creation=True).topics

    assert (told.error_code, told.name) == (INVALID_TOPIC, name)
    assert not running_broker.broker.image.topics


@every_version
def test_answers_come_in_the_order_of_the_request_and_once_each(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("b")
    asked = named("b", "new", "a b", "b")

    topics = ask(running_broker, version, asked, allow_auto_topic_creation=True).topics

    assert [(one.name, one.error_code) for one in topics] == [
        ("b", 0),
        ("new", 0),
        ("a b", INVALID_TOPIC),
    ]


@every_version
def test_a_full_broker_says_why_it_creates_no_topic(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(partitions_max=1)
    broker.create_topic("first")

    (told,) = ask(broker, version, named("second"), allow_auto_topic_creation=True).topics

    assert told.error_code == INVALID_PARTITIONS


@every_version_with_ids
def test_topics_are_found_by_id(running_broker: RunningBroker, version: int) -> None:
    topic = running_broker.create_topic("rides")
    nobody = UUID(int=5)

    known, unknown = ask(running_broker, version, by_id(topic.id, nobody)).topics

    assert (known.error_code, known.name, known.topic_id) == (0, "rides", topic.id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (UNKNOWN_TOPIC_ID, None, nobody)


@every_version_with_ids
def test_ids_are_never_created(running_broker: RunningBroker, version: int) -> None:
    (told,) = ask(
        running_broker, version, by_id(UUID(int=5)), allow_auto_topic_creation=True
    ).topics

    assert told.error_code == UNKNOWN_TOPIC_ID
    assert not running_broker.broker.image.topics


@every_version_with_ids
def test_a_topic_without_name_and_id_is_refused(
    running_broker: RunningBroker, version: int
) -> None:
    (told,) = ask(running_broker, version, [{"name": None, "topic_id": None}]).topics

    assert (told.error_code, told.name, told.topic_id) == (INVALID_REQUEST, None, None)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_10_and_11_have_a_field_for_ids_but_do_not_serve_them(
    running_broker: RunningBroker, version: int
) -> None:
    topic = running_broker.create_topic("rides")

    (told,) = ask(running_broker, version, by_id(topic.id)).topics

    assert (told.error_code, told.name) == (INVALID_REQUEST, "")


@every_version
def test_a_partition_that_is_offline_has_no_leader(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides", partitions=2)
    running_broker.take_offline("rides", 1)

    (told,) = ask(running_broker, version, named("rides")).topics

    sound, lost = told.partitions
    assert (sound.error_code, sound.leader_id) == (0, 1)
    assert (told.error_code, lost.error_code, lost.leader_id) == (0, LEADER_NOT_AVAILABLE, -1)
    assert (lost.replica_nodes, lost.isr_nodes) == ((1,), (1,))
    assert getattr(lost, "offline_replicas", (1,)) == (1,)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 8])
def test_operations_are_told_to_those_who_ask(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    quiet = ask(running_broker, version, named("rides"))
    asked = ask(
        running_broker,
        version,
        named("rides"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )

    assert quiet.topics[0].topic_authorized_operations == NOT_ASKED
    # Bits of read, write, create, delete, alter, describe, describe and alter configs.
    assert asked.topics[0].topic_authorized_operations == 0b1101_1111_1000
    if version <= 10:
        assert quiet.cluster_authorized_operations == NOT_ASKED
        assert asked.cluster_authorized_operations == 0b1_1111_1010_0000


def test_a_broker_that_crashed_leads_in_a_new_epoch(running_broker: RunningBroker) -> None:
    topic = running_broker.create_topic("rides")
    running_broker.restart(crash=True)

    (told,) = ask(running_broker, 13, named("rides")).topics

    assert told.topic_id == topic.id
    assert told.partitions[0].leader_epoch == 1


def test_two_clients_that_ask_for_a_new_topic_at_once_get_the_same(
    running_broker: RunningBroker,
) -> None:
    wish = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}

    first, second = running_broker.ask_at_once(
        *[(Api.METADATA, 13, {"topics": named("new"), **wish}) for _ in range(2)]
    )

    assert first.topics[0].topic_id == second.topics[0].topic_id
    assert (first.topics[0].error_code, second.topics[0].error_code) == (0, 0)


def test_a_partition_that_is_not_open_yet_has_no_leader(running_broker: RunningBroker) -> None:
    running_broker.offload.hold()
    creating = running_broker.start(running_broker.broker.topics.create("slow"))

    (told,) = ask(running_broker, 13, named("slow")).topics
    assert [one.error_code for one in told.partitions] == [LEADER_NOT_AVAILABLE]

    running_broker.offload.release()
    running_broker.finish(creating)
    (told,) = ask(running_broker, 13, named("slow")).topics
    assert [one.error_code for one in told.partitions] == [0]
