"""Compaction on real files, with the work and readers in other threads, and with the compiled kernels."""

import dataclasses
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from log.compaction_world import COMPACT, EPOCH, EXPIRATION_MS, SCANNERS, batch_of, keyed
from respool.drivers.local_disk import LocalDisk
from respool.inspect.verify import verify_paths
from respool.log.partition_log import CompactionTools, PartitionLog, ReadSpec, RemovedSegment
from respool.model.ids import Offset
from respool.ports.record_scan import RecordScanner
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.record import read_records
from respool.records.validate import check_stored

CONFIG = dataclasses.replace(
    COMPACT, segment_bytes=20_000, segment_index_bytes=4800, delete_retention_ms=0
)


def open_log(root: Path, *, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        disk=LocalDisk(str(root)),
        folder="rides-0",
        config=CONFIG,
        now_ms=1000,
        log_start=Offset(0),
        recovery_point=Offset(recovery_point),
        clean=False,
        producer_expiration_ms=EXPIRATION_MS,
    )


def read_all(log: PartitionLog) -> dict[bytes, bytes]:
    """What a reader knows in the end; every batch is sound and comes after the one before."""
    state: dict[bytes, bytes] = {}
    offset, end = log.log_start, log.log_end
    while offset < end:
        data = log.read(ReadSpec(offset, max_offset=end, bytes_max=5000))
        at = 0
        while len(data) - at >= 61 and at + read_header(data, at).size <= len(data):
            header = read_header(data, at)
            whole = data[at : at + header.size]
            assert check_stored(header, whole)
            assert header.last_offset >= offset
            for one in read_records(RecordBatch(header, whole), limit=10**6):
                assert one.key is not None
                state[one.key] = one.value or b""
            offset = header.next_offset
            at += header.size
        assert at
    return state


def compact(log: PartitionLog, scanner: RecordScanner, now_ms: int) -> list[RemovedSegment]:
    tools = CompactionTools(
        scanner=scanner, memory_bytes_max=10**7, secret=bytes(16), slice_bytes=10_000
    )
    compaction = log.begin_compaction(now_ms=now_ms, bound=log.synced_end, tools=tools)
    removed: list[RemovedSegment] = []
    if compaction is not None:
        while not compaction.is_complete:
            worker = Thread(target=compaction.run)
            worker.start()
            worker.join()
            removed += log.finish_compaction(compaction)
    return removed


def sync(log: PartitionLog) -> None:
    if (pending := log.begin_sync()) is not None:
        pending.run()
        log.finish_sync(pending)


@pytest.mark.parametrize("scanner", SCANNERS)
def test_readers_in_other_threads_see_a_log_at_every_moment(
    tmp_path: Path, scanner: RecordScanner
) -> None:
    log = open_log(tmp_path)
    rng = Random(1)
    stop = Event()
    failures: list[BaseException] = []

    def read_again_and_again() -> None:
        try:
            while not stop.is_set():
                read_all(log)
                log.first_at_or_after(rng.randrange(3000), max_offset=log.log_end)
        except BaseException as error:
            failures.append(error)

    readers = [Thread(target=read_again_and_again) for _ in range(2)]
    for reader in readers:
        reader.start()
    expected: dict[bytes, bytes] = {}
    try:
        for number in range(600):
            records = [keyed(str(rng.randrange(100)), str(number), at_ms=number) for _ in range(10)]
            expected |= {one.key or b"": one.value or b"" for one in records}
            codec = rng.choice(list(Codec))
            log.append(batch_of(*records, codec=codec), leader_epoch=EPOCH, now_ms=number)
            if number % 40 == 0:
                sync(log)
                for removed in compact(log, scanner, now_ms=number):
                    removed.delete()
                # As the broker does now and then: files that nobody uses are let go of.
                log.apply_retention(now_ms=number, high_watermark=log.synced_end)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert failures == []
    assert read_all(log) == expected
    assert log.cleaned_end > 0
    sync(log)
    log.close()
    assert verify_paths([tmp_path / "rides-0"]).findings == []
    again = open_log(tmp_path)
    assert read_all(again) == expected
    again.close()
