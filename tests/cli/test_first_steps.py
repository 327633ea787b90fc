"""What a newcomer ran into, one test each."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run
from respool.testing import Broker

pytestmark = pytest.mark.clients


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def segment_of(broker: Broker, partition: str) -> Path:
    (segment,) = (Path(broker.data) / partition).glob("*.log")
    return segment


def test_a_broker_that_creates_no_topics_is_told_of_at_once(run: Run) -> None:
    with Broker(settings={"auto_create_topics": False}) as broker:
        done = run("produce", "rides", "-b", broker.bootstrap, stdin=b"hello\n")
    assert done.code == 3
    assert "respool topic create rides" in done.err


def test_damaged_bytes_are_not_printed_as_if_they_were_good(run: Run, broker: Broker) -> None:
    run("produce", "rides", "-b", broker.bootstrap, stdin=b"one\ntwo\nthree\n")
    broker.stop()
    segment = segment_of(broker, "rides-0")
    content = bytearray(segment.read_bytes())
    content[-2] ^= 0xFF
    segment.write_bytes(content)
    broker.start()
    done = run("consume", "rides", "-b", broker.bootstrap)
    assert done.code != 0
    assert done.out == ""


def test_what_comes_before_damage_is_printed_and_the_damage_is_named(
    run: Run, broker: Broker
) -> None:
    run("topic", "create", "rides", "--partitions", "1", "-b", broker.bootstrap)
    for word in (b"one", b"two", b"three"):
        run("produce", "rides", "-b", broker.bootstrap, stdin=word + b"\n")
    broker.stop()
    segment = segment_of(broker, "rides-0")
    segment.write_bytes(segment.read_bytes().replace(b"two", b"tow"))
    broker.start()
    done = run("consume", "rides", "-b", broker.bootstrap)
    rest = run("consume", "rides", "--offset", "2", "-b", broker.bootstrap)
    assert done.code == 1
    assert done.out == "one\n"
    assert "partition 0 of rides cannot be read at offset 1" in done.err
    assert "respool log verify DATA" in done.err
    assert "respool consume rides --partition 0 --offset N" in done.err
    assert (rest.code, rest.out) == (0, "three\n")


def test_an_offline_partition_is_told_with_where_to_look(run: Run, broker: Broker) -> None:
    run("topic", "create", "rides", "--partitions", "2", "-b", broker.bootstrap)
    run("produce", "rides", "--partition", "1", "-b", broker.bootstrap, stdin=b"one\n")
    broker.stop()
    shutil.rmtree(Path(broker.data) / "rides-1")
    broker.start()
    done = run("consume", "rides", "-b", broker.bootstrap)
    assert done.code == 1
    assert "partition 1 of rides is offline: it has no leader" in done.err
    assert "respool log verify DATA" in done.err


def test_a_replication_factor_is_taken_or_refused_by_the_broker_in_words(
    run: Run, broker: Broker
) -> None:
    create = ("topic", "create", "-b", broker.bootstrap, "--replication-factor")
    done = run(*create, "1", "rides")
    refused = run(*create, "3", "fares")
    found = run("topic", "list", "-b", broker.bootstrap)
    assert done.code == 0
    assert refused.code == 1
    assert "replication factor" in refused.err.lower()
    assert "3" in refused.err
    assert [line.split("\t")[0] for line in found.out.splitlines()] == ["rides"]


def test_too_many_partitions_are_refused_in_words(run: Run) -> None:
    done = run("topic", "create", "rides", "--partitions", "1000000", "-b", "127.0.0.1:1")
    assert done.code == 2
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_told_of_with_a_way_out(tmp_path: Path, broker: Broker) -> None:
    """A process of its own: `serve` has signal handlers, and an event loop to end."""
    serve = [sys.executable, "-m", "respool.cli", "serve", f"--data={tmp_path}"]
    done = subprocess.run(
        [*serve, f"--listen={broker.bootstrap}"],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 1
    assert "--listen" in done.stderr
