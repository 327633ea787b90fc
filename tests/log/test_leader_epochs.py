"""Leader epochs and their file: what is known is on the disk, or not known."""

import os
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from respool.log.file_names import EPOCHS_NAME
from respool.log.leader_epochs import EpochCache, EpochFile
from respool.model.errors import DiskFull
from respool.model.ids import LeaderEpoch, Offset
from respool.sim.disk.simulated_disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_folder("t-0")
    disk.sync_folder("")
    return disk


def begin(file: EpochFile, epoch: int, offset: int) -> None:
    file.begin(LeaderEpoch(epoch), Offset(offset))


def after_power_cut(disk: SimDisk) -> list[tuple[int, int]] | None:
    disk.crash()
    found = EpochFile.read(disk.reopen(), "t-0")
    return [(epoch, offset) for epoch, offset in found.entries] if found is not None else None


def test_an_epoch_is_on_the_disk_before_it_has_data(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 5, 7)
    assert file.latest == 5
    assert file.epoch_at(Offset(6)) == 3
    assert file.end_of(LeaderEpoch(3), log_end=Offset(9)) == (3, 7)
    assert after_power_cut(disk) == [(3, 0), (5, 7)]


def test_what_is_known_already_is_not_written_again(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 3, 8)
    assert disk.counters.replaced_files == 1


def test_an_epoch_that_cannot_be_written_is_not_known(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    disk.faults.capacity_bytes = 1
    with pytest.raises(DiskFull):
        begin(file, 5, 7)
    assert file.entries == [(3, 0)]


def test_an_epoch_never_goes_back(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    with pytest.raises(AssertionError):
        begin(file, 2, 7)
    assert file.entries == [(3, 0)]


def test_cutting_off_the_end_is_on_the_disk(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 5, 7)
    file.truncate_end(Offset(7))
    assert after_power_cut(disk) == [(3, 0)]


def test_a_missing_or_damaged_file_is_not_taken_for_an_empty_one(disk: SimDisk) -> None:
    assert EpochFile.read(disk, "t-0") is None
    EpochFile(disk, "t-0", EpochCache()).write()
    found = EpochFile.read(disk, "t-0")
    assert found is not None
    assert found.entries == []
    disk.replace_file(f"t-0/{EPOCHS_NAME}", b"0\n1\n2 x\n")
    assert EpochFile.read(disk, "t-0") is None


EXAMPLES = 2_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 60
UNKNOWN = (-1, -1)


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    cache = EpochCache()
    for epoch, start in entries:
        assert cache.assign(LeaderEpoch(epoch), Offset(start))
    return cache


def entries(cache: EpochCache) -> Sequence[tuple[int, int]]:
    return cache.entries


def end_of(cache: EpochCache, epoch: int, *, log_end: int) -> tuple[int, int]:
    return cache.end_of(LeaderEpoch(epoch), log_end=Offset(log_end))


# Assigning


def test_an_epoch_is_news_once() -> None:
    cache = cache_of((2, 10))
    assert not cache.assign(LeaderEpoch(2), Offset(10))
    assert not cache.assign(LeaderEpoch(2), Offset(99))
    assert entries(cache) == [(2, 10)]


def test_a_leader_without_data_is_remembered_too() -> None:
    cache = cache_of((1, 0), (2, 5))
    assert cache.latest == 2
    assert end_of(cache, 1, log_end=5) == (1, 5)


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (4, 30, [(1, 0), (2, 10), (3, 20), (4, 30)]),
        # The same offset: epoch 3 wrote nothing.
        (4, 20, [(1, 0), (2, 10), (4, 20)]),
        (4, 15, [(1, 0), (2, 10), (4, 15)]),
        # The same or an earlier epoch that begins elsewhere.
        (3, 15, [(1, 0), (2, 10), (3, 15)]),
        (2, 25, [(1, 0), (2, 25)]),
        (0, 25, [(0, 25)]),
        (9, 0, [(9, 0)]),
    ],
)
def test_a_new_entry_removes_what_contradicts_it(
    epoch: int, start: int, left: list[tuple[int, int]]
) -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    assert cache.assign(LeaderEpoch(epoch), Offset(start))
    assert entries(cache) == left


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_offset_is_our_own_fault(epoch: int, start: int) -> None:
    cache = cache_of((1, 0))
    with pytest.raises(AssertionError):
        cache.assign(LeaderEpoch(epoch), Offset(start))
    assert entries(cache) == [(1, 0)]


# Asking


def test_an_empty_cache_knows_nothing() -> None:
    cache = EpochCache()
    assert cache.latest == -1
    assert end_of(cache, 0, log_end=5) == UNKNOWN
    assert cache.epoch_at(Offset(0)) == -1


def test_the_latest_epoch_ends_where_the_log_ends() -> None:
    assert end_of(cache_of((1, 0), (5, 20)), 5, log_end=33) == (5, 33)


def test_an_older_epoch_ends_where_the_next_begins() -> None:
    cache = cache_of((1, 0), (3, 10), (5, 20))
    assert end_of(cache, 1, log_end=33) == (1, 10)
    assert end_of(cache, 3, log_end=33) == (3, 20)


def test_an_epoch_without_data_here_gets_the_largest_before_it() -> None:
    cache = cache_of((1, 0), (3, 10), (5, 20))
    assert end_of(cache, 2, log_end=33) == (1, 10)
    assert end_of(cache, 4, log_end=33) == (3, 20)


def test_an_epoch_before_all_known_gets_its_own_number_and_the_first_offset() -> None:
    assert end_of(cache_of((3, 10), (5, 20)), 1, log_end=33) == (1, 10)


def test_a_later_or_undefined_epoch_is_unknown() -> None:
    cache = cache_of((1, 0), (5, 20))
    assert end_of(cache, 6, log_end=33) == UNKNOWN
    assert end_of(cache, -1, log_end=33) == UNKNOWN


def test_the_epoch_at_an_offset_is_the_last_begun_by_then() -> None:
    cache = cache_of((1, 5), (3, 10))
    assert [cache.epoch_at(Offset(at)) for at in (0, 4, 5, 9, 10, 99)] == [-1, -1, 1, 1, 3, 3]


# Truncating


def test_truncating_the_end_forgets_epochs_that_begin_there_or_later() -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    assert not cache.truncate_end(Offset(21))
    assert cache.truncate_end(Offset(20))
    assert entries(cache) == [(1, 0), (2, 10)]
    assert cache.truncate_end(Offset(5))
    assert entries(cache) == [(1, 0)]
    assert cache.truncate_end(Offset(0))
    assert entries(cache) == []
    assert not cache.truncate_end(Offset(0))


def test_truncating_the_start_keeps_the_epoch_the_log_starts_in() -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    assert not cache.truncate_start(Offset(0))
    assert cache.truncate_start(Offset(4))
    assert entries(cache) == [(1, 4), (2, 10), (3, 20)]
    assert cache.truncate_start(Offset(10))
    assert entries(cache) == [(2, 10), (3, 20)]
    assert not cache.truncate_start(Offset(10))
    assert cache.truncate_start(Offset(99))
    assert entries(cache) == [(3, 99)]


def test_truncating_the_start_before_the_first_epoch_changes_nothing() -> None:
    cache = cache_of((1, 5))
    assert not cache.truncate_start(Offset(3))
    assert not EpochCache().truncate_start(Offset(3))
    assert entries(cache) == [(1, 5)]


# The file


def test_the_text_is_kafkas() -> None:
    assert cache_of((1, 0), (3, 4711)).encode() == b"0\n2\n1 0\n3 4711\n"
    assert EpochCache().encode() == b"0\n0\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"0\n1\n",
        b"1\n1\n3 5\n",
        b"0\n1\n3 5\n4 6\n",
        b"0\n2\n3 5\n4 6",
        b"0\n1\n3\n",
        b"0\n1\n3 5 7\n",
        b"0\n1\n3  5\n",
        b"0\n1\n-1 5\n",
        b"0\n1\n+3 5\n",
        b"0\n1\n3_0 5\n",
        b"0\n1\nx y\n",
        b"0\n1\n\xd9\xa3 5\n",
        b"0\n2\n3 5\n3 6\n",
        b"0\n2\n3 5\n4 5\n",
        b"0\n1\n3 5\n\0\0",
    ],
)
def test_damaged_text_is_noticed(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        EpochCache.decode(text)


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error_and_nothing_else(garbage: bytes) -> None:
    try:
        cache = EpochCache.decode(garbage)
    except ValueError:
        return
    assert EpochCache.decode(cache.encode()) == cache


# Against a log that knows the epoch of each of its records


class EpochCacheAgainstTheRecords(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = EpochCache()
        self.log_start = 0
        self.epochs: list[int] = []
        # A leader that has not written yet, or whose records are all deleted: it would write at the log's end.
        self.at_end: int | None = None

    @property
    def log_end(self) -> int:
        return self.log_start + len(self.epochs)

    @property
    def known(self) -> list[int]:
        return self.epochs + ([] if self.at_end is None else [self.at_end])

    @rule(step=st.integers(0, 3), count=st.integers(1, 4))
    def append(self, step: int, count: int) -> None:
        epoch = max(0, self.cache.latest) + step
        self.cache.assign(LeaderEpoch(epoch), Offset(self.log_end))
        self.epochs += [epoch] * count
        self.at_end = None

    @rule(step=st.integers(1, 3))
    def become_leader(self, step: int) -> None:
        epoch = self.cache.latest + step
        assert self.cache.assign(LeaderEpoch(epoch), Offset(self.log_end))
        self.at_end = epoch

    @rule(data=st.data())
    def truncate_end(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.log_end))
        self.cache.truncate_end(Offset(offset))
        del self.epochs[offset - self.log_start :]
        self.at_end = None

    @rule(data=st.data())
    def truncate_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.log_end))
        self.cache.truncate_start(Offset(offset))
        if offset == self.log_end and self.known:
            self.at_end = self.known[-1]
        del self.epochs[: offset - self.log_start]
        self.log_start = offset

    @rule()
    def restart(self) -> None:
        again = EpochCache.decode(self.cache.encode())
        assert again == self.cache
        self.cache = again

    @invariant()
    def it_knows_every_records_epoch(self) -> None:
        for offset, epoch in enumerate(self.epochs, start=self.log_start):
            assert self.cache.epoch_at(Offset(offset)) == epoch
        assert len(self.cache) == len(set(self.known))
        assert self.cache.latest == (self.known[-1] if self.known else -1)

    @invariant()
    def it_knows_every_epochs_end(self) -> None:
        for asked in range(-2, self.cache.latest + 3):
            assert end_of(self.cache, asked, log_end=self.log_end) == self.brute_force_end(asked)

    def brute_force_end(self, asked: int) -> tuple[int, int]:
        if not self.known or asked < 0 or asked > self.known[-1]:
            return UNKNOWN
        if asked == self.known[-1]:
            return asked, self.log_end
        not_after = [epoch for epoch in self.known if epoch <= asked]
        return (not_after[-1] if not_after else asked), self.log_start + len(not_after)


EpochCacheAgainstTheRecords.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None
)
TestEpochCacheAgainstTheRecords = EpochCacheAgainstTheRecords.TestCase
