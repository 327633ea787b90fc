"""Transactions in a compacted log: what was aborted goes, and a marker goes when nothing is left that needs it."""

import dataclasses
from struct import pack

import pytest

from log.compaction_world import COMPACT, EPOCH, SCANNERS, CompactionWorld, keyed
from respool.log.compaction.batch_cleaner import CleanedTransactions
from respool.log.partition_log import AbortedTransaction, CompactionTools
from respool.model.ids import Offset
from respool.ports.record_scan import RecordScanner
from respool.records.batch import BatchHeader, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker

ADA, BOB = 7, 8


def header(producer: int, offset: int) -> BatchHeader:
    data = build_batch(
        [keyed("k")], base_offset=offset, producer_id=producer, is_transactional=True
    )
    return read_header(data)


def aborted(producer: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer, Offset(first), Offset(last), Offset(last + 1))


def test_data_of_an_aborted_transaction_is_told_from_that_of_others() -> None:
    transactions = CleanedTransactions([aborted(ADA, 3, 6)], begin=Offset(0))
    assert not transactions.is_aborted(header(ADA, 1))
    assert transactions.is_marker_needed(header(ADA, 2), is_commit=True)
    assert transactions.is_aborted(header(ADA, 3))
    assert not transactions.is_aborted(header(BOB, 4))
    assert transactions.is_marker_needed(header(ADA, 6), is_commit=False)
    assert not transactions.is_aborted(header(ADA, 7))
    assert transactions.take_aborted_with_data() == [aborted(ADA, 3, 6)]


def test_a_marker_without_data_is_not_needed() -> None:
    transactions = CleanedTransactions([aborted(ADA, 3, 6)], begin=Offset(0))
    assert not transactions.is_marker_needed(header(ADA, 6), is_commit=False)
    assert not transactions.is_marker_needed(header(BOB, 7), is_commit=True)
    assert transactions.take_aborted_with_data() == []


def test_a_transaction_that_ended_before_is_not_waited_for() -> None:
    transactions = CleanedTransactions([aborted(ADA, 3, 6)], begin=Offset(7))
    assert not transactions.is_aborted(header(ADA, 8))
    reaching = CleanedTransactions([aborted(ADA, 3, 9)], begin=Offset(7))
    assert reaching.is_aborted(header(ADA, 8))


# -- in a log ----------------------------------------------------------------------------------------------------------


def append(world: CompactionWorld, producer: int, *records: NewRecord) -> None:
    """As a coordinator of groups would: sequences are not what this is about."""
    data = build_batch(
        records, producer_id=producer, producer_epoch=0, is_transactional=producer >= 0
    )
    batch = RecordBatch(read_header(data), data)
    guard = world.log.begin_verification(batch.header) if producer >= 0 else None
    world.log.append(batch, leader_epoch=EPOCH, now_ms=world.now_ms, guard=guard)


def end(world: CompactionWorld, producer: int, *, is_commit: bool) -> None:
    marker = EndTransactionMarker(
        producer_id=producer, producer_epoch=0, coordinator_epoch=1, is_commit=is_commit
    )
    world.log.append_marker(marker, leader_epoch=EPOCH, now_ms=500)


def compact(world: CompactionWorld) -> None:
    world.log._parts.producers.expire(10**15)
    world.log._parts.producers.expire(3 * 10**15)
    world.log._parts.roll(world.now_ms)
    world.sync()
    tools = CompactionTools(scanner=world.scanner, memory_bytes_max=10**6, secret=bytes(16))
    compaction = world.log.begin_compaction(
        now_ms=world.now_ms, bound=world.log.log_end, tools=tools
    )
    assert compaction is not None
    while not compaction.is_complete:
        compaction.run()
        world.log.finish_compaction(compaction)


def offsets(world: CompactionWorld) -> list[int]:
    return [one.offset for batch in world.batches() for one in batch.records]


def new_world(scanner: RecordScanner) -> CompactionWorld:
    config = dataclasses.replace(COMPACT, segment_bytes=10_000, delete_retention_ms=1000)
    world = CompactionWorld.new(0, config)
    world.scanner = scanner
    return world


@pytest.mark.parametrize("scanner", SCANNERS)
def test_an_aborted_record_does_not_hide_the_one_before_it(scanner: RecordScanner) -> None:
    world = new_world(scanner)
    append(world, BOB, keyed("a", "1"), keyed("b", "2"))
    end(world, BOB, is_commit=True)
    append(world, ADA, keyed("a", "aborted"), keyed("c", "aborted"))
    end(world, ADA, is_commit=False)
    compact(world)
    # Both records of Bob's, his marker, and Ada's marker, which ended something that was there until now.
    assert offsets(world) == [0, 1, 2, 5]


@pytest.mark.parametrize("scanner", SCANNERS)
def test_a_marker_stays_its_time_after_its_data(scanner: RecordScanner) -> None:
    world = new_world(scanner)
    append(world, ADA, keyed("a", "aborted"))
    end(world, ADA, is_commit=False)
    append(world, BOB, keyed("b", "old"))
    end(world, BOB, is_commit=True)
    append(world, -1, keyed("b", "new"))
    compact(world)
    assert offsets(world) == [1, 3, 4]
    assert not any(one.header.has_delete_horizon for one in world.batches())

    # Now the data is gone, and their time begins.
    append(world, -1, keyed("x"))
    compact(world)
    assert offsets(world) == [1, 3, 4, 5]
    markers = [one for one in world.batches() if one.header.is_control]
    assert [one.header.base_timestamp for one in markers] == [world.now_ms + 1000] * 2
    assert [one.records[0].timestamp for one in markers] == [500, 500]

    world.now_ms += 999
    append(world, -1, keyed("y"))
    compact(world)
    assert offsets(world) == [1, 3, 4, 5, 6]

    world.now_ms += 1
    append(world, -1, keyed("z"))
    compact(world)
    assert offsets(world) == [4, 5, 6, 7]


def test_a_control_batch_of_another_kind_is_left_alone() -> None:
    world = new_world(SCANNERS[0])
    for key in (pack(">hh", 0, 2), b"?"):
        data = build_batch([NewRecord(key=key, value=b"leader change")], is_control=True)
        batch = RecordBatch(read_header(data), data)
        world.log.append(batch, leader_epoch=EPOCH, now_ms=world.now_ms)
    compact(world)
    assert offsets(world) == [0, 1]


def test_the_last_marker_of_a_producer_that_is_still_known_stays() -> None:
    """It has the producer's epoch, by which an older one is refused."""
    world = new_world(SCANNERS[0])
    end(world, ADA, is_commit=True)
    append(world, -1, keyed("x"))
    compact(world)
    world.now_ms += 5000
    end(world, BOB, is_commit=True)
    world.log._parts.roll(world.now_ms)
    world.sync()
    tools = CompactionTools(scanner=world.scanner, memory_bytes_max=10**6, secret=bytes(16))
    for _ in range(3):
        compaction = world.log.begin_compaction(
            now_ms=world.now_ms, bound=world.log.log_end, tools=tools
        )
        assert compaction is not None
        while not compaction.is_complete:
            compaction.run()
            world.log.finish_compaction(compaction)
        world.now_ms += 5000
        append(world, -1, keyed("y"))
        world.log._parts.roll(world.now_ms)
        world.sync()
    kept = [one.header.producer_id for one in world.batches() if one.header.is_control]
    assert kept == [BOB]
