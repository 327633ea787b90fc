"""The simulated disk loses what a real one may lose, and nothing else."""

import os
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.errors import DiskFailed, DiskFull
from respool.model.file_range import FileRange, LocalReadFailed
from respool.ports.disk import NotCached
from respool.sim.disk.disk_faults import DiskCall, ProcessGone
from respool.sim.disk.platter import SECTOR_BYTES
from respool.sim.disk.simulated_disk import SimDisk

SEEDS = range(200)
LONG = os.environ.get("RESPOOL_FUZZ") == "long"


def outcomes(story: Callable[[SimDisk], None], path: str) -> Iterator[bytes | None]:
    """What is left of a file when the power goes at the end of the story, once per seed."""
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        story(disk)
        disk.crash()
        yield disk.reopen().read_file(path)


def with_synced_name(disk: SimDisk, path: str = "a.log") -> None:
    disk.open_log(path)
    disk.sync_folder("")


# -- power cuts: content -----------------------------------------------------------------------------------------------


def test_synced_bytes_survive_every_power_cut() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"s" * 700])
        log.sync()
        log.append([b"u" * 2000])

    for left in outcomes(story, "a.log"):
        assert left is not None
        assert left[:700] == b"s" * 700


def test_unsynced_bytes_are_lost_kept_and_torn_by_sectors() -> None:
    data = bytes(range(1, 256)) * 16

    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        disk.open_log("a.log").append([data])

    seen = set(outcomes(story, "a.log"))
    assert b"" in seen
    assert data in seen
    holes = 0
    for left in seen:
        assert left is not None
        for at in range(0, len(left), SECTOR_BYTES):
            sector = left[at : at + SECTOR_BYTES]
            assert sector in (data[at : at + len(sector)], bytes(len(sector)))
            holes += not any(sector)
    assert holes
    assert any(left and len(left) % SECTOR_BYTES for left in seen - {data})


def test_an_unsynced_truncation_may_come_undone() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"o" * 3000])
        log.sync()
        log.truncate(1000)
        log.append([b"n" * 1000])

    seen = set(outcomes(story, "a.log"))
    assert b"o" * 3000 in seen
    assert b"o" * 1000 + b"n" * 1000 in seen
    assert any(left is not None and len(left) < 2000 for left in seen)
    for left in seen:
        assert left is not None
        assert 1000 <= len(left) <= 3000
        assert left[:1000] == b"o" * 1000
        assert set(left[1000:]) <= set(b"on\0")


def test_a_synced_truncation_stays() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"o" * 3000])
        log.sync()
        log.truncate(1000)
        log.sync()

    assert set(outcomes(story, "a.log")) == {b"o" * 1000}


def test_unsynced_writes_to_a_map_survive_sector_by_sector() -> None:
    def story(disk: SimDisk) -> None:
        mapped = disk.map_file("a.index", 4096)
        disk.sync_folder("")
        mapped.buffer[:] = b"o" * 4096
        mapped.sync()
        mapped.buffer[0:10] = b"n" * 10
        mapped.buffer[2048:2058] = b"n" * 10

    seen = set(outcomes(story, "a.index"))
    for left in seen:
        assert left is not None
        assert left.replace(b"n", b"o") == b"o" * 4096
    ends = {(left[0:1], left[2048:2049]) for left in seen if left is not None}
    assert ends == {(b"o", b"o"), (b"o", b"n"), (b"n", b"o"), (b"n", b"n")}


@pytest.mark.long
@settings(max_examples=5_000 if LONG else 200, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 1500)),
            st.tuples(st.just("truncate"), st.integers(0, 3000)),
            st.tuples(st.just("sync"), st.just(0)),
        ),
        max_size=12,
    ),
    seed=st.integers(0, 2**32),
)
def test_no_power_cut_touches_what_has_been_there_unchanged_since_the_last_sync(
    steps: list[tuple[str, int]], seed: int
) -> None:
    disk = SimDisk(Random(seed))
    with_synced_name(disk)
    log = disk.open_log("a.log")
    content, safe, longest = b"", b"", 0
    for number, (step, size) in enumerate(steps, start=1):
        if step == "append":
            log.append([bytes([number]) * size])
            content += bytes([number]) * size
        elif step == "truncate":
            log.truncate(min(size, len(content)))
            content = content[:size]
            safe = safe[:size]
        else:
            log.sync()
            safe, longest = content, len(content)
        longest = max(longest, len(content))
    assert log.read(0, 10**6) == content
    disk.crash()
    left = disk.reopen().read_file("a.log")
    assert left is not None
    assert left[: len(safe)] == safe
    assert len(left) <= longest


# -- power cuts: names -------------------------------------------------------------------------------------------------


def names_left(story: Callable[[SimDisk], None], folder: str = "") -> set[tuple[str, ...]]:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        story(disk)
        disk.crash()
        found.add(tuple(disk.reopen().list_folder(folder)))
    return found


def test_names_survive_only_for_sure_with_their_folder_synced() -> None:
    def unsynced(disk: SimDisk) -> None:
        log = disk.open_log("a.log")
        log.append([b"x"])
        log.sync()
        disk.open_log("b.log")

    def synced(disk: SimDisk) -> None:
        unsynced(disk)
        disk.sync_folder("")

    assert names_left(unsynced) == {(), ("a.log",), ("b.log",), ("a.log", "b.log")}
    assert names_left(synced) == {("a.log", "b.log")}


def test_a_rename_happens_wholly_or_not_at_all() -> None:
    def story(disk: SimDisk) -> None:
        disk.make_folder("t-0")
        disk.sync_folder("")
        disk.replace_file("t-0/old", b"x")
        disk.rename("t-0/old", "t-0/new")

    assert names_left(story, "t-0") == {("old",), ("new",)}


def test_a_rename_over_a_file_leaves_the_one_or_the_other() -> None:
    def story(disk: SimDisk) -> None:
        disk.replace_file("current", b"old")
        disk.replace_file("next", b"new")
        disk.rename("next", "current")

    assert names_left(story) == {("current", "next"), ("current",)}
    for left in outcomes(story, "current"):
        assert left in {b"old", b"new"}


def test_a_file_never_has_two_names_after_a_power_cut() -> None:
    def story(disk: SimDisk) -> None:
        disk.make_folder("a")
        disk.make_folder("b")
        disk.sync_folder("")
        disk.open_log("a/x")
        disk.rename("a/x", "b/y")
        disk.sync_folder("b")

    assert names_left(story, "a") == {()}
    assert names_left(story, "b") == {("y",)}


def test_a_deletion_may_come_undone_until_its_folder_is_synced() -> None:
    def story(disk: SimDisk) -> None:
        disk.replace_file("a", b"x")
        disk.delete("a")

    def synced(disk: SimDisk) -> None:
        story(disk)
        disk.sync_folder("")

    assert names_left(story) == {("a",), ()}
    assert names_left(synced) == {()}


def test_a_synced_file_in_a_folder_nobody_synced_is_lost_with_it() -> None:
    def story(disk: SimDisk) -> None:
        disk.make_folder("t-0")
        disk.replace_file("t-0/file", b"x")

    assert names_left(story) == {(), ("t-0",)}
    assert set(outcomes(story, "t-0/file")) == {None, b"x"}


def test_replace_file_survives_and_covers_its_folder() -> None:
    def story(disk: SimDisk) -> None:
        disk.open_log("a.log")
        disk.replace_file("checkpoint", b"1")
        disk.replace_file("checkpoint", b"2")

    assert set(outcomes(story, "checkpoint")) == {b"2"}
    assert names_left(story) == {("a.log", "checkpoint")}


def test_one_seed_gives_one_outcome() -> None:
    def run() -> list[tuple[str, bytes | None]]:
        disk = SimDisk(Random(42))
        disk.make_folder("t-0")
        for number in range(20):
            disk.open_log(f"t-0/{number}.log").append([bytes([number]) * 5000])
        disk.crash()
        disk = disk.reopen()
        return [(name, disk.read_file(f"t-0/{name}")) for name in disk.list_folder("t-0")]

    assert run() == run()


# -- the process goes --------------------------------------------------------------------------------------------------


def test_kill_loses_nothing_but_leaves_it_unsynced() -> None:
    def story(disk: SimDisk) -> SimDisk:
        log = disk.open_log("a.log")
        log.append([b"x" * 5000])
        mapped = disk.map_file("a.index", 16)
        mapped.buffer[:5] = b"entry"
        disk.kill()
        return disk.reopen()

    disk = story(SimDisk(Random(1)))
    assert disk.read_file("a.log") == b"x" * 5000
    assert disk.read_file("a.index") == b"entry" + bytes(11)

    lost = 0
    for seed in SEEDS:
        disk = story(SimDisk(Random(seed)))
        disk.crash()
        lost += disk.reopen().read_file("a.log") != b"x" * 5000
    assert lost


@pytest.mark.parametrize("end", [SimDisk.crash, SimDisk.kill, SimDisk.reopen])
def test_old_handles_raise_when_the_process_is_gone(end: Callable[[SimDisk], object]) -> None:
    disk = SimDisk(Random(1))
    log = disk.open_log("a.log")
    log.append([b"x"])
    mapped = disk.map_file("a.index", 16)
    end(disk)
    for use in (
        lambda: log.append([b"y"]),
        lambda: log.read(0, 1),
        log.sync,
        lambda: log.truncate(0),
        lambda: mapped.buffer,
        mapped.sync,
        lambda: mapped.resize(32),
        lambda: disk.open_log("b.log"),
        lambda: disk.read_file("a.log"),
        lambda: disk.exists("a.log"),
        disk.free_bytes,
    ):
        with pytest.raises(ProcessGone):
            use()
    log.close()
    mapped.close()


def test_a_power_cut_can_be_placed_at_every_change() -> None:
    def story(disk: SimDisk) -> None:
        log = disk.open_log("a.log")
        disk.sync_folder("")
        log.append([b"x" * 1000])
        log.sync()
        disk.replace_file("checkpoint", b"1000")

    reached = []
    for changes in range(6):
        disk = SimDisk(Random(changes))
        disk.faults.cut_power_after(changes)
        if changes < 5:
            with pytest.raises(ProcessGone):
                story(disk)
            with pytest.raises(ProcessGone):
                disk.open_log("a.log")
        else:
            story(disk)
        disk.crash()
        disk = disk.reopen()
        log_bytes = len(disk.read_file("a.log") or b"")
        if disk.exists("checkpoint"):
            assert log_bytes == 1000
        reached.append((disk.exists("a.log"), disk.exists("checkpoint")))
    assert reached[0] == (False, False)
    assert reached[2] == (True, False)
    assert reached[5] == (True, True)


def test_an_interrupted_append_leaves_a_part_of_itself() -> None:
    sizes = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        log = disk.open_log("a.log")
        disk.faults.cut_power_after(0)
        with pytest.raises(ProcessGone):
            log.append([b"x" * 100])
        sizes.add(disk.reopen().size("a.log"))
    assert min(sizes) == 0
    assert max(sizes) == 100
    assert len(sizes) > 20


def test_an_interrupted_replacement_leaves_the_old_file_and_perhaps_a_temporary_one() -> None:
    disk = SimDisk(Random(1))
    disk.replace_file("checkpoint", b"old")
    disk.faults.cut_power_after(0)
    with pytest.raises(ProcessGone):
        disk.replace_file("checkpoint", b"new")
    disk = disk.reopen()
    assert disk.read_file("checkpoint") == b"old"
    assert disk.list_folder("") == ["checkpoint", "checkpoint.tmp"]


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_full_disk_takes_all_of_an_append_or_nothing() -> None:
    disk = SimDisk(Random(1), capacity_bytes=1000)
    log = disk.open_log("a.log")
    log.append([b"x" * 600])
    assert disk.free_bytes() == 400
    with pytest.raises(DiskFull, match="401 bytes wanted, 400 free"):
        log.append([b"y", b"y" * 400])
    assert log.size == 600
    with pytest.raises(DiskFull):
        disk.replace_file("checkpoint", b"z" * 401)
    with pytest.raises(DiskFull):
        disk.map_file("a.index", 401)
    mapped = disk.map_file("a.index", 10)
    with pytest.raises(DiskFull):
        mapped.resize(411)
    assert len(mapped.buffer) == 10
    assert disk.list_folder("") == ["a.index", "a.log"]
    log.append([b"y" * 390])
    disk.delete("a.log")
    assert disk.free_bytes() == 990
    assert disk.reopen().free_bytes() == 990


def test_the_nth_call_fails_and_only_that() -> None:
    disk = SimDisk(Random(1))
    log = disk.open_log("a.log")
    disk.faults.fail("append", nth=2)
    log.append([b"1"])
    with pytest.raises(DiskFailed, match=r"append a\.log"):
        log.append([b"2"])
    log.append([b"3"])
    assert log.read(0, 10) == b"13"


def test_failures_can_last_and_be_healed_and_be_for_some_paths_only() -> None:
    disk = SimDisk(Random(1))
    log, other = disk.open_log("a.log"), disk.open_log("b.log")
    disk.faults.fail("read", times=None, path="a.*")
    for _ in range(3):
        with pytest.raises(DiskFailed):
            log.read(0, 1)
    assert other.read(0, 1) == b""
    disk.faults.heal()
    assert log.read(0, 1) == b""


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("open", lambda disk: disk.open_log("new")),
        ("truncate", lambda disk: disk.open_log("a").truncate(0)),
        ("map", lambda disk: disk.map_file("new", 1)),
        ("replace", lambda disk: disk.replace_file("a", b"other")),
        ("rename", lambda disk: disk.rename("a", "new")),
        ("delete", lambda disk: disk.delete("a")),
        ("make_folder", lambda disk: disk.make_folder("new")),
        ("sync_folder", lambda disk: disk.sync_folder("")),
        ("read", lambda disk: disk.read_file("a")),
    ],
)
def test_every_call_can_fail_and_then_changes_nothing(
    call: DiskCall, use: Callable[[SimDisk], object]
) -> None:
    disk = SimDisk(Random(1))
    disk.replace_file("a", b"content")
    disk.faults.fail(call)
    with pytest.raises(DiskFailed):
        use(disk)
    assert disk.list_folder("") == ["a"]
    assert disk.read_file("a") == b"content"
    use(disk)


def test_after_a_failed_sync_later_syncs_succeed_and_the_bytes_are_gone() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"s" * 512])
        log.sync()
        log.append([b"d" * 1024])
        disk.faults.fail("sync")
        with pytest.raises(DiskFailed):
            log.sync()
        assert log.read(512, 1024) == b"d" * 1024
        log.append([b"n" * 512])
        log.sync()

    assert set(outcomes(story, "a.log")) == {b"s" * 512 + bytes(1024) + b"n" * 512}


def test_what_a_failed_sync_dropped_never_survives_a_power_cut() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"d" * 1024])
        disk.faults.fail("sync")
        with pytest.raises(DiskFailed):
            log.sync()

    for left in outcomes(story, "a.log"):
        assert left is not None
        assert not any(left)


def test_a_page_dropped_by_a_failed_sync_is_stored_once_it_is_written_again() -> None:
    def story(disk: SimDisk) -> None:
        with_synced_name(disk)
        log = disk.open_log("a.log")
        log.append([b"d" * 100])
        disk.faults.fail("sync")
        with pytest.raises(DiskFailed):
            log.sync()
        log.append([b"n" * 100])
        log.sync()

    assert set(outcomes(story, "a.log")) == {b"d" * 100 + b"n" * 100}


def test_what_a_failed_sync_dropped_vanishes_when_the_cache_is_dropped() -> None:
    disk = SimDisk(Random(1))
    log = disk.open_log("a.log")
    log.append([b"d" * 1024])
    disk.faults.fail("sync")
    with pytest.raises(DiskFailed):
        log.sync()
    disk.drop_cache()
    assert log.read(0, 2000) == bytes(1024)


def test_cold_bytes_are_not_cached_until_someone_reads_them() -> None:
    disk = SimDisk(Random(1))
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    disk.make_cold("a.log", 2, 6)
    assert log.read(0, 2, cached_only=True) == b"01"
    assert log.read(6, 10, cached_only=True) == b"6789"
    with pytest.raises(NotCached):
        log.read(0, 3, cached_only=True)
    assert log.read(3, 1) == b"3"
    assert log.read(3, 1, cached_only=True) == b"3"
    for cold in (2, 4, 5):
        with pytest.raises(NotCached):
            log.read(cold, 1, cached_only=True)
    log.read(0, 10)
    assert log.read(0, 10, cached_only=True) == b"0123456789"


def test_rot_changes_one_byte_for_good() -> None:
    disk = SimDisk(Random(1))
    disk.replace_file("a.log", b"\x00\x00\x00")
    disk.corrupt("a.log", 1, mask=0x80)
    assert disk.read_file("a.log") == b"\x00\x80\x00"
    disk.crash()
    disk = disk.reopen()
    assert disk.read_file("a.log") == b"\x00\x80\x00"
    with pytest.raises(AssertionError):
        disk.corrupt("a.log", 3)


def test_counters_tell_what_the_process_did_and_start_anew_with_the_next() -> None:
    disk = SimDisk(Random(1))
    log = disk.open_log("a.log")
    log.append([b"12", b"345"])
    log.read(1, 3)
    log.sync()
    disk.map_file("a.index", 8).sync()
    disk.replace_file("checkpoint", b"1")
    disk.read_file("checkpoint")
    disk.sync_folder("")
    counted = disk.counters
    assert (counted.appends, counted.appended_bytes) == (1, 5)
    assert (counted.reads, counted.bytes_read) == (1, 3)
    assert (counted.syncs, counted.map_syncs, counted.folder_syncs) == (1, 1, 1)
    assert (counted.small_files_read, counted.small_file_bytes_read) == (1, 1)
    assert counted.replaced_files == 1
    assert disk.reopen().counters.reads == 0


# -- neighbours --------------------------------------------------------------------------------------------------------


def lending() -> tuple[SimDisk, FileRange]:
    disk = SimDisk(Random(1), name="one")
    with_synced_name(disk)
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    log.sync()
    file_range = log.file_range(2, 5)
    assert file_range is not None
    return disk, file_range._replace(head=b"234")


def test_a_neighbour_reads_what_it_was_told_of_whether_its_process_lives_or_not() -> None:
    disk, file_range = lending()
    assert disk.local_read(file_range) == b"23456"
    disk.kill()
    assert disk.local_read(file_range) == disk.reopen().local_read(file_range) == b"23456"


def test_what_is_gone_or_another_file_by_now_is_not_lent() -> None:
    disk, file_range = lending()
    disk.rename("a.log", "b.log")
    with pytest.raises(LocalReadFailed):
        disk.local_read(file_range)
    # Whatever its inode is, it begins otherwise.
    for _ in range(5):
        disk.delete("a.log")
        disk.open_log("a.log").append([b"abcdefghij"])
        with pytest.raises(LocalReadFailed):
            disk.local_read(file_range)


def test_what_was_cut_off_is_not_lent() -> None:
    disk, file_range = lending()
    disk.open_log("a.log").truncate(6)
    with pytest.raises(LocalReadFailed):
        disk.local_read(file_range)


def test_a_power_cut_is_the_readers_too() -> None:
    disk, file_range = lending()
    disk.crash()
    with pytest.raises(LocalReadFailed):
        disk.reopen().local_read(file_range)


def test_a_disk_without_neighbours_lends_nothing() -> None:
    assert SimDisk(Random(1)).open_log("a.log").file_range(0, 1) is None
