"""What a newcomer ran into, one test each."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


def respool(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "respool.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def test_a_broker_that_creates_no_topics_is_told_of_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"auto_create_topics": False}) as broker:
        done = respool("produce", "rides", "-b", broker.address, stdin="hello\n")
    assert done.returncode == 3
    assert "respool topic create rides" in done.stderr


def test_damaged_bytes_are_not_printed_as_if_they_were_good(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    respool("produce", "rides", "-b", broker.address, stdin="one\ntwo\nthree\n")
    broker.stop()
    (segment,) = (tmp_path / "data" / "rides-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-2] ^= 0xFF
    segment.write_bytes(content)
    broker.start()
    done = respool("consume", "rides", "-b", broker.address)
    broker.stop()
    assert done.returncode != 0
    assert done.stdout == ""


def test_what_comes_before_damage_is_printed_and_the_damage_is_named(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    respool("topic", "create", "rides", "--partitions", "1", "-b", broker.address)
    for word in ("one", "two", "three"):
        respool("produce", "rides", "-b", broker.address, stdin=f"{word}\n")
    broker.stop()
    (segment,) = (tmp_path / "data" / "rides-0").glob("*.log")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"two", b"tow"))
    broker.start()
    done = respool("consume", "rides", "-b", broker.address)
    rest = respool("consume", "rides", "--offset", "2", "-b", broker.address)
    broker.stop()
    assert done.returncode == 1
    assert done.stdout == "one\n"
    assert "partition 0 of rides cannot be read at offset 1" in done.stderr
    assert "respool log verify DATA" in done.stderr
    assert "respool consume rides --partition 0 --offset N" in done.stderr
    assert (rest.returncode, rest.stdout) == (0, "three\n")


def test_an_offline_partition_is_told_with_where_to_look(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    respool("topic", "create", "rides", "--partitions", "2", "-b", broker.address)
    respool("produce", "rides", "--partition", "1", "-b", broker.address, stdin="one\n")
    broker.stop()
    shutil.rmtree(tmp_path / "data" / "rides-1")
    broker.start()
    done = respool("consume", "rides", "-b", broker.address)
    broker.stop()
    assert done.returncode == 1
    assert "partition 1 of rides is offline: it has no leader" in done.stderr
    assert "respool log verify DATA" in done.stderr


def test_a_replication_factor_is_taken_or_refused_by_the_broker_in_words(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create = ("topic", "create", "-b", broker.address, "--replication-factor")
        done = respool(*create, "1", "rides")
        refused = respool(*create, "3", "fares")
        found = respool("topic", "list", "-b", broker.address)
    assert done.returncode == 0
    assert refused.returncode == 1
    assert "replication factor" in refused.stderr.lower()
    assert "3" in refused.stderr
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ["rides"]


def test_too_many_partitions_are_refused_in_words(tmp_path: Path) -> None:
    done = respool("topic", "create", "rides", "--partitions", "1000000", "-b", "127.0.0.1:1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told_of_with_a_way_out(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        done = respool("serve", "--data", str(tmp_path / "other"), "--listen", broker.address)
    assert done.returncode == 1
    assert "--listen" in done.stderr
