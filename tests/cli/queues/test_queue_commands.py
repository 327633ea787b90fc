"""`respool queue` with a real broker: what people and programs see."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.client.queues.queue import Queue
from respool.model.retry.failure_headers import FailureRecord
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.message import Message

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class QueueStory:
    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self.broker = broker
        number = next(_numbers)
        self.group, self.topic = f"billing-{number}", f"orders-{number}"
        self.letters = f"dlq.{self.group}"
        broker.create_topic(self.topic, partitions=2)

    def run(self, *words: str, code: int = 0) -> str:
        ended = self._run("queue", *words, "--broker", self.broker.bootstrap)
        assert ended.code == code, ended.err
        self.err = ended.err
        return ended.out

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def create(self, *more: str) -> Any:
        return self.json("create", self.group, "--topic", self.topic, "--from", "earliest", *more)

    def send(self, *values: str, partition: int = 0, topic: str = "") -> None:
        messages = [Message(value=value.encode()) for value in values]
        place = (topic or self.topic, partition)
        ConfluentClient().write(self.broker.bootstrap, place, messages)

    def work(self) -> Queue:
        return Queue(self.topic, group=self.group, bootstrap=self.broker.bootstrap)

    def fail(self, value: str, *, group: str, topic: str | None = None) -> None:
        """A dead letter, as a broker writes it."""
        failure = FailureRecord(
            topic=topic or self.topic,
            partition=0,
            offset=7,
            group=group,
            deliveries=5,
            error_text="Offset rejected by client.",
        )
        letter = Message(value=value.encode(), headers=(("tag", b"x"), *failure.to_headers()))
        ConfluentClient().write(self.broker.bootstrap, (self.letters, 0), [letter])


@pytest.fixture
def story(run: Run, broker: Broker) -> QueueStory:
    return QueueStory(run, broker)


def test_created_group_starts_where_it_was_told_with_its_settings(story: QueueStory) -> None:
    story.send("one", "two")
    made = story.create(
        "--retry-delays", "1s,10m", "--attempts", "8", "--order", "key", "--lock", "45s"
    )
    assert made["settings"] == {
        "respool.share.retry.delays.ms": "1000,600000",
        "share.delivery.count.limit": "8",
        "respool.share.order": "key",
        "share.record.lock.duration.ms": "45000",
    }
    described = story.json("describe", story.group)
    assert described["settings"] == made["settings"]
    assert described["state"] == "Empty"
    assert described["members"] == []
    assert described["partitions"] == [
        {"topic": story.topic, "partition": 0, "start_offset": 0, "lag": 2},
        {"topic": story.topic, "partition": 1, "start_offset": 0, "lag": 0},
    ]
    with story.work() as queue:
        message = queue.receive(30)
        assert message is not None
        assert message.value == b"one"


def test_group_that_starts_at_the_end_does_not_get_what_was_there(story: QueueStory) -> None:
    story.send("old")
    story.json("create", story.group, "--topic", story.topic, "--from", "latest")
    story.send("new")
    with story.work() as queue:
        message = queue.receive(30)
        assert message is not None
        assert message.value == b"new"


def test_worker_and_what_is_left_are_described(story: QueueStory) -> None:
    story.create()
    story.send("one", "two")
    with story.work() as queue:
        message = queue.receive(30)
        assert message is not None
        message.accept()
        queue.flush()
        described = story.json("describe", story.group)
        (member,) = described["members"]
        assert {one["topic"] for one in member["partitions"]} == {story.topic}
        assert described["state"] == "Stable"
        assert described["lag"] == 1
        assert described["partitions"][0]["start_offset"] == 1
        (listed,) = [one for one in story.json("list")["queues"] if one["group"] == story.group]
        assert listed == {
            "group": story.group, "state": "Stable", "topics": [story.topic], "lag": 1,
        }  # fmt: skip


def test_describe_in_lines_of_one_shape(story: QueueStory) -> None:
    story.create("--attempts", "3")
    lines = [line.split("\t") for line in story.run("describe", story.group).splitlines()]
    assert lines == [
        [story.group, "state", "Empty"],
        [story.group, "partition", story.topic, "0", "0", "0"],
        [story.group, "partition", story.topic, "1", "0", "0"],
        [story.group, "setting", "share.delivery.count.limit", "3"],
    ]


def test_consumer_groups_are_no_queues_and_keep_their_names(story: QueueStory) -> None:
    with Cluster(story.broker.bootstrap) as cluster:
        commit_offsets(cluster, story.group, {(story.topic, 0): OffsetAndMetadata(0)})
    assert story.group not in {one["group"] for one in story.json("list")["queues"]}
    story.run("describe", story.group, code=ExitCode.NOT_FOUND)
    story.run("create", story.group, "--attempts", "3", code=ExitCode.FAILED)
    assert "there is a consumer group" in story.err


def test_what_is_there_already_is_not_created_again(story: QueueStory) -> None:
    story.run("create", story.group, "--attempts", "3")
    story.run("create", story.group, "--attempts", "4", code=ExitCode.FAILED)
    assert "settings of a share group" in story.err
    assert "respool config alter group" in story.err
    other = QueueStory(story._run, story.broker)
    other.create()
    other.run("create", other.group, "--attempts", "4", code=ExitCode.FAILED)
    assert "is a share group" in other.err


def test_setting_that_is_refused_creates_nothing(story: QueueStory) -> None:
    story.run(
        "create", story.group, "--dead-letters", story.letters, "--attempts", "99",
        code=ExitCode.USAGE,
    )  # fmt: skip
    assert "share.delivery.count.limit" in story.err
    with Cluster(story.broker.bootstrap) as cluster:
        assert story.letters not in cluster.refresh_all()
    story.create()


def test_topic_that_takes_no_dead_letters_is_refused(story: QueueStory) -> None:
    story.broker.create_topic(story.letters)
    story.run("create", story.group, "--dead-letters", story.letters, code=ExitCode.USAGE)
    assert "errors.deadletterqueue.group.enable=true" in story.err


def test_similar_name_is_proposed(story: QueueStory) -> None:
    story.create()
    story.run("describe", f"{story.group}x", code=ExitCode.NOT_FOUND)
    assert f"did you mean {story.group}?" in story.err


def test_peek_shows_the_oldest_of_each_partition_and_takes_none(story: QueueStory) -> None:
    story.create()
    story.send("one", "two", "three")
    story.send("other", partition=1)
    shown = story.json("peek", story.group, "--limit", "2")["messages"]
    assert [(one["partition"], one["offset"], one["value"]) for one in shown] == [
        (0, 0, "one"),
        (0, 1, "two"),
        (1, 0, "other"),
    ]
    with story.work() as queue:
        values: set[bytes | None] = set()
        while len(values) < 4:
            message = queue.receive(30)
            assert message is not None
            assert message.delivery_count == 1
            values.add(message.value)
            message.accept()
        queue.flush()
    assert story.json("peek", story.group)["messages"] == []
    assert story.run("peek", story.group) == ""
    assert "no messages" in story.err


def test_peek_of_a_topic_that_the_group_does_not_read_is_refused(story: QueueStory) -> None:
    story.create()
    story.run("peek", story.group, "--topic", "rides", code=ExitCode.NOT_FOUND)
    assert "has not read topic 'rides'" in story.err


def test_dead_letters_of_a_group_are_told_from_those_of_others(story: QueueStory) -> None:
    story.create("--dead-letters", story.letters)
    story.fail("mine", group=story.group)
    story.fail("foreign", group="others")
    (letter,) = story.json("dead", story.group)["letters"]
    assert letter["value"] == "mine"
    assert letter["origin"] == {"topic": story.topic, "partition": 0, "offset": 7}
    assert letter["attempt_count"] == 5


def test_redrive_brings_letters_back_to_their_topic_once(story: QueueStory) -> None:
    story.create("--dead-letters", story.letters)
    story.fail("mine", group=story.group)
    story.fail("foreign", group="others")
    (replay,) = story.json("redrive", story.group, "--yes")["replays"]
    assert replay["into"] == story.topic
    (message,) = story.json("peek", story.group)["messages"]
    assert message["value"] == "mine"
    names = [name for name, _ in message["headers"]]
    assert names[0] == "tag"
    assert not any(name.startswith("__dlq.") for name in names)
    story.run("redrive", story.group, "--yes")
    assert len(story.json("peek", story.group)["messages"]) == 1
    story.fail("later", group=story.group)
    story.run("redrive", story.group, "--yes")
    values = [one["value"] for one in story.json("peek", story.group)["messages"]]
    assert sorted(values) == ["later", "mine"]


def test_rejected_message_is_a_dead_letter_and_comes_back_with_all_attempts(
    story: QueueStory,
) -> None:
    story.create("--dead-letters", story.letters)
    story.send("bad")
    with story.work() as queue:
        message = queue.receive(30)
        assert message is not None
        message.reject()
        queue.flush()
        while not (found := story.json("dead", story.group)["letters"]):
            pass
        (letter,) = found
        assert letter["value"] == "bad"
        assert letter["origin"] == {"topic": story.topic, "partition": 0, "offset": 0}
        assert letter["attempt_count"] == 1
        story.run("redrive", story.group, "--yes")
        again = queue.receive(30)
        assert again is not None
        assert (again.value, again.delivery_count) == (b"bad", 1)
        again.accept()


def test_letters_of_a_topic_that_is_gone_are_counted(story: QueueStory) -> None:
    story.create("--dead-letters", story.letters)
    story.fail("mine", group=story.group, topic="gone")
    assert story.json("redrive", story.group, "--yes") == {"replays": []}
    assert "1 letter of gone left out" in story.err


def test_redrive_asks(story: QueueStory) -> None:
    story.create("--dead-letters", story.letters)
    story.fail("mine", group=story.group)
    story.run("redrive", story.group, code=ExitCode.USAGE)
    assert "add --yes" in story.err


def test_group_without_a_topic_for_dead_letters_is_told_how_to_name_one(
    story: QueueStory,
) -> None:
    story.create()
    story.run("dead", story.group, code=ExitCode.NOT_FOUND)
    assert "messages that fail too often end" in story.err
    assert "errors.deadletterqueue.topic.name" in story.err


def test_dlq_commands_know_share_groups(story: QueueStory, run: Run) -> None:
    story.create("--dead-letters", story.letters)
    listed = run("dlq", "list", "--broker", story.broker.bootstrap).out
    assert f"{story.group}\t0\t{story.letters}" in listed
