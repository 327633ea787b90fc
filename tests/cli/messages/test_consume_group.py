"""`respool consume --group` on a broker in this process: finite reads by the command, members that stay by children."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cli.running import Ended, Run
from respool.cli.messages.consume_group import is_spare
from respool.client.kafka.groups import GroupDescription, MemberDescription
from respool.testing import Broker
from support.quick_broker import quick_broker
from support.waiting import wait_until

WAIT_SECONDS = 30
# It notices at once that another member joins.
QUICK_STOCK: dict[str, Any] = {"heartbeat.interval.ms": 100}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker({"group_consumer_heartbeat_interval_ms": 200}) as running:
        yield running


class Terminal:
    """Commands on the broker, and a topic of its own for each test."""

    def __init__(self, run: Run, broker: Broker, topic: str) -> None:
        self._run = run
        self.broker = broker
        self.topic = topic

    def run(self, *arguments: str, code: int = 0) -> Ended:
        ended = self._run(*arguments, "--broker", self.broker.bootstrap)
        assert ended.code == code, f"{ended.code}: {ended.out}\n{ended.err}"
        return ended

    def read(self, group: str, *options: str) -> list[str]:
        return self.run("consume", self.topic, "--group", group, *options).out.split()

    def fill(self, *values: str, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(WAIT_SECONDS) == 0

    def committed(self, group: str) -> dict[int, int | None]:
        found = json.loads(self.run("group", "describe", group, "--json").out)
        return {each["partition"]: each["committed"] for each in found["partitions"]}


@pytest.fixture
def terminal(run: Run, broker: Broker) -> Terminal:
    return Terminal(run, broker, broker.new_topic(partitions=3))


class Child:
    """A member in a process of its own, as in a second terminal."""

    def __init__(self, terminal: Terminal, group: str, *options: str) -> None:
        command = [sys.executable, "-m", "respool.cli", "consume", terminal.topic, "--group", group]
        self.process = subprocess.Popen(
            [*command, "--broker", terminal.broker.bootstrap, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._threads = [
            threading.Thread(target=_collect, args=pair)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.ended()

    def press_ctrl_c(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(WAIT_SECONDS)
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        return code

    def wait_for_assignment(self, *texts: str) -> None:
        def is_assigned() -> bool:
            told = [line.split(": ", 1)[1] for line in self.err if ": assigned" in line]
            return bool(told) and told[-1] in texts

        wait_until(is_assigned, f"{texts} in {self.err}", seconds=WAIT_SECONDS)


def _collect(pipe: Any, into: list[str]) -> None:
    with pipe:
        into.extend(line.rstrip("\n") for line in pipe)


def test_a_new_group_reads_everything_commits_it_and_goes_on_there(terminal: Terminal) -> None:
    terminal.fill("a", "b")
    terminal.fill("c", partition=2)
    assert sorted(terminal.read("on")) == ["a", "b", "c"]
    assert terminal.committed("on") == {0: 2, 1: 0, 2: 1}
    assert terminal.read("on") == []
    terminal.fill("d")
    assert terminal.read("on") == ["d"]


def test_a_limit_commits_what_was_written_and_no_more(terminal: Terminal) -> None:
    terminal.fill("a", "b", "c", "d")
    assert terminal.read("limited", "--max-messages", "2") == ["a", "b"]
    assert terminal.committed("limited")[0] == 2
    assert terminal.read("limited", "--until", "3") == ["c"]
    assert terminal.read("limited") == ["d"]


def test_the_assigned_partitions_are_told_on_standard_error(terminal: Terminal) -> None:
    ended = terminal.run("consume", terminal.topic, "--group", "told")
    assert (ended.out, ended.err) == ("", "group told: assigned partitions 0, 1, 2\n")


def test_a_new_group_starts_where_the_options_say_and_keeps_that_place(terminal: Terminal) -> None:
    terminal.fill("old")
    assert terminal.read("late", "--offset", "latest") == []
    terminal.fill("new")
    assert terminal.read("late", "--from-beginning") == ["new"]
    assert terminal.read("timed", "--since", "1 hour ago", "-n", "1") == ["old"]


def test_a_start_option_does_not_move_a_group_and_says_so(terminal: Terminal) -> None:
    terminal.fill("a")
    terminal.read("kept")
    again = terminal.run("consume", terminal.topic, "--group", "kept", "--from-beginning")
    assert again.out == ""
    assert "--from-beginning counts only where nothing is committed" in again.err
    assert "respool group reset" in again.err


def test_an_offset_that_is_not_there_any_more_is_told(terminal: Terminal) -> None:
    terminal.fill("a", "b")
    consumer = Consumer({"bootstrap.servers": terminal.broker.bootstrap, "group.id": "beyond"})
    consumer.commit(offsets=[TopicPartition(terminal.topic, 0, 9)], asynchronous=False)
    consumer.close()
    ended = terminal.run("consume", terminal.topic, "--group", "beyond")
    assert ended.out.split() == ["a", "b"]
    assert "committed offset 9 of partition 0 is not there, it holds 0 up to 2" in ended.err
    assert terminal.committed("beyond")[0] == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--partition", "0"], "a group assigns partitions to its members"),
        (["--offset", "3"], "respool group reset g --to-offset N"),
        (["--offset", "-3"], "a group continues at its committed offsets"),
        (["--group", " "], "--group needs a name"),
    ],
)
def test_options_that_contradict_a_group_are_refused(
    run: Run, options: list[str], why: str
) -> None:
    # Nobody listens at port 1: had it tried to connect, the code would be 4.
    ended = run("consume", "t", "-b", "127.0.0.1:1", "--group", "g", *options)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err


def test_two_terminals_share_the_partitions_and_nothing_is_read_twice(terminal: Terminal) -> None:
    two, one = "assigned partitions 0, 1", "assigned partition 2"
    with Child(terminal, "pair", "--follow") as first:
        first.wait_for_assignment("assigned partitions 0, 1, 2")
        with Child(terminal, "pair", "--follow") as second:
            first.wait_for_assignment(two, one)
            second.wait_for_assignment(two, one)
            assert any("revoked partitions 0, 1, 2" in line for line in first.err)
            for partition in range(3):
                terminal.fill(*(f"{partition}-{n}" for n in range(5)), partition=partition)
            wait_until(lambda: len(first.out) + len(second.out) == 15, "all is read")
            assert second.press_ctrl_c() == 130
            assert any("next offset by partition" in line for line in second.err)
        first.wait_for_assignment("assigned partitions 0, 1, 2")
        terminal.fill("last", partition=2)
        terminal.fill("last", partition=0)
        wait_until(lambda: first.out.count("last") == 2, "the first goes on alone")
        assert first.press_ctrl_c() == 130
        assert first.out
        assert second.out
        seen = [*first.out, *second.out]
    assert sorted(seen) == sorted([f"{p}-{n}" for p in range(3) for n in range(5)] + ["last"] * 2)
    assert terminal.committed("pair") == {0: 6, 1: 5, 2: 6}


@pytest.mark.parametrize(
    "stock",
    [
        QUICK_STOCK,
        QUICK_STOCK | {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"},
    ],
    ids=["range", "cooperative-sticky", "next generation"],
)
def test_a_stock_client_in_the_same_group_gets_its_share(
    terminal: Terminal, stock: dict[str, Any]
) -> None:
    group = f"mixed-{terminal.topic}"
    settings = {"bootstrap.servers": terminal.broker.bootstrap, "group.id": group}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"} | stock)
    consumer.subscribe([terminal.topic])
    read: list[str] = []

    def poll() -> set[int]:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            read.append(message.value().decode())
        return {each.partition for each in consumer.assignment()}

    wait_until(lambda: poll() == {0, 1, 2}, "it has all", seconds=WAIT_SECONDS)
    with Child(terminal, group, "--follow") as child:
        wait_until(lambda: len(poll()) in (1, 2), "it shares", seconds=WAIT_SECONDS)
        wait_until(lambda: poll() and any("assigned p" in line for line in child.err), "has some")
        for partition in range(3):
            terminal.fill(str(partition), partition=partition)
        wait_until(lambda: poll() and len(read) + len(child.out) == 3, "all is read")
        consumer.close()
        child_share = list(child.out)
        assert sorted([*read, *child_share]) == ["0", "1", "2"]
        assert child_share
        assert read
        assert child.press_ctrl_c() == 130


def test_a_closed_pipe_ends_it_well_and_the_unwritten_is_read_again(terminal: Terminal) -> None:
    many = [f"{n:0200}" for n in range(4000)]
    terminal.fill(*many)
    command = [sys.executable, "-m", "respool.cli", "consume", terminal.topic, "--group", "head"]
    process = subprocess.Popen(
        [*command, "--broker", terminal.broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().decode().strip() == many[0]
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read().decode()
    assert (process.wait(WAIT_SECONDS), said) == (0, "group head: assigned partitions 0, 1, 2\n")
    committed = terminal.committed("head")[0]
    assert committed is not None
    assert committed < 4000
    assert terminal.read("head") == many[committed:]


def test_a_member_for_which_no_partition_is_left_ends(run: Run, broker: Broker) -> None:
    terminal = Terminal(run, broker, broker.new_topic())
    # Partitions are assigned in the order of the members' names, and they begin with the client's.
    settings = QUICK_STOCK | {"client.id": "aaa", "group.id": "full"}
    consumer = Consumer(settings | {"bootstrap.servers": broker.bootstrap})
    consumer.subscribe([terminal.topic])
    wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), "it has one")
    with Child(terminal, "full") as child:
        wait_until(
            lambda: consumer.poll(0.05) is None and child.process.poll() is not None,
            "the second ends",
            seconds=WAIT_SECONDS,
        )
        assert (child.ended(), child.out) == (0, [])
        assert "assigned nothing: every partition" in child.err[-1]
    consumer.close()


def test_ctrl_c_while_the_broker_is_away_ends_at_once_and_tells_what_is_not_committed(
    run: Run,
) -> None:
    """It waited for the coordinator for 46 seconds."""
    with quick_broker() as broker:
        terminal = Terminal(run, broker, broker.new_topic())
        # Lost, so that the message is known to be uncommitted when the broker goes.
        broker.faults.lose_replies("OffsetCommit")
        with Child(terminal, "away", "--follow") as child:
            terminal.fill("a")
            wait_until(lambda: child.out == ["a"], "it is read", seconds=WAIT_SECONDS)
            broker.stop()
            wait_until(lambda: "went away" in "".join(child.err), "noticed", seconds=WAIT_SECONDS)
            child.process.send_signal(signal.SIGINT)
            assert child.process.wait(WAIT_SECONDS) == 130
            child.ended()
            assert any("could not commit, the broker is away" in line for line in child.err)
        broker.start()


def member(name: str, *partitions: int) -> MemberDescription:
    return MemberDescription(
        member_id=name,
        instance_id=None,
        client_id=name,
        host="here",
        partitions=tuple(("t", number) for number in partitions),
    )


def group_of(*members: MemberDescription, state: str = "Stable") -> GroupDescription:
    return GroupDescription(
        name="g",
        state=state,
        type="classic",
        assignor="range",
        members=members,
        coordinator=("127.0.0.1", 1),
    )


def test_a_member_is_spare_only_when_each_partition_has_another_one() -> None:
    full = group_of(member("a", 0), member("b", 1), member("me"))
    assert is_spare(full, "me", "t", 2)
    assert not is_spare(full, "me", "t", 3)
    assert not is_spare(full, "a", "t", 2)
    assert not is_spare(full, "stranger", "t", 2)
    assert not is_spare(group_of(member("a", 0, 1), member("me")), "me", "t", 2)
    assert not is_spare(group_of(*full.members, state="CompletingRebalance"), "me", "t", 2)
