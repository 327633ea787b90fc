"""`respool transaction`, and what consume and replay make of transactions, against a real broker."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from cli.real_broker import BROKER_SETTINGS, WAIT_SECONDS, Shell
from cli.running import Run
from support.broker_process import BrokerProcess
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("cli-transactions")]

SETTINGS = {**BROKER_SETTINGS, "transactions_topic_partitions": 2}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("transactions")
    with BrokerProcess(folder / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def shell(run: Run, broker: BrokerProcess) -> Shell:
    return Shell(run, broker)


class Bank:
    """A transactional producer."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": shell.broker.address,
                "transactional.id": name,
                "transaction.timeout.ms": 120_000,
                "log_level": 0,
            },
            error_cb=lambda _: None,
        )
        self.producer.init_transactions(WAIT_SECONDS)

    def write(self, topic: str, *values: str, partition: int = 0) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition)
        assert self.producer.flush(WAIT_SECONDS) == 0

    def transfer(self, topic: str, *values: str, commit: bool) -> None:
        self.producer.begin_transaction()
        self.write(topic, *values)
        if commit:
            self.producer.commit_transaction(WAIT_SECONDS)
        else:
            self.producer.abort_transaction(WAIT_SECONDS)


def new_topic(shell: Shell, name: str, *, partitions: int = 1) -> None:
    shell.run("topic", "create", name, "--partitions", str(partitions))


def values(shell: Shell, topic: str, *options: str) -> list[str]:
    read = shell.run("consume", topic, "--json", *options).out
    return [json.loads(line)["value"] for line in read.splitlines()]


def described(shell: Shell, name: str) -> Any:
    return shell.json("transaction", "describe", name)


def test_a_transaction_is_listed_and_described_while_open_and_after(shell: Shell) -> None:
    new_topic(shell, "life", partitions=2)
    bank = Bank(shell, "life-bank")
    assert described(shell, "life-bank")["started_ms"] is None
    bank.transfer("life", "before", commit=True)
    bank.producer.begin_transaction()
    bank.write("life", "open", partition=0)
    bank.write("life", "open", partition=1)

    [row] = [
        line.split("\t")
        for line in shell.run("transaction", "list").out.splitlines()
        if line.startswith("life-bank\t")
    ]
    assert (row[1], row[4]) == ("Ongoing", "2")
    found = described(shell, "life-bank")
    assert (found["state"], found["timeout_ms"]) == ("Ongoing", 120_000)
    assert found["partitions"] == [
        {"topic": "life", "partition": 0},
        {"topic": "life", "partition": 1},
    ]
    assert str(found["producer_id"]) == row[2]
    by_producer = shell.json("transaction", "list", "--producer-id", row[2])["transactions"]
    assert by_producer == [found]
    assert shell.json("transaction", "list", "--state", "ongoing") == {"transactions": [found]}
    assert shell.run("transaction", "list", "--open-longer-than", "10 minutes").out == ""
    assert shell.json("transaction", "list", "--open-longer-than", "0ms") == {
        "transactions": [found]
    }
    lines = shell.run("transaction", "describe", "life-bank").out.splitlines()
    assert lines[0].startswith("life-bank\tstate\tOngoing\t")
    assert lines[1:] == ["life-bank\tpartition\tlife\t0", "life-bank\tpartition\tlife\t1"]
    assert "nothing hangs in 2 partitions" in shell.run("transaction", "hanging", "life").err

    bank.producer.commit_transaction(WAIT_SECONDS)
    assert described(shell, "life-bank")["state"] == "CompleteCommit"
    assert "life-bank\tCompleteCommit" in shell.run("transaction", "list").out


def test_an_open_transaction_is_aborted_by_its_id_and_its_producer_fenced(shell: Shell) -> None:
    new_topic(shell, "fence")
    bank = Bank(shell, "fence-bank")
    bank.transfer("fence", "before", commit=True)
    bank.producer.begin_transaction()
    bank.write("fence", "open")
    Bank(shell, "other-bank").transfer("fence", "behind", commit=True)
    # Readers wait for its end.
    assert values(shell, "fence") == ["before"]

    asked = shell.run("transaction", "abort", "fence-bank", code=2)
    assert "--yes" in asked.err
    assert described(shell, "fence-bank")["state"] == "Ongoing"
    done = shell.run("transaction", "abort", "fence-bank", "--yes")
    assert "aborted the transaction of fence-bank in 1 partition; its producer" in done.err
    assert values(shell, "fence") == ["before", "behind"]
    with pytest.raises(KafkaException, match="fenced"):
        bank.producer.commit_transaction(WAIT_SECONDS)

    again = shell.run("transaction", "abort", "fence-bank", "--yes")
    assert "no open transaction (Empty); nothing was changed" in again.err
    assert shell.json("transaction", "abort", "fence-bank", "--yes")["aborted"] is False
    # Its successor works.
    Bank(shell, "fence-bank").transfer("fence", "after", commit=True)
    assert values(shell, "fence") == ["before", "behind", "after"]


def test_one_whose_coordinator_knows_it_is_not_ended_in_a_single_partition(shell: Shell) -> None:
    new_topic(shell, "known")
    bank = Bank(shell, "known-bank")
    bank.producer.begin_transaction()
    bank.write("known", "open")
    place = ["transaction", "abort", "--topic", "known", "--partition", "0", "--start-offset"]
    refused = shell.run(*place, "0", "--yes", code=1)
    assert "it is Ongoing, of known-bank" in refused.err
    assert "respool transaction abort known-bank" in refused.err
    missing = shell.run(*place, "1", "--yes", code=3)
    assert "those open there begin at 0" in missing.err
    bank.producer.commit_transaction(WAIT_SECONDS)
    assert "none is open there" in shell.run(*place, "0", "--yes", code=3).err
    assert values(shell, "known") == ["open"]


def test_what_is_not_there_or_not_said_well_is_told(shell: Shell) -> None:
    new_topic(shell, "told")
    Bank(shell, "told-bank").transfer("told", "1", commit=True)
    assert "did you mean told-bank?" in shell.run("transaction", "describe", "toldbank", code=3).err
    # Not even made by asking.
    shell.run("transaction", "abort", "toldbank", "--yes", code=3)
    assert "toldbank" not in shell.run("transaction", "list").out
    states = shell.run("transaction", "list", "--state", "broken", code=2)
    assert "Empty, Ongoing, PrepareCommit" in states.err
    shell.run("transaction", "list", "--open-longer-than", "soon", code=2)
    shell.run("transaction", "abort", code=2)
    shell.run("transaction", "abort", "told-bank", "--topic", "told", code=2)
    shell.run("transaction", "hanging", "tolled", code=3)
    there = ["--topic", "told", "--partition", "9", "--start-offset", "0"]
    assert "its only partition is 0" in shell.run("transaction", "abort", *there, code=3).err


def test_consume_shows_what_counts_and_the_rest_when_asked(shell: Shell) -> None:
    new_topic(shell, "seen")
    bank = Bank(shell, "seen-bank")
    bank.transfer("seen", "1", "2", commit=True)
    bank.transfer("seen", "3", "4", commit=False)
    bank.transfer("seen", "5", commit=True)
    bank.producer.begin_transaction()
    bank.write("seen", "6")
    assert values(shell, "seen") == ["1", "2", "5"]
    assert values(shell, "seen", "--isolation", "read_committed") == ["1", "2", "5"]
    everything = ["1", "2", "3", "4", "5", "6"]
    assert values(shell, "seen", "--isolation", "read_uncommitted") == everything
    since = ["--since", "1 hour ago", "--isolation", "read_uncommitted"]
    assert values(shell, "seen", *since) == everything
    bank.producer.abort_transaction(WAIT_SECONDS)
    assert values(shell, "seen") == ["1", "2", "5"]


def test_the_end_is_the_same_for_all_tools_while_a_transaction_is_open(shell: Shell) -> None:
    new_topic(shell, "ends")
    shell.run("produce", "ends", stdin=b"1\n2\n3\n")
    bank = Bank(shell, "ends-bank")
    bank.producer.begin_transaction()
    bank.write("ends", "4", "5")
    # A group that does not wait for it has read four of five.
    shell.run("group", "reset", "ends-group", "--topic", "ends", "--to-offset", "4", "--yes")
    assert shell.run("group", "lag", "ends-group").out == "ends-group\tends\t0\t4\t5\t1\n"
    [topic] = shell.json("topic", "describe", "ends")["topics"]
    assert topic["partitions"][0]["end_offset"] == 5
    latest = shell.json("group", "reset", "ends-group", "--to-latest", "--dry-run")
    assert (latest["replays"], latest["skips"], latest["partitions"][0]["to"]) == (0, 1, 5)
    bank.producer.abort_transaction(WAIT_SECONDS)


def test_consume_says_that_it_stopped_at_an_open_transaction(shell: Shell) -> None:
    new_topic(shell, "short")
    shell.run("produce", "short", stdin=b"1\n2\n3\n")
    told = "stopped before the end, at an open transaction"
    assert told not in shell.run("consume", "short").err
    bank = Bank(shell, "short-bank")
    bank.producer.begin_transaction()
    bank.write("short", "4", "5")
    for options in ([], ["--until", "4"], ["--until", "now"]):
        read = shell.run("consume", "short", *options)
        assert read.out == "1\n2\n3\n"
        assert f"{told}, in partition 0 at 3 of 5; see: respool transaction list\n" in read.err
    # Not where more was not asked for, or nothing was held back.
    since = ["--until", "1 hour ago"]
    for options in (["--until", "2"], since, ["-n", "1"], ["--isolation", "read_uncommitted"]):
        assert told not in shell.run("consume", "short", *options).err
    bank.producer.abort_transaction(WAIT_SECONDS)
    assert told not in shell.run("consume", "short").err


def test_aborted_messages_are_not_replayed_and_open_ones_wait(shell: Shell) -> None:
    new_topic(shell, "source")
    bank = Bank(shell, "source-bank")
    bank.transfer("source", "1", "2", commit=True)
    bank.transfer("source", "3", commit=False)
    bank.transfer("source", "4", commit=True)
    # The span ends with messages that nobody may see.
    bank.transfer("source", "5", "6", commit=False)
    bank.producer.begin_transaction()
    bank.write("source", "7")
    replay = ["replay", "source", "--from", "1 hour ago", "--to", "now", "--into", "copy"]
    done = shell.json(*replay)
    assert (done["state"], done["messages"]) == ("done", 3)
    # To everyone, whatever they read.
    assert values(shell, "copy", "--isolation", "read_uncommitted") == ["1", "2", "4"]
    bank.producer.abort_transaction(WAIT_SECONDS)
    assert values(shell, "copy") == ["1", "2", "4"]


def test_a_replay_finds_its_copies_behind_somebody_s_open_transaction(shell: Shell) -> None:
    shell.topic("behind", partitions=1, messages=300)
    shell.run("topic", "create", "behind-copy", "--set", "retention.ms=-1")
    bank = Bank(shell, "behind-bank")
    bank.producer.begin_transaction()
    bank.write("behind-copy", "open")
    replay = ["replay", "behind", "--from", "earliest", "--into", "behind-copy"]
    process = shell.begin(*replay, "--rate", "100/s")
    everything = ["--isolation", "read_uncommitted"]
    wait_until(lambda: len(values(shell, "behind-copy", *everything)) > 20, "some are copied")
    # Before it has noted anywhere how far it is.
    process.kill()
    process.communicate()
    assert values(shell, "behind-copy") == []
    done = shell.run(*replay)
    assert "300 messages in behind-copy" in done.err
    bank.producer.abort_transaction(WAIT_SECONDS)
    assert values(shell, "behind-copy") == [str(number) for number in range(300)]


def test_a_transaction_that_its_coordinator_has_forgotten_is_found_and_ended(
    run: Run, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        shell = Shell(run, broker)
        new_topic(shell, "lost", partitions=2)
        Bank(shell, "steady-bank").transfer("lost", "before", commit=True)
        lost = Bank(shell, "lost-bank")
        lost.producer.begin_transaction()
        lost.write("lost", "lost")
        broker.kill()
        # A disk that was replaced, and not restored.
        for folder in broker.data.glob("__transaction_state-*"):
            for file in folder.iterdir():
                if file.name != "partition.metadata":
                    file.unlink()
        broker.start()
        del lost

        [hanging] = shell.json("transaction", "hanging")["transactions"]
        assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == ("lost", 0, 2)
        assert (hanging["why"], hanging["transactional_id"]) == ("unknown", None)
        shown = shell.run("transaction", "hanging", "lost")
        assert "no coordinator knows its producer" in shown.out
        assert shlex.join(hanging["abort_command"]) in shown.err
        assert values(shell, "lost") == ["before"]

        abort = hanging["abort_command"][1:]
        assert "--yes" in shell.run(*abort, code=2).err
        assert shell.json(*abort, "--yes")["aborted"] is True
        assert shell.json("transaction", "hanging") == {"transactions": []}
        shell.run("produce", "lost", "--partition", "0", stdin=b"after\n")
        assert values(shell, "lost") == ["before", "after"]
