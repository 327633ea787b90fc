"""The index of aborted transactions of one segment."""

from random import Random

import pytest

from respool.log.index.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    decode_aborted,
    encode_aborted,
)
from respool.model.errors import DiskFailed, DiskFull, SegmentCorrupt
from respool.model.ids import Offset
from respool.ports.disk import NotCached
from respool.sim.disk.simulated_disk import SimDisk

PATH = "00000000000000000000.txnindex"


def aborted(producer: int, first: int, last: int, stable: int | None = None) -> AbortedTransaction:
    stable = last + 1 if stable is None else stable
    return AbortedTransaction(producer, Offset(first), Offset(last), Offset(stable))


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def filled(disk: SimDisk, *transactions: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(disk, PATH)
    for one in transactions:
        index.prepare(one)
        index.add()
    return index


def found(index: TransactionIndex, begin: int, end: int) -> list[AbortedTransaction]:
    return index.find(Offset(begin), Offset(end))[0]


def test_the_bytes_are_kafkas() -> None:
    one = aborted(1, 2, 3, 4)
    data = bytes([0, 0]) + b"".join(bytes(7) + bytes([number]) for number in (1, 2, 3, 4))
    assert encode_aborted([one]) == data
    assert decode_aborted(data * 2, PATH) == [one, one]


@pytest.mark.parametrize("data", [bytes(33), b"\0\1" + bytes(32)])
def test_what_is_no_entry_is_damage(data: bytes) -> None:
    with pytest.raises(SegmentCorrupt):
        decode_aborted(data, PATH)


def test_without_entries_there_is_no_file(disk: SimDisk) -> None:
    index = TransactionIndex(disk, PATH)
    assert index.all() == []
    assert found(index, 0, 10) == []
    index.truncate_to(Offset(0))
    index.keep_open()
    index.sync()
    assert not disk.exists(PATH)


def test_transactions_that_reach_into_the_range_are_found(disk: SimDisk) -> None:
    one, two, three = aborted(1, 0, 5, 2), aborted(2, 2, 7), aborted(3, 8, 9)
    index = filled(disk, one, two, three)
    assert found(index, 0, 1) == [one]
    assert found(index, 0, 3) == [one, two]
    assert found(index, 6, 8) == [two]
    assert found(index, 8, 20) == [three]
    assert found(index, 10, 20) == []


def test_a_search_for_so_many_ends_with_them(disk: SimDisk) -> None:
    all_of_them = [aborted(1, first, first + 1) for first in range(0, 20, 2)]
    index = filled(disk, *all_of_them)
    for most in (1, 3, 9):
        assert index.find(Offset(0), Offset(20), at_most=most) == (all_of_them[:most], True)
    assert index.find(Offset(0), Offset(20), at_most=11)[0] == all_of_them


def test_a_search_knows_that_nothing_more_can_come(disk: SimDisk) -> None:
    index = filled(disk, aborted(1, 0, 5, 2), aborted(2, 2, 7))
    assert index.find(Offset(0), Offset(2))[1]
    assert index.find(Offset(0), Offset(8))[1]
    assert not index.find(Offset(0), Offset(9))[1]


def test_an_entry_counts_when_its_marker_is_written(disk: SimDisk) -> None:
    index = TransactionIndex(disk, PATH)
    index.prepare(aborted(1, 0, 5))
    assert index.all() == []
    index.undo()
    assert disk.size(PATH) == 0
    index.prepare(aborted(2, 0, 6))
    # Nobody came to undo it.
    index.prepare(aborted(3, 0, 7))
    index.add()
    assert index.all() == [aborted(3, 0, 7)]


def test_an_entry_that_cannot_be_written_changes_nothing(disk: SimDisk) -> None:
    index = filled(disk, aborted(1, 0, 5))
    disk.faults.capacity_bytes = 40
    with pytest.raises(DiskFull):
        index.prepare(aborted(2, 6, 7))
    assert index.all() == [aborted(1, 0, 5)]
    assert disk.size(PATH) == 34


def test_markers_that_are_cut_off_take_their_entries_with_them(disk: SimDisk) -> None:
    index = filled(disk, *(aborted(1, 2 * n, 2 * n + 1) for n in range(10)))
    index.truncate_to(Offset(7))
    assert [one.last_offset for one in index.all()] == [1, 3, 5]
    assert disk.size(PATH) == 3 * 34
    index.truncate_to(Offset(0))
    assert index.all() == []


def test_it_is_opened_again_and_goes_on(disk: SimDisk) -> None:
    filled(disk, aborted(1, 0, 5)).sync()
    again = TransactionIndex(disk, PATH, count=1)
    assert found(again, 0, 1) == [aborted(1, 0, 5)]
    again.prepare(aborted(2, 6, 7))
    again.add()
    assert len(again.all()) == 2
    again.release()
    assert len(again.all()) == 2


def test_replacing_makes_a_new_file_or_none(disk: SimDisk) -> None:
    index = filled(disk, aborted(1, 0, 5))
    index.replace([aborted(2, 6, 7)])
    assert index.all() == [aborted(2, 6, 7)]
    assert disk.read_file(PATH) == encode_aborted([aborted(2, 6, 7)])
    index.replace([])
    assert index.all() == []
    assert not disk.exists(PATH)


def test_a_file_that_is_gone_or_too_short_is_damage(disk: SimDisk) -> None:
    with pytest.raises(DiskFailed):
        found(TransactionIndex(disk, PATH, count=2), 0, 1)
    assert not disk.exists(PATH)
    disk.replace_file(PATH, encode_aborted([aborted(1, 0, 5)]))
    short = TransactionIndex(disk, PATH, count=2)
    with pytest.raises(SegmentCorrupt):
        short.all()
    with pytest.raises(SegmentCorrupt):
        short.prepare(aborted(2, 6, 7))


def test_cold_entries_are_not_read_on_the_loop(disk: SimDisk) -> None:
    index = filled(disk, aborted(1, 0, 5))
    index.sync()
    disk.make_cold(PATH)
    with pytest.raises(NotCached):
        index.find(Offset(0), Offset(1), cached_only=True)
    assert found(index, 0, 1) == [aborted(1, 0, 5)]
