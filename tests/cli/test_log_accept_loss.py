"""`respool log accept-loss` on the data folder of a real broker, from the damage to the partition that serves again."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cli.running import Run
from respool.drivers.folder_lock import FolderLock
from support.broker_process import BrokerProcess

MESSAGES = 9


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Stopped, with a topic of nine messages, each a batch of its own."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(MESSAGES):
        producer.produce("rides", value=f"ride {number}", partition=0)
        assert producer.flush(30) == 0
    broker.stop()
    yield broker
    if broker.is_running:
        broker.stop()


def consumed(run: Run, broker: BrokerProcess) -> list[str]:
    ended = run("consume", "rides", "--broker", broker.address)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def flip_a_byte_of_the_sixth(data: Path) -> None:
    path = data / "rides-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // MESSAGES * 5 + 65] ^= 1
    path.write_bytes(content)


def test_a_damaged_partition_serves_what_is_left_once_the_rest_is_given_up(
    run: Run, broker: BrokerProcess
) -> None:
    flip_a_byte_of_the_sixth(broker.data)
    verified = run("log", "verify", str(broker.data))
    assert verified.code == 1
    assert "respool log accept-loss DATA_FOLDER TOPIC-PARTITION" in verified.out

    ended = run("log", "accept-loss", str(broker.data), "rides-0", "--yes")

    assert ended.code == 0, ended.err
    assert "was on the disk: up to offset 9" in ended.out
    assert "what is left:    offsets 0 to 4" in ended.out
    assert "lost:            offsets 5 to 8, up to 4 messages" in ended.out
    assert "rides-0 continues at offset 5" in ended.out
    broker.start()
    assert consumed(run, broker) == [f"ride {number}" for number in range(5)]
    broker.stop()
    broker.check()
    assert run("log", "verify", str(broker.data)).code == 0


def test_a_partition_without_its_folder_serves_again_once_that_is_given_up(
    run: Run, broker: BrokerProcess
) -> None:
    shutil.rmtree(broker.data / "rides-0")

    ended = run("log", "accept-loss", str(broker.data), "rides-0", "--yes")

    assert ended.code == 0, ended.err
    assert "nothing, its folder is missing" in ended.out
    assert "up to 9 messages" in ended.out
    broker.start()
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("rides", value="ride 9", partition=0)
    assert producer.flush(30) == 0
    assert consumed(run, broker) == ["ride 9"]
    broker.stop()
    broker.check()


def test_without_a_yes_nothing_changes(run: Run, broker: BrokerProcess) -> None:
    flip_a_byte_of_the_sixth(broker.data)
    files = [path for path in broker.data.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: path.read_bytes() for path in files}

    ended = run("log", "accept-loss", str(broker.data), "rides-0")

    assert ended.code == 2
    assert "up to 4 messages" in ended.out
    assert "--yes" in ended.err
    assert {path: path.read_bytes() for path in files} == before


def test_a_sound_partition_is_left_as_it_is(run: Run, broker: BrokerProcess) -> None:
    ended = run("log", "accept-loss", str(broker.data), "rides-0", "--yes")
    assert ended.code == 0
    assert "nothing that was on the disk is missing; nothing was changed" in ended.out
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_a_running_broker_must_be_stopped_first(run: Run, broker: BrokerProcess) -> None:
    with FolderLock(str(broker.data)):
        ended = run("log", "accept-loss", str(broker.data), "rides-0", "--yes")
    assert ended.code == 1
    assert "is in use by process" in ended.err
    assert "stop the broker first" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("data", "rides"), 2, "'rides' is no partition"),
        (("data", "rides-7"), 3, "there is no partition rides-7"),
        (("data/rides-0", "rides-0"), 3, "is no data folder"),
    ],
)
def test_what_is_not_there_is_said(
    run: Run, broker: BrokerProcess, arguments: tuple[str, str], code: int, words: str
) -> None:
    folder, partition = arguments
    ended = run("log", "accept-loss", str(broker.data.parent / folder), partition, "--yes")
    assert (ended.code, words in ended.err) == (code, True)
    assert not (broker.data / "rides-0" / ".lock").exists()
