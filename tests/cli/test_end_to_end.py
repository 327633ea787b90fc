"""The commands as a person runs them: processes, pipes and signals, against a broker started by `respool serve`."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from cli.running import Ended, Run

RESPOOL = [sys.executable, "-m", "respool.cli"]
WAIT_SECONDS = 30

# One worker runs them all: a broker process per test module is enough for two cores.
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("cli-end-to-end")]


class Broker:
    """`respool serve` on a data folder; it can be stopped, killed and started again at the same address."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self._begun: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        with (self.data.parent / "broker.err").open("a") as said:
            process = subprocess.Popen(
                [*RESPOOL, "serve", "--data", str(self.data), "--listen", self.address],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self._process = process
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.fullmatch(r"respool listening on (\S+)\n", ready)
        if found is None:
            self.end(signal.SIGKILL)
            raise AssertionError(f"{ready!r}\n{(self.data.parent / 'broker.err').read_text()}")
        self.address = found[1]

    def end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None
        process.send_signal(number)
        code = process.wait(WAIT_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def begin(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """A command in its own process; `end_begun` sees to it that none outlives its test."""
        process = subprocess.Popen(
            [*RESPOOL, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        self._begun.append(process)
        return process

    def end_begun(self) -> None:
        for process in self._begun:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._begun.clear()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RESPOOL_BROKER": self.address, "TZ": "UTC"}


class Lines:
    """Collects a process's lines as they come, and waits for one."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def wait_for(self, part: bytes) -> None:
        with self._changed:
            found = self._changed.wait_for(
                lambda: any(part in line for line in self._lines), WAIT_SECONDS
            )
        assert found, (part, self._lines)

    def finish(self) -> bytes:
        self._thread.join(WAIT_SECONDS)
        self._stream.close()
        return b"".join(self._lines)

    def _collect(self) -> None:
        for line in self._stream:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("cli") / "data")
    broker.start()
    yield broker
    if broker.is_running:
        assert broker.end(signal.SIGTERM) == 0


class Shell:
    """Plain commands run in this process, which is quicker; those with signals or broken pipes in their own."""

    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self.broker = broker

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Ended:
        options = [] if arguments[0] in {"serve", "log"} else ["--broker", self.broker.address]
        ended = self._run(*arguments, *options, stdin=stdin)
        assert ended.code == code, ended.err
        return ended


@pytest.fixture
def shell(run: Run, broker: Broker) -> Iterator[Shell]:
    yield Shell(run, broker)
    broker.end_begun()


def test_a_topic_s_life(shell: Shell) -> None:
    shell.run("topic", "create", "life", "--partitions", "2", "--set", "retention.ms=2d")
    again = shell.run("topic", "create", "life", code=1)
    assert "there is a topic 'life' already" in again.err
    shell.run("topic", "create", "life", "--if-not-exists")
    shell.run("produce", "life", "-p", "1", stdin=b"a\nb\nc\n")
    assert "life\t2\t3\t2d\n" in shell.run("topic", "list").out
    shell.run(
        "topic", "alter", "life", "--set", "respool.flush=interval", "--unset", "retention.ms",
        "--partitions", "3",
    )  # fmt: skip
    [described] = json.loads(shell.run("topic", "describe", "life", "--json").out)["topics"]
    assert described["acks_all"]["flush_interval_ms"] == 1000
    assert [each["messages"] for each in described["partitions"]] == [0, 3, 0]
    sources = {each["name"]: each["source"] for each in described["settings"]}
    assert (sources["respool.flush"], sources["retention.ms"]) == ("topic", "default")
    assert "cannot shrink" in shell.run("topic", "alter", "life", "--partitions", "1", code=2).err
    shell.run("topic", "delete", "life", "--yes")
    assert "life" not in shell.run("topic", "list").out
    shell.run("topic", "describe", "life", code=3)


def test_a_topic_that_keeps_all_and_is_synced_as_kafka_says_it(shell: Shell) -> None:
    shell.run("topic", "create", "kept", "--set", "cleanup.policy=", "--set", "flush.ms=2s")
    assert "kept\t1\t0\tfor ever\n" in shell.run("topic", "list").out
    [described] = json.loads(shell.run("topic", "describe", "kept", "--json").out)["topics"]
    assert described["acks_all"]["flush_interval_ms"] == 2000
    wrong = shell.run("topic", "alter", "kept", "--set", "respool.flush=os", code=2)
    assert "flush.ms = 2000 means respool.flush = interval" in wrong.err
    shell.run("topic", "alter", "kept", "--set", "respool.flush=os", "--unset", "flush.ms")


def test_the_broker_s_own_words_reach_the_person(shell: Shell) -> None:
    unknown = shell.run("topic", "create", "wrong", "--set", "nonsense=1", code=2)
    assert "Unknown topic config name: nonsense" in unknown.err
    shell.run("topic", "create", "fine")
    wrong = shell.run("topic", "alter", "fine", "--set", "segment.bytes=3", code=2)
    assert "segment.bytes" in wrong.err
    assert "topic name" in shell.run("topic", "create", "no/slashes", code=2).err


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed_in_order_whatever_the_codec(shell: Shell, codec: str) -> None:
    lines = b"".join(b"message %d\n" % n for n in range(20_000))
    topic = f"ordered-{codec}"
    sent = shell.run("produce", topic, "--compression", codec, stdin=lines)
    assert "20,000 messages" in sent.err
    assert shell.run("consume", topic).out == lines.decode()


def test_a_span_of_time_is_read_back(shell: Shell) -> None:
    line = '{{"value": "at {0}", "timestamp": {0}}}\n'
    start = 1_763_107_200_000
    lines = "".join(line.format(start + 1000 * n) for n in range(60))
    shell.run("produce", "timed", "--json-lines", stdin=lines.encode())
    read = shell.run(
        "consume", "timed", "--since", "2025-11-14 08:00:20Z", "--until", "2025-11-14T08:00:23Z"
    )
    assert read.out.split("\n") == [
        *(f"at {start + 1000 * n}" for n in (20, 21, 22)),
        "",
    ]
    assert shell.run("consume", "timed", "--since", "now").out == ""


def test_a_copy_by_json_lines_has_the_same_messages_in_the_same_partitions(shell: Shell) -> None:
    shell.run("topic", "create", "source", "--partitions", "3")
    shell.run("topic", "create", "target", "--partitions", "3")
    shell.run(
        "produce", "source", "--key-separator", ":", "-H", "h=1", stdin=b"a:1\nb:\xff\nc:3\na:4\n"
    )
    read = shell.run("consume", "source", "--json").out
    shell.run("produce", "target", "--json-lines", "--keep-partition", stdin=read.encode())
    copied = shell.run("consume", "target", "--json").out
    expected = read.replace('"topic":"source"', '"topic":"target"')
    assert sorted(copied.splitlines()) == sorted(expected.splitlines())


def test_head_closes_the_pipe_and_that_is_no_failure(shell: Shell) -> None:
    shell.run("produce", "headed", stdin=b"".join(b"%d\n" % n for n in range(50_000)))
    process = shell.broker.begin("consume", "headed", "--follow", "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    # Something must be written for the closed pipe to be noticed.
    shell.run("produce", "headed", stdin=b"more\n")
    with process.stderr:
        assert b"Traceback" not in process.stderr.read()
    assert process.wait(WAIT_SECONDS) == 0


def test_following_shows_what_comes_and_ctrl_c_ends_it_with_a_summary(shell: Shell) -> None:
    shell.run("produce", "followed", "-m", "before")
    process = shell.broker.begin("consume", "followed", "--follow", "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = Lines(process.stdout), Lines(process.stderr)
    out.wait_for(b"before")
    shell.run("produce", "followed", "-m", "after")
    out.wait_for(b"after")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 130
    assert out.finish() == b"before\nafter\n"
    assert err.finish() == b"2 messages from followed; next offset by partition 0: 2\n"


def test_ctrl_c_while_producing_sends_what_was_read(shell: Shell) -> None:
    process = shell.broker.begin("produce", "typed", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    err = Lines(process.stderr)
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    deadline = time.monotonic() + WAIT_SECONDS
    while "typed\t1\t2" not in shell.run("topic", "list").out:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 130
    process.stdin.close()
    said = err.finish()
    assert b"2 messages" in said
    assert b"Traceback" not in said


def test_a_message_too_large_for_the_topic_fails_and_says_so(shell: Shell) -> None:
    shell.run("topic", "create", "tiny", "--set", "max.message.bytes=1000")
    ended = shell.run("produce", "tiny", "-m", "small", code=0)
    ended = shell.run("produce", "tiny", "-m", "x" * 5000, code=1)
    assert "1 message was not acknowledged" in ended.err
    assert "MSG_SIZE_TOO_LARGE" in ended.err
    assert "tiny takes at most 1,000 bytes at once" in ended.err
    assert "respool topic alter tiny --set max.message.bytes=" in ended.err
    assert shell.run("consume", "tiny").out == "small\n"
    # Sent together they would be too large; one by one none is.
    lines = b"".join(b"message %d\n" % number for number in range(1_000))
    shell.run("produce", "tiny", stdin=lines)
    assert shell.run("consume", "tiny").out == "small\n" + lines.decode()


def test_a_message_without_a_key_is_explained_where_one_is_needed(shell: Shell) -> None:
    shell.run("topic", "create", "keyed", "--set", "cleanup.policy=compact")
    ended = shell.run("produce", "keyed", stdin=b"one\ntwo\n", code=1)
    assert "2 messages were not acknowledged" in ended.err
    assert "every message needs a key" in ended.err
    assert "--key-separator" in ended.err
    assert "1 message (" in shell.run("produce", "keyed", "-m", "one", "--key", "k").err
    assert "keyed\t1\tup to 1\t" in shell.run("topic", "list").out


def test_a_time_the_topic_does_not_take_is_explained(shell: Shell) -> None:
    shell.run("topic", "create", "clocked", "--set", "message.timestamp.before.max.ms=1h")
    old = b'{"value": "v", "timestamp": 1000}\n'
    ended = shell.run("produce", "clocked", "--json-lines", stdin=old, code=1)
    assert "clocked takes timestamps at most 1h before" in ended.err


def test_a_misspelt_setting_is_guessed(shell: Shell) -> None:
    wrong = shell.run("topic", "create", "guessed", "--set", "retentoin.ms=1d", code=2)
    assert "did you mean retention.ms?" in wrong.err


def test_an_empty_range_is_told(shell: Shell) -> None:
    shell.run("topic", "create", "range")
    shell.run("produce", "range", "-m", "a")
    backwards = shell.run("consume", "range", "--since", "now", "--until", "1 hour ago")
    assert backwards.out == ""
    assert "the range is empty" in backwards.err
    assert "the range is empty" not in shell.run("consume", "range", "--until", "now").err


def test_the_log_is_sound_while_it_is_written_and_after_a_kill(shell: Shell) -> None:
    broker = shell.broker
    # Segments are no larger than their limit and a batch.
    small = ("--set", "segment.bytes=64KiB", "--set", "max.message.bytes=16KiB")
    shell.run("topic", "create", "checked", *small, "--partitions", "2")
    writing = broker.begin("produce", "checked", stdin=subprocess.PIPE)
    assert writing.stdin is not None
    for part in range(10):
        lines = (b"%d.%d some words to fill segments\n" % (part, n) for n in range(3_000))
        writing.stdin.write(b"".join(lines))
        writing.stdin.flush()
        # The broker writes these lines now, or soon.
        assert sound(shell)["ok"]
    writing.stdin.close()
    assert writing.wait(WAIT_SECONDS) == 0
    broker.end(signal.SIGKILL)
    report = sound(shell)
    assert report["record_count"] >= 30_000
    assert report["segment_count"] > 10
    broker.start()
    assert len(shell.run("consume", "checked").out.splitlines()) == 30_000
    [first, *_] = sorted((broker.data / "checked-0").glob("*.log"))
    dumped = shell.run("log", "dump", str(first), "--records", "--json", "--limit", "1").out
    assert json.loads(dumped)["records"][0]["offset"] == 0


def sound(shell: Shell) -> dict[str, int]:
    report: dict[str, int] = json.loads(
        shell.run("log", "verify", str(shell.broker.data), "--json").out
    )
    return report


def test_a_follower_goes_on_when_the_broker_comes_back(shell: Shell) -> None:
    shell.run("produce", "lasting", "-m", "before")
    process = shell.broker.begin("consume", "lasting", "--follow", "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = Lines(process.stdout), Lines(process.stderr)
    out.wait_for(b"before")
    shell.broker.end(signal.SIGTERM)
    err.wait_for(b"went away")
    unreachable = shell.run("topic", "list", code=4)
    assert "respool serve" in unreachable.err
    shell.broker.start()
    shell.run("produce", "lasting", "-m", "after")
    out.wait_for(b"after")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 130
    assert out.finish() == b"before\nafter\n"
    assert b"the broker answers again" in err.finish()


def test_the_settings_printed_are_those_in_force(shell: Shell, tmp_path: Path) -> None:
    printed = shell.run("serve", "--set", "num_partitions=7", "--print-config").out
    assert "num_partitions = 7\n" in printed
    file = tmp_path / "respool.toml"
    file.write_text(printed)
    assert shell.run("serve", "--config", str(file), "--print-config").out == printed


def test_a_wrong_setting_is_told_and_nothing_is_started(shell: Shell) -> None:
    assert "nonsense" in shell.run("serve", "--set", "nonsense=1", code=2).err
    assert "--insecure" in shell.run("serve", "--listen", "0.0.0.0:0", code=2).err


def test_a_data_folder_in_use_is_told_without_a_traceback(shell: Shell) -> None:
    broker = shell.broker
    second = broker.begin("serve", "--data", str(broker.data), "--listen", "127.0.0.1:0")
    out, err = second.communicate(timeout=WAIT_SECONDS)
    assert (second.returncode, out) == (1, b"")
    assert str(broker.data).encode() in err
    assert b"Traceback" not in err
