"""The same log on real files, and with readers in other threads."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from log.log_world import EXPIRATION_MS, SMALL, batch_of
from respool.drivers.local_disk import LocalDisk
from respool.local_reads.local_file_read import read_file_range
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.records.batch import read_header
from respool.records.validate import walk_batches

CONFIG = dataclasses.replace(
    SMALL, segment_bytes=20_000, segment_index_bytes=4800, segment_ms=10**12
)


class RealLog:
    def __init__(self, root: Path, config: TopicConfig = CONFIG) -> None:
        self.root = root
        self.config = config
        self.open(recovery_point=0, clean=False)

    def open(self, *, recovery_point: int, clean: bool, log_start: int = 0) -> None:
        self.log = PartitionLog.open(
            disk=LocalDisk(str(self.root)),
            folder="rides-0",
            config=self.config,
            now_ms=1000,
            log_start=Offset(log_start),
            recovery_point=Offset(recovery_point),
            clean=clean,
            producer_expiration_ms=EXPIRATION_MS,
        )

    def append(self, number: int) -> None:
        batch = batch_of(1000 + number, value=number.to_bytes(4, "big") * (1 + number % 70))
        self.log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=1000 + number)

    def sync(self) -> None:
        pending = self.log.begin_sync()
        if pending is not None:
            pending.run()
            self.log.finish_sync(pending)

    def batches_from(self, offset: int, *, cached_only: bool = False) -> Iterator[bytes]:
        while offset < self.log.log_end:
            data = self.log.read(
                ReadSpec(
                    Offset(offset),
                    max_offset=self.log.log_end,
                    bytes_max=5000,
                    cached_only=cached_only,
                )
            )
            at = 0
            while len(data) - at >= 61 and at + read_header(data, at).size <= len(data):
                header = read_header(data, at)
                yield bytes(data[at : at + header.size])
                at += header.size
                offset = header.next_offset

    def check(self, count: int, *, first: int = 0) -> None:
        assert self.log.log_end == count
        for number, data in enumerate(self.batches_from(first), start=first):
            check_batch(number, data)


def check_batch(number: int, data: bytes) -> None:
    assert read_header(data).base_offset == number
    assert number.to_bytes(4, "big") * (1 + number % 70) in data


def test_a_log_on_real_files_lives_through_stops_and_kills(tmp_path: Path) -> None:
    real = RealLog(tmp_path)
    for number in range(500):
        real.append(number)
    assert real.log.segment_count > 3
    real.check(500)
    real.sync()
    found = real.log.first_at_or_after(1250, max_offset=real.log.log_end)
    assert found == (250, 1250, 0)
    real.log.close()
    real.open(recovery_point=500, clean=True)
    real.check(500)
    for number in range(500, 700):
        real.append(number)
    # As `kill -9` leaves it.
    real.open(recovery_point=500, clean=False)
    real.check(700)
    removed = real.log.apply_retention(now_ms=1, high_watermark=Offset(700))
    assert removed == []
    real.log.raise_log_start(Offset(400))
    for one in real.log.apply_retention(now_ms=1, high_watermark=Offset(700)):
        one.delete()
    real.check(700, first=400)
    real.log.truncate_to(Offset(650))
    real.check(650, first=400)
    real.log.close()
    real.open(recovery_point=650, clean=True, log_start=400)
    real.check(650, first=400)
    deleted = real.log.delete()
    assert deleted is not None
    deleted.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_torn_tail_in_a_real_file_is_cut(tmp_path: Path) -> None:
    real = RealLog(tmp_path)
    for number in range(100):
        real.append(number)
    active = tmp_path / real.log._parts.segments.active.path
    with active.open("ab") as file:
        file.write(bytes(300))
    real.open(recovery_point=0, clean=False)
    real.check(100)
    assert real.log.recovery is not None
    assert real.log.recovery.bytes_truncated == 300


def test_open_files_do_not_grow_with_the_log(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("counts open files in /proc")
    before = open_files()
    real = RealLog(tmp_path)
    for number in range(2000):
        real.append(number)
    real.sync()
    real.check(2000)
    for _ in range(3):
        real.log.apply_retention(now_ms=1, high_watermark=Offset(0))
    assert real.log.segment_count > 10
    assert open_files() - before <= 8
    real.log.close()
    assert open_files() == before


def run_beside(work: Callable[[], None], *readers: Callable[[], None]) -> None:
    """Run `work` here while each reader runs again and again in a thread of its own; raise what any of them raised."""
    done = Event()
    errors: list[BaseException] = []

    def repeat(reader: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                reader()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=repeat, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def test_readers_in_other_threads_see_whole_batches_while_the_log_changes(tmp_path: Path) -> None:
    """Appends, rolls, syncs, removals and clean restarts' first appends, beside reads and lookups."""
    real = RealLog(tmp_path)
    for number in range(300):
        real.append(number)
    real.log.close()
    real.open(recovery_point=300, clean=True)
    log = real.log
    rng = Random(1)

    def work() -> None:
        for number in range(300, 2500):
            real.append(number)
            if number % 50 == 0:
                real.sync()
            if number % 200 == 0:
                log.raise_log_start(Offset(number - 250))
                for one in log.apply_retention(now_ms=1, high_watermark=log.log_end):
                    one.delete()

    def read_somewhere() -> None:
        end = log.log_end
        offset = rng.randrange(log.log_start, end)
        max_offset = Offset(rng.randint(offset, end))
        try:
            data = log.read(ReadSpec(Offset(offset), max_offset=max_offset, bytes_max=3000))
        except OffsetOutOfRange:
            assert offset < log.log_start
            return
        at, number = 0, offset
        while len(data) - at >= 61 and at + read_header(data, at).size <= len(data):
            size = read_header(data, at).size
            check_batch(number, bytes(data[at : at + size]))
            number += 1
            at += size
        assert number <= max_offset
        if at + 61 <= len(data):
            assert read_header(data, at).base_offset < max_offset

    def look_up_time() -> None:
        end = log.log_end
        wanted = rng.randrange(end)
        found = log.first_at_or_after(1000 + wanted, max_offset=end)
        if found is not None:
            assert found.offset == max(wanted, found.offset)
            assert found.timestamp == 1000 + found.offset
            assert found.offset == wanted or wanted < log.log_start
        else:
            assert wanted < log.log_start
        latest = log.latest_timestamp(max_offset=end)
        assert latest is not None
        assert latest.offset == end - 1

    run_beside(work, read_somewhere, read_somewhere, look_up_time)
    real.check(2500, first=log.log_start)


@pytest.mark.parametrize("seed", range(20))
def test_the_place_of_records_leads_to_what_reading_them_returns(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    real = RealLog(tmp_path)
    for number in range(400):
        real.append(number)
    log = real.log
    if rng.random() < 0.5:
        # Segments that were let go of, as after a restart.
        real.sync()
        real.open(recovery_point=log.log_end, clean=True)
        log = real.log
    assert log.segment_count > 1
    for _ in range(50):
        begin = rng.randrange(400)
        asked: dict[str, Any] = {
            "max_offset": Offset(rng.randint(begin, 450)),
            "bytes_max": rng.choice((10, 300, 5_000, 100_000)),
            "at_least_one": rng.random() < 0.8,
        }
        expected = log.read(ReadSpec(Offset(begin), **asked))
        located = log.locate(ReadSpec(Offset(begin), **asked))
        if located is None:
            assert expected == b""
            continue
        file_range = located.file_range
        ends = [header.next_offset for _, header in walk_batches(expected)]
        assert max(ends) <= located.end <= asked["max_offset"]
        target = bytearray(file_range.size)
        read_file_range(file_range, memoryview(target))
        assert bytes(target) == bytes(expected)
        # By this a reader knows that it is what was meant.
        assert file_range.head == bytes(expected[:21])


def test_where_nothing_can_be_read_nothing_is_found_either(tmp_path: Path) -> None:
    real = RealLog(tmp_path)
    real.append(0)
    asked: dict[str, Any] = {"bytes_max": 5_000, "at_least_one": True}
    assert real.log.locate(ReadSpec(Offset(0), max_offset=Offset(0), **asked)) is None
    assert real.log.locate(ReadSpec(Offset(1), max_offset=Offset(1), **asked)) is None
    with pytest.raises(OffsetOutOfRange):
        real.log.locate(ReadSpec(Offset(2), max_offset=Offset(2), **asked))
