"""Bytes that a crash or a bad disk took: a torn end is cut back, damage before it takes the partition offline."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from crash.conftest import StartBroker
from respool.records.build import NewRecord, build_batch
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.raw_client import RawClient
from support.stored import StoredBatch, stored_batches
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("damage")]

KAFKA_STORAGE_ERROR = 56
NEVER_MS = 3_600_000
BATCHES = 6

Damage = Callable[[StoredBatch], None]


def cut_after_header(batch: StoredBatch) -> None:
    with batch.path.open("r+b") as file:
        file.truncate(batch.position + 70)


def cut_inside_header(batch: StoredBatch) -> None:
    with batch.path.open("r+b") as file:
        file.truncate(batch.position + 20)


def flip_a_record_byte(batch: StoredBatch) -> None:
    _flip(batch.path, batch.position + batch.size - 3)


def flip_a_length_byte(batch: StoredBatch) -> None:
    _flip(batch.path, batch.position + 9)


def write_zeros(batch: StoredBatch) -> None:
    with batch.path.open("r+b") as file:
        file.seek(batch.position)
        file.write(bytes(batch.size))


def remove(batch: StoredBatch) -> None:
    batch.path.unlink()


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x40]))


DAMAGES: tuple[Damage, ...] = (
    cut_after_header,
    cut_inside_header,
    flip_a_record_byte,
    flip_a_length_byte,
    write_zeros,
)


def batch_of(text: bytes) -> bytes:
    return build_batch([NewRecord(value=text)])


def write_batches(broker: BrokerProcess, topics: Iterable[str]) -> None:
    with RawClient(broker.address) as client:
        for topic in topics:
            for number in range(BATCHES):
                answer = client.produce(topic, batch_of(b"%d %s" % (number, b"x" * 50)))
                assert answer.error_code == 0
            assert len(stored_batches(broker.data, (topic, 0))) == BATCHES


def wait_for_checkpoint(broker: BrokerProcess, topics: Iterable[str]) -> None:
    """All six batches of each count as synced from now on, also after a crash."""
    path = broker.data / "recovery-point-offset-checkpoint"
    wanted = {f"{topic} 0 {BATCHES}" for topic in topics}
    wait_until(
        lambda: path.exists() and wanted <= set(path.read_text().splitlines()),
        "the recovery points are written",
    )


def read_values(broker: BrokerProcess, topic: str) -> list[int]:
    received = ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]
    assert [one.offset for one in received] == list(range(len(received)))
    return [int((one.value or b"").split()[0]) for one in received]


def test_a_torn_end_is_cut_back_to_the_last_sound_batch(start_broker: StartBroker) -> None:
    broker = start_broker(checkpoint_ms=NEVER_MS)
    topics = Topics(broker.address)
    torn = {topics.new("torn"): damage for damage in DAMAGES}
    write_batches(broker, torn)
    broker.kill()
    for topic, damage in torn.items():
        damage(stored_batches(broker.data, (topic, 0))[4])
    broker.start()
    with RawClient(broker.address) as client:
        for topic in torn:
            assert read_values(broker, topic) == [0, 1, 2, 3]
            answer = client.produce(topic, batch_of(b"9 after"))
            assert (answer.error_code, answer.base_offset) == (0, 4)
    # What was cut does not come back, and the repaired log is one that a clean start believes.
    broker.restart()
    for topic in torn:
        assert read_values(broker, topic) == [0, 1, 2, 3, 9]


def test_damage_below_the_recovery_point_takes_only_that_partition_offline(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    topics = Topics(broker.address)
    sound = topics.new("sound")
    damaged = {topics.new("damaged"): damage for damage in (*DAMAGES, remove)}
    write_batches(broker, [sound, *damaged])
    wait_for_checkpoint(broker, [sound, *damaged])
    broker.kill()
    for topic, damage in damaged.items():
        damage(stored_batches(broker.data, (topic, 0))[2])
    before = {path: path.read_bytes() for path in broker.data.glob("damaged-*/*.log")}

    broker.foresee("damaged-.* cannot be opened and is offline")
    broker.start()
    for topic in damaged:
        broker.wait_for_log(f"ERROR .*{topic}-0 cannot be opened and is offline: .* offset ")
    with RawClient(broker.address) as client:
        for topic in damaged:
            assert client.fetch(topic).error_code == KAFKA_STORAGE_ERROR
            assert client.produce(topic, batch_of(b"v")).error_code == KAFKA_STORAGE_ERROR
        # The other partition reads and writes as ever.
        assert client.produce(sound, batch_of(b"9 after")).error_code == 0
    assert read_values(broker, sound) == [0, 1, 2, 3, 4, 5, 9]
    # Nothing was cut off the damaged logs: the operator may still have use for them.
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_lost_or_damaged_index_is_made_anew(start_broker: StartBroker, suffix: str) -> None:
    broker = start_broker()
    # An index entry for every batch, and several segments.
    topic = Topics(broker.address).new("indexed", index_interval_bytes=0, segment_bytes=1024)
    with RawClient(broker.address) as client:
        for _ in range(5):
            batch = build_batch([NewRecord(value=b"x" * 500, timestamp_ms=5_000)])
            assert client.produce(topic, batch).error_code == 0
    broker.kill()
    paths = sorted(broker.data.glob(f"{topic}-0/*{suffix}"))
    assert len(paths) > 2
    paths[0].unlink()
    paths[1].write_bytes(b"\xff" * 24)
    broker.start()
    received = ConfluentClient().read_from(broker.address, (topic, 0), 3, count=2)
    assert [one.offset for one in received] == [3, 4]
    assert ConfluentClient().offset_at(broker.address, (topic, 0), 5_000) == 0
    assert ConfluentClient().offset_at(broker.address, (topic, 0), 5_001) is None
