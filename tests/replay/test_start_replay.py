"""`respool.start_replay` against a real broker in this process."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer

import respool
from respool.client.kafka.cluster import Cluster
from respool.replay import start_replay as starting
from respool.replay.audit import AuditEntry, AuditLog
from respool.replay.errors import (
    CopiedAlready,
    GroupTaken,
    InvalidReplay,
    ReplayFailed,
    ReplayNotFound,
    ReplayUnreachable,
)
from respool.replay.topic_copy import begin_copy
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.message import Message, Received
from support.waiting import wait_until

START_MS = 1_763_107_200_000
WAIT_SECONDS = 60
ADDED = {"respool-replay-id", "respool-source", "respool-replay-number"}

REPLAYING_PROGRAM = """
import sys, respool
bootstrap, topic, into = sys.argv[1:]
with respool.start_replay(topic, since="earliest", into=into, pace="400/s", bootstrap=bootstrap) as replay:
    print(replay.id, flush=True)
    replay.wait()
"""


WITHOUT_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pyarrow", "numba", "confluent_kafka", "typer", "rich", "hypothesis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import respool
assert issubclass(respool.ReplayError, Exception)
print(respool.start_replay.__module__, [one for one in sys.modules if one.startswith("respool.cli.")])
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"topic": {"retention.ms": "-1"}}) as broker:
        yield broker


def write(
    broker: Broker, *, partitions: int = 2, count: int = 100, topic: str | None = None
) -> str:
    """A topic of messages a second apart; keys and a header repeat."""
    name = topic or broker.new_topic("rides", partitions=partitions)
    for partition in range(partitions):
        messages = [
            Message(
                key=b"key-%d" % (number % 7),
                value=b"%d" % number,
                headers=(("type", b"refund" if number % 5 == 0 else b"fare"), ("n", b"1")),
                timestamp_ms=START_MS + 1000 * number,
            )
            for number in range(partition, count, partitions)
        ]
        ConfluentClient().write(broker.bootstrap, (name, partition), messages)
    return name


def read(broker: Broker, topic: str, partitions: int = 2) -> list[Received]:
    places = [(topic, number) for number in range(partitions)]
    found = ConfluentClient().read(broker.bootstrap, places)
    return [message for place in places for message in found[place]]


def values(broker: Broker, topic: str, partitions: int = 2) -> list[int]:
    return [int(message.value or b"") for message in read(broker, topic, partitions)]


def replay(broker: Broker, topic: str | None = None, **arguments: Any) -> respool.Replay:
    return respool.start_replay(topic, bootstrap=broker.bootstrap, **arguments)


def test_a_copy_has_everything_and_says_how_far_it_is(broker: Broker) -> None:
    topic = write(broker)
    with replay(broker, topic, since="earliest", into=f"{topic}-copy") as running:
        entry = running.wait(WAIT_SECONDS)
    assert (entry.state, entry.messages, entry.source) == ("done", 100, topic)
    assert not running.is_running
    assert not running.is_resumed
    progress = running.progress
    assert (progress.done, progress.total, progress.copied) == (100, 100, 100)
    assert progress.timestamp_ms == START_MS + 99_000
    assert progress.messages_per_second > 0
    originals, copies = read(broker, topic), read(broker, f"{topic}-copy")
    assert [(one.key, one.value, one.timestamp_ms) for one in copies] == [
        (one.key, one.value, one.timestamp_ms) for one in originals
    ]
    for original, copy in zip(originals, copies, strict=True):
        assert tuple(one for one in copy.headers if one[0] not in ADDED) == original.headers
    with Cluster(broker.bootstrap) as cluster:
        assert AuditLog(cluster).entries()[running.id] == running.entry


def test_times_are_given_as_elsewhere_in_the_client(broker: Broker) -> None:
    topic = write(broker)
    begin = datetime.fromtimestamp(START_MS / 1000 + 20, UTC)
    ago = datetime.now(UTC) - (begin + timedelta(seconds=30))
    for number, until in enumerate((begin + timedelta(seconds=30), ago, "2025-11-14T08:00:50Z")):
        into = f"{topic}-{number}"
        replay(broker, topic, since=begin, until=until, into=into).wait(WAIT_SECONDS)
        assert sorted(values(broker, into)) in (list(range(20, 50)), list(range(20, 51)))


def test_keys_and_headers_select_messages(broker: Broker) -> None:
    topic = write(broker)
    for into, selection, wanted in (
        ("keys", {"keys": ["key-1", b"key-4"]}, lambda n: n % 7 in {1, 4}),
        ("header", {"headers": {"type": "refund"}}, lambda n: n % 5 == 0),
        ("any", {"headers": {"type": ["refund", b"fare"]}}, lambda n: True),
        ("all", {"headers": {"type": "refund", "n": "2"}}, lambda n: False),
        ("both", {"keys": "key-1", "headers": {"type": "refund"}}, lambda n: n % 35 == 15),
    ):
        name = f"{topic}-{into}"
        arguments: dict[str, Any] = {**selection, "into": name, "compression": "zstd"}
        entry = replay(broker, topic, since="earliest", **arguments).wait(WAIT_SECONDS)
        assert entry.state == "done"
        assert sorted(values(broker, name)) == [n for n in range(100) if wanted(n)]


def test_the_same_replay_is_not_repeated_unless_asked_for(broker: Broker) -> None:
    topic = write(broker, count=10)
    arguments: dict[str, Any] = {"since": "earliest", "into": f"{topic}-copy"}
    first = replay(broker, topic, **arguments)
    assert first.wait(WAIT_SECONDS).state == "done"
    second = replay(broker, topic, **arguments)
    assert second.was_done
    assert second.wait() == first.entry
    assert (second.progress.done, second.progress.copied) == (10, 10)
    third = replay(broker, topic, again=True, **arguments)
    assert not third.was_done
    assert third.wait(WAIT_SECONDS).id != first.id
    assert len(values(broker, f"{topic}-copy")) == 20


def test_two_starts_at_the_same_moment_make_one_copy(broker: Broker) -> None:
    topic = write(broker, count=500)
    into = f"{topic}-copy"
    # Both have read the audit log, and found no such replay, before one of them writes to it.
    have_read = threading.Barrier(2)

    def begin_together(*given: Any, **named: Any) -> AuditEntry:
        have_read.wait(WAIT_SECONDS)
        return begin_copy(*given, **named)

    def begin() -> respool.Replay:
        return replay(broker, topic, since="earliest", until="now", into=into)

    with (
        patch.object(starting, "begin_copy", begin_together),
        ThreadPoolExecutor(max_workers=2) as threads,
    ):
        both = [one.result() for one in [threads.submit(begin) for _ in range(2)]]
    assert [one.wait(WAIT_SECONDS).state for one in both] == ["done", "done"]
    assert len({one.id for one in both}) == 1
    assert sorted(one.is_resumed for one in both) == [False, True]
    assert sorted(values(broker, into)) == list(range(500))
    with Cluster(broker.bootstrap) as cluster:
        found = [one for one in AuditLog(cluster).in_log_order() if one.target == into]
    assert [one.id for one in found] == [both[0].id]


def test_a_finished_replay_whose_range_has_grown_is_refused(broker: Broker) -> None:
    topic = write(broker, partitions=1, count=10)
    arguments: dict[str, Any] = {"since": "earliest", "into": f"{topic}-copy"}
    first = replay(broker, topic, **arguments)
    assert first.wait(WAIT_SECONDS).state == "done"
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    late = Message(key=b"key", value=b"10", timestamp_ms=now_ms)
    ConfluentClient().write(broker.bootstrap, (topic, 0), [late])
    # Its timestamp must be in the past for a range that ends now.
    wait_until(lambda: datetime.now(UTC).timestamp() * 1000 > now_ms + 1, "a later millisecond")
    with pytest.raises(
        CopiedAlready, match=r"^10 of the 11 messages in this range were replayed"
    ) as raised:
        replay(broker, topic, **arguments)
    assert isinstance(raised.value, respool.ReplayError)
    assert f"since='{first.entry.to_text}'" in str(raised.value)
    assert "--again" in str(raised.value)
    assert values(broker, f"{topic}-copy", 1) == list(range(10))
    continued = {**arguments, "since": first.entry.to_text}
    assert replay(broker, topic, **continued).wait(WAIT_SECONDS).messages == 1
    assert values(broker, f"{topic}-copy", 1) == list(range(11))
    assert replay(broker, topic, again=True, **arguments).wait(WAIT_SECONDS).messages == 11


def test_stopped_and_resumed_by_its_id_it_filters_as_it_was_begun(broker: Broker) -> None:
    topic = write(broker, count=700)
    into = f"{topic}-copy"
    with replay(
        broker, topic, since="earliest", into=into, headers={"type": "refund"}, pace="100/s"
    ) as running:
        wait_until(lambda: running.progress.copied >= 5, "some messages are copied")
    entry = running.entry
    assert entry.state == "interrupted"
    assert running.is_interrupted
    assert 5 <= entry.messages < 140
    with pytest.raises(InvalidReplay, match="begun with other headers"):
        replay(broker, resume=running.id, headers={"type": "fare"})
    with pytest.raises(InvalidReplay, match="begun with other keys"):
        replay(broker, resume=running.id, keys=["key-1"])
    resumed = replay(broker, resume=running.id)
    assert resumed.is_resumed
    assert resumed.wait(WAIT_SECONDS).messages == 140
    assert sorted(values(broker, into)) == list(range(0, 700, 5))
    done = replay(broker, resume=running.id)
    assert done.was_done
    assert done.wait().state == "done"


def test_a_killed_process_and_one_that_resumes_copy_each_message_once(broker: Broker) -> None:
    topic = write(broker, count=2_000)
    into = broker.new_topic("killed", partitions=3)
    for _ in range(2):
        before = len(read(broker, into, 3))
        process = subprocess.Popen(
            [sys.executable, "-c", REPLAYING_PROGRAM, broker.bootstrap, topic, into],
            stdout=subprocess.PIPE,
        )
        wait_until(lambda: len(read(broker, into, 3)) > before + 20, "some messages are copied")  # noqa: B023
        assert process.poll() is None
        process.kill()
        assert process.stdout is not None
        replay_id = process.stdout.read().decode().strip()
        process.communicate()
    resumed = replay(broker, topic, since="earliest", into=into)
    assert (resumed.is_resumed, resumed.id) == (True, replay_id)
    assert resumed.wait(WAIT_SECONDS).messages == 2_000
    assert sorted(values(broker, into, 3)) == list(range(2_000))


def test_paused_it_sends_nothing_and_unpaused_it_continues(broker: Broker) -> None:
    topic = write(broker, count=600)
    into = broker.new_topic("paused", partitions=2)
    with replay(broker, topic, since="earliest", into=into, pace="200/s") as running:
        wait_until(lambda: running.progress.copied >= 10, "some messages are copied")
        running.pause()
        assert running.is_paused
        wait_until(
            lambda: len(read(broker, into)) == running.progress.copied, "all batches are known"
        )
        ends = len(read(broker, into))
        for _ in range(3):
            # Each read takes longer than a message at this pace.
            assert len(read(broker, into)) == ends < 600
        running.unpause()
        assert not running.is_paused
        assert running.wait(WAIT_SECONDS).state == "done"
    assert sorted(values(broker, into)) == list(range(600))


def test_a_paused_replay_can_be_stopped(broker: Broker) -> None:
    topic = write(broker, count=600)
    with replay(broker, topic, since="earliest", into=f"{topic}-copy", pace="20/s") as running:
        running.pause()
        running.stop()
        assert running.wait(WAIT_SECONDS).state == "interrupted"


def test_wait_does_not_wait_longer_than_it_is_asked_to(broker: Broker) -> None:
    topic = write(broker, count=600)
    with replay(broker, topic, since="earliest", into=f"{topic}-copy", pace="20/s") as running:
        assert not running.join(0.01)
        with pytest.raises(TimeoutError, match=r"still running after 0\.01 seconds"):
            running.wait(0.01)


def test_a_failure_is_raised_where_it_is_waited_for_and_recorded(broker: Broker) -> None:
    topic = write(broker, count=10)
    into = broker.new_topic("short", partitions=2, retention_ms=1000)
    failed = replay(broker, topic, since="earliest", into=into)
    with pytest.raises(ReplayFailed, match="would be gone at once") as raised:
        failed.wait(WAIT_SECONDS)
    assert f"--resume {failed.id}" in str(raised.value)
    with pytest.raises(respool.ReplayError), failed:
        pass
    # An exception of the block is not replaced.
    with pytest.raises(ZeroDivisionError), failed:
        raise ZeroDivisionError
    with Cluster(broker.bootstrap) as cluster:
        entry = AuditLog(cluster).entries()[failed.id]
    assert (entry.state, "gone at once" in entry.outcome) == ("failed", True)


def test_for_a_group_nothing_is_copied_and_its_offsets_say_where_it_ends(broker: Broker) -> None:
    topic = write(broker, partitions=1, count=40)
    until = datetime.fromtimestamp(START_MS / 1000 + 30, UTC)
    group = f"{topic}-check"
    begun = replay(broker, topic, since="2025-11-14T08:00:10Z", until=until, group=group)
    assert begun.wait().state == "done"
    assert (begun.messages_left, begun.is_running, begun.was_done) == (20, False, False)
    assert begun.spans == {0: (10, 30)}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, timeout=WAIT_SECONDS)
    assert message.offset() == 10
    with pytest.raises(GroupTaken, match="has 1 member"):
        replay(broker, topic, since="2025-11-14T08:00:10Z", until=until, group=group, again=True)
    consumer.close()
    with pytest.raises(GroupTaken, match="has committed offsets already"):
        replay(broker, topic, since="earliest", group=group)
    assert replay(broker, topic, since="2025-11-14T08:00:10Z", until=until, group=group).was_done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "topic= is missing"),
        ({"topic": "rides"}, "since= is missing"),
        ({"topic": "rides", "since": "earliest"}, "either into= or group="),
        ({"topic": "r", "since": "earliest", "into": "a", "group": "b"}, "either into= or group="),
        ({"topic": "r", "since": "earliest", "group": "g", "keys": ["a"]}, "keys= is for into="),
        ({"topic": "r", "since": "earliest", "group": "g", "pace": "1x"}, "pace= is for into="),
        (
            {"topic": "r", "since": "earliest", "group": "g", "headers": {"a": "b"}},
            "headers= is for into=, and contradicts group=",
        ),
        ({"resume": "aa", "topic": "r"}, "resume= .* contradicts topic="),
        ({"resume": "aa", "until": "now"}, "contradicts until="),
        ({"resume": "aa", "again": True}, "contradicts again="),
        ({"topic": "r", "since": "soon", "into": "a"}, "since: 'soon' is not a time"),
        ({"topic": "r", "since": datetime(2026, 1, 1), "into": "a"}, "has no zone"),  # noqa: DTZ001
        ({"topic": "r", "since": timedelta(-1), "into": "a"}, "is in the future"),
        ({"topic": "r", "since": 7, "into": "a"}, "since=7 is not a time"),
        ({"topic": "r", "since": "now", "until": "1 h ago", "into": "a"}, "must be before until"),
        ({"topic": "r", "since": "earliest", "into": "a", "keys": []}, "keys= is empty"),
        ({"topic": "r", "since": "earliest", "into": "a", "keys": [7]}, "keys= has 7"),
        ({"topic": "r", "since": "earliest", "into": "a", "headers": {}}, "names no value"),
        ({"topic": "r", "since": "earliest", "into": "a", "headers": {"a": []}}, "names no value"),
        ({"topic": "r", "since": "earliest", "into": "a", "keys": 7}, "keys= has 7"),
        ({"topic": "r", "since": "earliest", "into": "a", "headers": {"a": 1}}, "headers= has 1"),
        ({"topic": "r", "since": "earliest", "into": "a", "headers": {1: "a"}}, "has the name 1"),
        ({"topic": "r", "since": "earliest", "into": "a", "headers": "a"}, "'a': a dict of names"),
        ({"topic": "r", "since": "earliest", "into": "a", "pace": 5}, "pace=5: text is needed"),
        ({"topic": "r", "since": "earliest", "into": "a", "compression": 5}, "compression=5: text"),
        ({"topic": 5, "since": "earliest", "into": "a"}, "topic=5: text is needed"),
        ({"topic": "r", "since": "earliest", "into": 5}, "into=5: text is needed"),
        ({"topic": "r", "since": "earliest", "group": 5}, "group=5: text is needed"),
        ({"resume": 5}, "resume=5: text is needed"),
        (
            {"topic": "r", "since": "earliest", "into": "a", "security": "x"},
            "security='x': a respool.Security is needed",
        ),
        ({"topic": "r", "since": "earliest", "into": "a", "pace": "fast"}, "is not a pace"),
        (
            {"topic": "r", "since": "earliest", "into": "a", "compression": "rar"},
            "^compression='rar' is not one of none, gzip",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_named_before_anything_is_sent(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidReplay, match=said) as raised:
        respool.start_replay(bootstrap="127.0.0.1:1", **arguments)
    assert isinstance(raised.value, ValueError)


def test_what_does_not_exist_is_named(broker: Broker) -> None:
    topic = write(broker, count=1)
    with pytest.raises(ReplayNotFound, match=f"no topic '{topic}x' .*did you mean {topic}?"):
        replay(broker, f"{topic}x", since="earliest", into="a")
    with pytest.raises(ReplayNotFound, match="no replay 'ffff'"):
        replay(broker, resume="ffff")
    with pytest.raises(InvalidReplay, match="not replayed into itself"):
        replay(broker, topic, since="earliest", into=topic)
    with pytest.raises(ReplayUnreachable, match=r"no broker at 127\.0\.0\.1:1"):
        respool.start_replay(topic, since="earliest", into="a", bootstrap="127.0.0.1:1")


def test_no_thread_is_left_behind(broker: Broker) -> None:
    topic = write(broker, count=10)
    running = replay(broker, topic, since="earliest", into=f"{topic}-copy")
    running.wait(WAIT_SECONDS)
    wait_until(
        lambda: not [one for one in threading.enumerate() if one.name.endswith(running.id)],
        "its thread ends",
    )
    assert isinstance(running.entry, AuditEntry)
    assert running.id in repr(running)


def test_it_needs_no_extra_and_nothing_of_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False
    )
    assert done.stdout == "respool.replay.start_replay []\n", done.stderr
