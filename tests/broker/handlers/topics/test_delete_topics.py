"""DeleteTopics, in every version: the topic meant, and no other."""

from typing import Any
from uuid import UUID

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.model.errors import UnknownTopicId
from respool.wire.api_table import Api

VERSIONS = versions(Api.DELETE_TOPICS)
UNKNOWN_TOPIC = 3
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100

every_version = pytest.mark.parametrize("version", VERSIONS)
BY_ID = 6


def ask(broker: RunningBroker, version: int, *names: str) -> Any:
    topics = [{"name": name, "topic_id": None} for name in names]
    return broker.ask(
        Api.DELETE_TOPICS, version, topic_names=names, topics=topics, timeout=1000
    ).responses


def ask_for(broker: RunningBroker, *asked: tuple[str | None, UUID | None]) -> Any:
    topics = [{"name": name, "topic_id": topic_id} for name, topic_id in asked]
    return broker.ask(Api.DELETE_TOPICS, BY_ID, topics=topics, timeout=1000).responses


@every_version
def test_a_deleted_topic_is_gone_and_its_name_free(
    running_broker: RunningBroker, version: int
) -> None:
    deleted = running_broker.create_topic("rides", partitions=2)
    running_broker.produce("rides", 1)

    (result,) = ask(running_broker, version, "rides")

    assert (result.name, result.error_code) == ("rides", 0)
    assert getattr(result, "topic_id", deleted.id) == deleted.id
    assert len(running_broker.broker.partitions) == 0
    assert running_broker.create_topic("rides").id != deleted.id
    assert running_broker.produce("rides") == 0


@every_version
def test_a_deleted_topic_stays_deleted_after_a_crash(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")
    ask(running_broker, version, "rides")
    running_broker.restart(crash=True)

    assert not running_broker.broker.image.topics
    assert not running_broker.disk.exists("rides-0")


@every_version
def test_unknown_topics_are_told_in_the_order_of_the_request(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("there")

    results = ask(running_broker, version, "no", "there", "a b")

    assert [(one.name, one.error_code) for one in results] == [
        ("no", UNKNOWN_TOPIC),
        ("there", 0),
        ("a b", UNKNOWN_TOPIC),
    ]
    if version >= 5:
        assert results[0].error_message
        assert results[1].error_message is None


@every_version
def test_a_topic_named_twice_stays(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    results = ask(running_broker, version, "rides", "rides")

    assert [(one.name, one.error_code) for one in results] == [("rides", INVALID_REQUEST)]
    assert "rides" in running_broker.broker.image.topics


def test_a_topic_is_deleted_by_its_id(running_broker: RunningBroker) -> None:
    topic = running_broker.create_topic("rides")
    nobody = UUID(int=9)

    known, unknown = ask_for(running_broker, (None, topic.id), (None, nobody))

    assert (known.error_code, known.name, known.topic_id) == (0, "rides", topic.id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (UNKNOWN_TOPIC_ID, None, nobody)
    assert not running_broker.broker.image.topics


def test_an_old_id_does_not_delete_the_new_topic_of_that_name(
    running_broker: RunningBroker,
) -> None:
    old = running_broker.create_topic("rides")
    ask_for(running_broker, (None, old.id))
    running_broker.create_topic("rides")

    (result,) = ask_for(running_broker, (None, old.id))

    assert result.error_code == UNKNOWN_TOPIC_ID
    assert "rides" in running_broker.broker.image.topics


def test_a_topic_named_by_name_and_by_id_stays(running_broker: RunningBroker) -> None:
    topic = running_broker.create_topic("rides")

    results = ask_for(running_broker, ("rides", None), (None, topic.id))

    assert [one.error_code for one in results] == [INVALID_REQUEST] * 2
    assert "rides" in running_broker.broker.image.topics


def test_a_topic_is_named_in_one_way_exactly(running_broker: RunningBroker) -> None:
    topic = running_broker.create_topic("rides")

    both, neither = ask_for(running_broker, ("rides", topic.id), (None, None))

    assert (both.error_code, both.name) == (INVALID_REQUEST, "rides")
    assert (neither.error_code, neither.name) == (INVALID_REQUEST, None)
    assert "rides" in running_broker.broker.image.topics


def test_a_topic_that_was_replaced_meanwhile_is_not_deleted(running_broker: RunningBroker) -> None:
    old = running_broker.create_topic("rides")
    ask_for(running_broker, (None, old.id))
    running_broker.create_topic("rides")

    with pytest.raises(UnknownTopicId):
        running_broker.run(running_broker.broker.topics.delete("rides", topic_id=old.id))

    assert running_broker.produce("rides") == 0


def test_a_disk_that_does_not_let_go_of_a_folder_does_not_keep_the_topic(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", partitions=3)
    running_broker.disk.faults.fail("rename", path="rides-0")

    (result,) = ask(running_broker, BY_ID, "rides")

    assert result.error_code == 0
    assert len(running_broker.broker.partitions) == 0
    running_broker.restart()
    assert not running_broker.broker.image.topics
    assert not any(running_broker.disk.exists(f"rides-{number}") for number in range(3))
