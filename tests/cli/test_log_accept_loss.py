"""`respool log accept-loss` on the data folder of a real broker, from the damage to the partition that serves again."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cli.running import Run
from respool.drivers.folder_lock import FolderLock
from respool.testing import Broker
from support.quick_broker import quick_broker

MESSAGES = 9


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[Broker]:
    """Stopped, with a topic of nine messages, each a batch of its own."""
    with quick_broker(data=data) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(MESSAGES):
            producer.produce("rides", value=f"ride {number}", partition=0)
            assert producer.flush(30) == 0
        broker.stop()
        yield broker


def consumed(run: Run, broker: Broker) -> list[str]:
    ended = run("consume", "rides", "--broker", broker.bootstrap)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def flip_a_byte_of_the_sixth(data: Path) -> None:
    path = data / "rides-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // MESSAGES * 5 + 65] ^= 1
    path.write_bytes(content)


def test_a_damaged_partition_serves_what_is_left_once_the_rest_is_given_up(
    run: Run, broker: Broker, data: Path
) -> None:
    flip_a_byte_of_the_sixth(data)
    verified = run("log", "verify", str(data))
    assert verified.code == 1
    assert "respool log accept-loss DATA_FOLDER TOPIC-PARTITION" in verified.out

    ended = run("log", "accept-loss", str(data), "rides-0", "--yes")

    assert ended.code == 0, ended.err
    assert "was on the disk: up to offset 9" in ended.out
    assert "what is left:    offsets 0 to 4" in ended.out
    assert "lost:            offsets 5 to 8, up to 4 messages" in ended.out
    assert "rides-0 continues at offset 5" in ended.out
    broker.start()
    assert consumed(run, broker) == [f"ride {number}" for number in range(5)]
    broker.stop()
    assert run("log", "verify", str(data)).code == 0


def test_a_partition_without_its_folder_serves_again_once_that_is_given_up(
    run: Run, broker: Broker, data: Path
) -> None:
    shutil.rmtree(data / "rides-0")

    ended = run("log", "accept-loss", str(data), "rides-0", "--yes")

    assert ended.code == 0, ended.err
    assert "nothing, its folder is missing" in ended.out
    assert "up to 9 messages" in ended.out
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("rides", value="ride 9", partition=0)
    assert producer.flush(30) == 0
    assert consumed(run, broker) == ["ride 9"]
    broker.stop()


def test_without_a_yes_nothing_changes(run: Run, broker: Broker, data: Path) -> None:
    flip_a_byte_of_the_sixth(data)
    files = [path for path in data.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: path.read_bytes() for path in files}

    ended = run("log", "accept-loss", str(data), "rides-0")

    assert ended.code == 2
    assert "up to 4 messages" in ended.out
    assert "--yes" in ended.err
    assert {path: path.read_bytes() for path in files} == before


def test_a_sound_partition_is_left_as_it_is(run: Run, broker: Broker, data: Path) -> None:
    ended = run("log", "accept-loss", str(data), "rides-0", "--yes")
    assert ended.code == 0
    assert "nothing that was on the disk is missing; nothing was changed" in ended.out
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_running_broker_must_be_stopped_first(run: Run, broker: Broker, data: Path) -> None:
    with FolderLock(str(data)):
        ended = run("log", "accept-loss", str(data), "rides-0", "--yes")
    assert ended.code == 1
    assert "is in use by process" in ended.err
    assert "stop the broker first" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("data", "rides"), 2, "'rides' is no partition"),
        (("data", "rides-7"), 3, "there is no partition rides-7"),
        (("data/rides-0", "rides-0"), 3, "is not a data folder"),
    ],
)
def test_what_is_not_there_is_said(
    *, run: Run, broker: Broker, data: Path, arguments: tuple[str, str], code: int, words: str
) -> None:
    folder, partition = arguments
    ended = run("log", "accept-loss", str(data.parent / folder), partition, "--yes")
    assert (ended.code, words in ended.err) == (code, True)
    assert not (data / "rides-0" / ".lock").exists()
