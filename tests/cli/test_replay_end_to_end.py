"""`respool replay` against a real broker: what is copied, and what becomes of it when everything is killed."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cli.real_broker import START_MS, WAIT_SECONDS, ConsumerChild, Shell, started
from cli.running import Run
from respool.replay.copy_plan import partition_for_key
from support.broker_process import BrokerProcess
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("cli-groups")]

READ_NOTE = """
import sys
from confluent_kafka import Consumer, TopicPartition

broker, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": broker, "group.id": group})
(place,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
print(place.metadata)
consumer.close()
"""

OURS = {"respool-replay-id", "respool-source", "respool-replay-number"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("replays")) as running:
        yield running


@pytest.fixture
def shell(run: Run, broker: BrokerProcess) -> Shell:
    return Shell(run, broker)


class Target:
    """Looks at how much a topic holds, from outside."""

    def __init__(self, shell: Shell, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": shell.broker.address, "group.id": "looking", "log_level": 0}
        )
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def messages(self) -> int:
        try:
            return sum(
                self._consumer.get_watermark_offsets(place, timeout=2)[1] for place in self._places
            )
        except KafkaException:
            # The broker is away.
            return 0

    def wait_for(self, count: int, process: "subprocess.Popen[str]") -> None:
        """Return when so many are there, or the process that writes them has ended."""
        wait_until(
            lambda: process.poll() is not None or self.messages() >= count,
            f"{count} messages are copied",
        )

    def close(self) -> None:
        self._consumer.close()


def stripped(message: dict[str, Any], *, places: bool = True) -> Any:
    """A message without what tells that it is a copy."""
    headers = [tuple(each) for each in message["headers"] if each[0] not in OURS]
    place = (message["partition"],) if places else ()
    return (*place, message["timestamp"], message["key"], message["value"], tuple(headers))


def check_copies(shell: Shell, source: str, into: str, *, partitions_kept: bool) -> None:
    """Every message of the source once, and those of one source partition in order in each partition."""
    messages, copies = shell.messages(source), shell.messages(into)
    assert sorted(stripped(each, places=partitions_kept) for each in messages) == sorted(
        stripped(each, places=partitions_kept) for each in copies
    )
    offsets = defaultdict(list)
    for copy in copies:
        _, partition, offset = dict(copy["headers"])["respool-source"].rsplit("/", 2)
        offsets[copy["partition"], partition].append(int(offset))
    assert all(each == sorted(each) for each in offsets.values())


def replay_of(shell: Shell, into: str) -> dict[str, Any]:
    kind, _, name = into.rpartition(" ")
    target = {kind or "topic": name}
    [act] = [act for act in shell.json("replay", "list")["replays"] if act["target"] == target]
    return dict(act)


def test_a_copy_has_everything_the_messages_had_and_groups_are_left_alone(shell: Shell) -> None:
    shell.topic("whole", partitions=3, messages=300)
    shell.run("group", "reset", "whole-group", "--topic", "whole", "--to-offset", "7", "--yes")
    groups = shell.run("group", "list").out
    done = shell.run("replay", "whole", "--from", "earliest", "--into", "whole-copy")
    assert "300 messages in whole-copy" in done.err
    check_copies(shell, "whole", "whole-copy", partitions_kept=True)
    first = shell.messages("whole-copy")[0]
    assert dict(first["headers"])["respool-source"].startswith("whole/")
    assert shell.run("group", "list").out == groups
    [lag] = shell.json("group", "lag", "whole-group")["groups"]
    assert [each["committed"] for each in lag["partitions"]] == [7, 7, 7]
    act = replay_of(shell, "whole-copy")
    assert (act["kind"], act["state"], act["messages"], act["source"]) == (
        "replay", "done", 300, {"topic": "whole"},
    )  # fmt: skip


def test_a_span_of_time_and_some_keys(shell: Shell, tmp_path: Path) -> None:
    shell.topic("some", partitions=2, messages=100)
    span = ["--from", "2025-11-14 08:00:20Z", "--to", "2025-11-14T08:00:50Z"]
    shown = shell.run("replay", "some", *span, "--into", "some-copy", "--dry-run")
    assert shown.out == "some\t0\t10\t25\t15\nsome\t1\t10\t25\t15\n"
    shell.run("replay", "some", *span, "--into", "some-copy", "--speed", "1000x")
    copied = shell.messages("some-copy")
    assert sorted(int(each["value"]) for each in copied) == list(range(20, 50))
    assert {each["timestamp"] for each in copied} == {START_MS + 1000 * n for n in range(20, 50)}

    (tmp_path / "keys").write_text("key-1\nkey-4\n")
    by_file = ["--key-file", str(tmp_path / "keys"), "--compression", "lz4", "--rate", "1000/s"]
    shell.run("replay", "some", *span, "--into", "keys-by-file", *by_file)
    shell.run("replay", "some", *span, "--into", "keys-by-name", "--keys", "key-1,key-4")
    for topic in ("keys-by-file", "keys-by-name"):
        assert sorted(int(each["value"]) for each in shell.messages(topic)) == [
            number for number in range(20, 50) if number % 7 in {1, 4}
        ]


def test_messages_with_a_header_are_copied_and_a_resumed_replay_selects_the_same(
    shell: Shell,
) -> None:
    shell.run("topic", "create", "typed", "--set", "retention.ms=-1")
    lines = [
        json.dumps(
            {"value": str(n), "headers": {"type": "refund" if n % 3 else "fare", "n": str(n)}}
        )
        for n in range(30)
    ]
    shell.run("produce", "typed", "--json-lines", stdin="\n".join(lines).encode())
    arguments = ["replay", "typed", "--from", "earliest", "--into", "typed-copy"]
    some = ["--header", "type=refund", "--header", "n=1", "--header", "n=5", "--header", "n=6"]
    shell.run(*arguments, *some)
    assert [each["value"] for each in shell.messages("typed-copy")] == ["1", "5"]
    assert "was done already" in shell.run(*arguments, *some).err
    act = replay_of(shell, "typed-copy")
    other = shell.run("replay", "--resume", act["id"], "--header", "type=fare")
    assert "was done already" in other.err
    assert "2 messages" in shell.run(*arguments, *some, "--again").err


def test_into_other_partitions_a_key_goes_where_clients_send_it(shell: Shell) -> None:
    shell.topic("wide", partitions=2, messages=70)
    shell.run("topic", "create", "narrow", "--partitions", "5", "--set", "retention.ms=-1")
    shell.run("replay", "wide", "--from", "earliest", "--into", "narrow")
    check_copies(shell, "wide", "narrow", partitions_kept=False)
    # librdkafka's own idea of the same, through `respool produce`.
    shell.run("topic", "create", "sent", "--partitions", "5")
    lines = "".join(f"key-{number}:x\n" for number in range(7))
    shell.run("produce", "sent", "--key-separator", ":", stdin=lines.encode())
    placed = {each["key"]: each["partition"] for each in shell.messages("sent")}
    assert {each["key"]: each["partition"] for each in shell.messages("narrow")} == placed
    assert placed == {key: partition_for_key(key.encode(), 5) for key in placed}


@pytest.mark.parametrize("partitions", [2, 3], ids=["same partitions", "other partitions"])
def test_killed_at_random_points_and_started_again_nothing_is_missing_or_twice(
    shell: Shell, partitions: int
) -> None:
    source, into = f"killed-{partitions}", f"killed-copy-{partitions}"
    shell.topic(source, partitions=2, messages=9_000)
    shell.run("topic", "create", into, "--partitions", str(partitions), "--set", "retention.ms=-1")
    arguments = ["replay", source, "--from", "earliest", "--to", "now", "--into", into]
    target = Target(shell, into, partitions)
    rng = random.Random(partitions)
    for _ in range(3):
        until = target.messages() + rng.randint(1, 300)
        # At this rate it is far from its end when it is killed, however late that is seen.
        process = shell.begin(*arguments, "--rate", "1000/s")
        target.wait_for(until, process)
        assert process.poll() is None
        process.kill()
        process.communicate()
    target.close()
    shell.run(*arguments)
    check_copies(shell, source, into, partitions_kept=partitions == 2)
    assert replay_of(shell, into)["messages"] == 9_000
    again = shell.run(*arguments)
    assert "was done already" in again.err
    assert len(shell.messages(into)) == 9_000


def test_a_broker_killed_and_started_again_is_waited_for(shell: Shell) -> None:
    shell.topic("outage", partitions=2, messages=9_000)
    shell.run("topic", "create", "outage-copy", "--partitions", "2", "--set", "retention.ms=-1")
    target = Target(shell, "outage-copy", 2)
    process = shell.begin(
        "replay", "outage", "--from", "earliest", "--into", "outage-copy", "--rate", "10000/s"
    )
    wait_until(lambda: target.messages() >= 3000, "some messages are copied")
    target.close()
    shell.broker.kill()
    shell.broker.start()
    said, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, said
    assert "trying again" in said
    check_copies(shell, "outage", "outage-copy", partitions_kept=True)


def test_ctrl_c_is_recorded_and_the_replay_goes_on_by_its_id(shell: Shell) -> None:
    shell.topic("stopped", partitions=2, messages=4000)
    shell.run("topic", "create", "stopped-copy", "--partitions", "2", "--set", "retention.ms=-1")
    target = Target(shell, "stopped-copy", 2)
    process = shell.begin(
        "replay", "stopped", "--from", "earliest", "--into", "stopped-copy", "--rate", "500/s",
        "--keys", "key-1,key-2,key-3",
    )  # fmt: skip
    wait_until(lambda: target.messages() >= 50, "some messages are copied")
    target.close()
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, said
    act = replay_of(shell, "stopped-copy")
    assert act["state"] == "interrupted"
    assert 50 <= act["messages"] < 4000 * 3 / 7
    assert act["id"] in said
    done = shell.run("replay", "--resume", act["id"], "--json")
    assert f'"messages": {sum(1 for number in range(4000) if number % 7 in {1, 2, 3})}' in done.out
    values = [int(each["value"]) for each in shell.messages("stopped-copy")]
    assert sorted(values) == [number for number in range(4000) if number % 7 in {1, 2, 3}]
    assert "was done already" in shell.run("replay", "--resume", act["id"]).err


def test_two_processes_at_once_make_one_copy(shell: Shell) -> None:
    shell.topic("both", partitions=2, messages=4000)
    shell.run("topic", "create", "both-copy", "--partitions", "3", "--set", "retention.ms=-1")
    arguments = ["replay", "both", "--from", "earliest", "--to", "now", "--into", "both-copy"]
    first = shell.begin(*arguments, "--rate", "3000/s")
    wait_until(
        lambda: any(
            act["target"] == {"topic": "both-copy"}
            for act in shell.json("replay", "list")["replays"]
        ),
        "the replay is recorded",
    )
    second = shell.begin(*arguments)
    for process in (second, first):
        said, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0, said
    check_copies(shell, "both", "both-copy", partitions_kept=False)


def test_the_same_again_is_done_only_when_asked_for(shell: Shell) -> None:
    shell.topic("again", partitions=1, messages=10)
    arguments = ["replay", "again", "--from", "earliest", "--to", "now", "--into", "again-copy"]
    shell.run(*arguments)
    assert "was done already" in shell.run(*arguments).err
    shell.run("produce", "again", "-m", "more")
    # 'now' is later by now, and there is more: most of that range was copied already.
    refused = shell.run(*arguments, code=1)
    assert (
        "10 of the 11 messages in this range were replayed into again-copy already" in refused.err
    )
    assert "--again" in refused.err
    assert len(shell.messages("again-copy")) == 10
    shell.run(*arguments, "--again")
    assert len(shell.messages("again-copy")) == 10 + 11


def test_what_the_target_would_delete_at_once_is_not_copied(shell: Shell) -> None:
    shell.topic("old", partitions=1, messages=10)
    shell.run("topic", "create", "short", "--set", "retention.ms=1d")
    refused = shell.run("replay", "old", "--from", "earliest", "--into", "short", code=1)
    assert "would be gone at once" in refused.err
    assert replay_of(shell, "short")["state"] == "failed"
    shell.run("topic", "alter", "short", "--set", "retention.ms=-1")
    going_on = shell.run("replay", "old", "--from", "earliest", "--into", "short")
    assert "continuing replay" in going_on.err
    assert len(shell.messages("short")) == 10


def test_a_mirrored_topic_is_replayed_into_one_that_is_no_mirror(shell: Shell) -> None:
    """The new one would refuse all that the replay writes."""
    shell.topic("mirrored", partitions=1, messages=10)
    shell.run(
        "topic", "alter", "mirrored", "--set", "respool.mirror=true", "--set", "segment.bytes=4096"
    )
    shell.run("replay", "mirrored", "--from", "earliest", "--into", "of-mirrored")
    assert len(shell.messages("of-mirrored")) == 10
    [described] = shell.json("topic", "describe", "of-mirrored")["topics"]
    own = {one["name"] for one in described["settings"] if one["source"] == "topic"}
    assert own == {"retention.ms", "segment.bytes"}


def test_a_topic_is_not_replayed_into_itself(shell: Shell) -> None:
    shell.topic("self", partitions=1, messages=1)
    refused = shell.run("replay", "self", "--from", "earliest", "--into", "self", code=2)
    assert "not replayed into itself" in refused.err
    missing = shell.run("replay", "selv", "--from", "earliest", "--into", "x", code=3)
    assert "did you mean self?" in missing.err
    assert "no replay 'ffff'" in shell.run("replay", "--resume", "ffff", code=3).err


def test_a_group_of_its_own_begins_in_the_past_and_knows_its_end(shell: Shell) -> None:
    shell.topic("past", partitions=2, messages=40)
    span = ["--from", f"@{START_MS + 20_000}", "--to", f"@{START_MS + 30_000}"]
    arguments = ["replay", "past", *span, "--group", "past-check"]
    told = shell.run(*arguments)
    assert told.out == "past\t0\t10\t15\t5\npast\t1\t10\t15\t5\n"
    [lag] = shell.json("group", "lag", "past-check")["groups"]
    assert [each["committed"] for each in lag["partitions"]] == [10, 10]
    act = replay_of(shell, "group past-check")
    assert lag["partitions"][0]["metadata"] == f"until 15 of respool-replay {act['id']}"
    assert [(one["from"], one["to"]) for one in act["partitions"]] == [(10, 15), (10, 15)]
    with ConsumerChild(shell.broker, "past-check", "past") as child:
        child.wait_for([(partition, offset) for partition in (0, 1) for offset in range(10, 20)])
        assert not {"0 9", "1 9"} & set(child.lines)
        # In use: nobody takes it back under its consumers.
        assert "has 1 member" in shell.run(*arguments, "--again", code=1).err
    already = shell.run(*arguments)
    assert "has set group past-check up already; 0 messages left" in already.err


def test_a_client_of_librdkafka_reads_where_a_replay_ends_from_the_note(shell: Shell) -> None:
    """It reads a note up to a zero byte; where there is none, also what lies behind it in memory, here never zeros."""
    shell.topic("noted", partitions=1, messages=10)
    to = f"@{START_MS + 4_000}"
    shell.run("replay", "noted", "--from", "earliest", "--to", to, "--group", "noting")
    act = replay_of(shell, "group noting")
    read = subprocess.run(
        [sys.executable, "-c", READ_NOTE, shell.broker.address, "noting", "noted"],
        env=os.environ | {"MALLOC_PERTURB_": "100"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (read.stdout, read.stderr) == (f"until 4 of respool-replay {act['id']}\n", "")


def test_a_group_that_is_somebody_s_is_left_alone(shell: Shell) -> None:
    shell.topic("theirs", partitions=1, messages=10)
    shell.run("group", "reset", "their-group", "--topic", "theirs", "--to-offset", "4", "--yes")
    refused = shell.run("replay", "theirs", "--from", "earliest", "--group", "their-group", code=1)
    assert "leaves such groups alone" in refused.err
    [lag] = shell.json("group", "lag", "their-group")["groups"]
    assert lag["partitions"][0]["committed"] == 4
