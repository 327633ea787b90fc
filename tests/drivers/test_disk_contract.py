"""What every disk promises, real or simulated: the same tests on both."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from respool.drivers.local_disk import LocalDisk
from respool.model.errors import DiskFailed
from respool.ports.disk import Disk
from respool.sim.disk.simulated_disk import SimDisk

MAKERS: dict[str, Callable[[Path], Disk]] = {
    "local": lambda folder: LocalDisk(str(folder)),
    "sim": lambda _: SimDisk(Random(1)),
}


@pytest.fixture(params=MAKERS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MAKERS[request.param](tmp_path)


# -- log files ---------------------------------------------------------------------------------------------------------


def test_a_new_log_is_empty_and_has_a_name(disk: Disk) -> None:
    log = disk.open_log("a.log")
    assert (log.path, log.size, log.read(0, 10)) == ("a.log", 0, b"")
    assert disk.exists("a.log")


def test_a_log_that_is_not_there_is_not_made_by_opening_it_for_reading(disk: Disk) -> None:
    with pytest.raises(DiskFailed):
        disk.open_log("a.log", create=False)
    assert not disk.exists("a.log")
    disk.open_log("a.log").append([b"x"])
    assert disk.open_log("a.log", create=False).read(0, 10) == b"x"


def test_append_joins_all_its_buffers_at_the_end(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"one", bytearray(b"two"), memoryview(b"xthreex")[1:6]])
    log.append([b"!"])
    assert log.size == disk.size("a.log") == 12
    assert log.read(0, 100) == b"onetwothree!"


def test_append_of_nothing_changes_nothing(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([])
    log.append([b"", memoryview(b"")])
    assert log.size == 0


def test_append_takes_more_buffers_than_one_system_call_does(disk: Disk) -> None:
    log = disk.open_log("a.log")
    pieces = [bytes([n % 256]) * (n % 3) for n in range(5000)]
    log.append(pieces)
    assert log.read(0, 10_000) == b"".join(pieces)


def test_read_is_short_only_at_the_end(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    assert log.read(2, 3) == b"234"
    assert log.read(8, 5) == b"89"
    assert log.read(10, 5) == b""
    assert log.read(99, 5) == b""
    assert log.read(3, 0) == b""


def test_what_was_just_written_is_cached(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    assert log.read(2, 100, cached_only=True) == b"23456789"
    assert log.read(10, 100, cached_only=True) == b""


def test_a_log_is_found_again_with_its_content(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"before"])
    log.sync()
    log.close()
    again = disk.open_log("a.log")
    assert again.size == 6
    again.append([b"+after"])
    assert again.read(0, 100) == b"before+after"


def test_truncate_cuts_the_end_and_appends_go_on_from_there(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    log.truncate(4)
    assert (log.size, disk.size("a.log")) == (4, 4)
    log.append([b"x"])
    assert log.read(0, 100) == b"0123x"


def test_truncate_cannot_lengthen(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123"])
    with pytest.raises(AssertionError):
        log.truncate(5)
    assert log.size == 4


def test_a_closed_log_refuses_everything_but_closing(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123"])
    log.close()
    for use in (
        lambda: log.append([b"x"]),
        lambda: log.read(0, 1),
        log.sync,
        lambda: log.truncate(0),
    ):
        with pytest.raises(DiskFailed, match=r"a\.log"):
            use()
    log.close()
    assert disk.size("a.log") == 4


def test_a_deleted_log_can_still_be_read_by_who_has_it_open(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"still here"])
    disk.delete("a.log")
    assert not disk.exists("a.log")
    assert log.read(0, 100) == b"still here"
    assert disk.open_log("a.log").size == 0


def test_a_renamed_log_is_the_same_file(disk: Disk) -> None:
    log = disk.open_log("a.log")
    log.append([b"one"])
    disk.rename("a.log", "a.log.deleted")
    log.append([b"two"])
    assert disk.read_file("a.log.deleted") == b"onetwo"


def test_a_log_needs_its_folder(disk: Disk) -> None:
    with pytest.raises(DiskFailed, match=r"t-0/a\.log"):
        disk.open_log("t-0/a.log")
    with pytest.raises(DiskFailed):
        disk.open_log("")


# -- mapped files ------------------------------------------------------------------------------------------------------


def test_a_new_mapped_file_is_all_zeros(disk: Disk) -> None:
    mapped = disk.map_file("a.index", 4096)
    assert bytes(mapped.buffer) == bytes(4096)
    assert disk.size("a.index") == 4096
    mapped.close()


def test_what_is_written_to_a_map_is_in_the_file(disk: Disk) -> None:
    mapped = disk.map_file("a.index", 4096)
    mapped.buffer[100:105] = b"entry"
    mapped.sync()
    content = disk.read_file("a.index")
    assert content is not None
    assert content[100:105] == b"entry"
    mapped.close()
    again = disk.map_file("a.index", 4096)
    assert bytes(again.buffer[98:107]) == b"\0\0entry\0\0"
    again.close()


def test_a_map_grows_with_zeros_and_shrinks_to_its_front(disk: Disk) -> None:
    mapped = disk.map_file("a.index", 10)
    mapped.buffer[:] = b"0123456789"
    mapped.resize(4)
    assert bytes(mapped.buffer) == b"0123"
    mapped.resize(8)
    assert bytes(mapped.buffer) == b"0123\0\0\0\0"
    assert disk.size("a.index") == 8
    mapped.close()


def test_mapping_an_existing_file_brings_it_to_the_size_asked(disk: Disk) -> None:
    disk.replace_file("a.index", b"0123456789")
    mapped = disk.map_file("a.index", 4)
    assert bytes(mapped.buffer) == b"0123"
    mapped.close()
    longer = disk.map_file("a.index", 6)
    assert bytes(longer.buffer) == b"0123\0\0"
    longer.close()


def test_a_view_from_before_a_resize_is_refused(disk: Disk) -> None:
    mapped = disk.map_file("a.index", 8)
    old = mapped.buffer
    mapped.resize(16)
    with pytest.raises(ValueError, match="released"):
        old[0]
    mapped.close()
    with pytest.raises(DiskFailed, match=r"a\.index"):
        _ = mapped.buffer
    with pytest.raises(DiskFailed):
        mapped.sync()
    with pytest.raises(DiskFailed):
        mapped.resize(8)
    mapped.close()


def test_a_map_can_be_resized_and_closed_while_a_slice_of_it_is_held(disk: Disk) -> None:
    mapped = disk.map_file("a.index", 4096)
    mapped.buffer[:5] = b"entry"
    held = mapped.buffer[:5]
    mapped.resize(8192)
    assert bytes(held) == b"entry"
    mapped.close()
    assert bytes(held) == b"entry"


def test_an_empty_map_is_allowed(disk: Disk) -> None:
    mapped = disk.map_file("a.timeindex", 0)
    assert len(mapped.buffer) == 0
    mapped.sync()
    mapped.resize(12)
    assert bytes(mapped.buffer) == bytes(12)
    mapped.resize(0)
    assert len(mapped.buffer) == 0
    mapped.close()
    assert disk.size("a.timeindex") == 0


# -- small files -------------------------------------------------------------------------------------------------------


def test_replace_file_puts_the_whole_content(disk: Disk) -> None:
    assert disk.read_file("checkpoint") is None
    disk.replace_file("checkpoint", b"a long first version")
    disk.replace_file("checkpoint", b"second")
    assert disk.read_file("checkpoint") == b"second"
    assert disk.list_folder("") == ["checkpoint"]


def test_replace_file_can_leave_an_empty_file(disk: Disk) -> None:
    disk.replace_file("clean-shutdown", b"")
    assert disk.exists("clean-shutdown")
    assert disk.read_file("clean-shutdown") == b""


def test_replace_file_does_not_replace_a_folder(disk: Disk) -> None:
    disk.make_folder("t-0")
    with pytest.raises(DiskFailed):
        disk.replace_file("t-0", b"x")
    assert disk.list_folder("") == ["t-0"]


# -- names -------------------------------------------------------------------------------------------------------------


def test_folders_are_made_with_those_above_and_listed_sorted(disk: Disk) -> None:
    disk.make_folder("b/c/d")
    disk.make_folder("b/c")
    disk.make_folder("a")
    disk.open_log("b/z.log")
    disk.open_log("b/10.log")
    assert disk.list_folder("") == ["a", "b"]
    assert disk.list_folder("b") == ["10.log", "c", "z.log"]
    assert disk.list_folder("nowhere") == []
    assert disk.exists("b/c/d")
    assert not disk.exists("b/c/e")


def test_a_file_is_not_a_folder(disk: Disk) -> None:
    disk.replace_file("a", b"x")
    for use in (
        lambda: disk.make_folder("a"),
        lambda: disk.make_folder("a/b"),
        lambda: disk.list_folder("a"),
        lambda: disk.open_log("a/b.log"),
        lambda: disk.sync_folder("a"),
    ):
        with pytest.raises(DiskFailed):
            use()
    assert not disk.exists("a/b")


def test_rename_moves_a_folder_with_all_in_it(disk: Disk) -> None:
    disk.make_folder("t-0")
    disk.open_log("t-0/a.log").append([b"x"])
    disk.rename("t-0", "t-0.1234-delete")
    assert disk.list_folder("") == ["t-0.1234-delete"]
    assert disk.read_file("t-0.1234-delete/a.log") == b"x"


def test_rename_moves_a_file_between_folders_and_over_another(disk: Disk) -> None:
    disk.make_folder("a")
    disk.make_folder("b")
    disk.replace_file("a/file", b"new")
    disk.replace_file("b/file", b"old")
    disk.rename("a/file", "b/file")
    assert disk.list_folder("a") == []
    assert disk.read_file("b/file") == b"new"


def test_rename_of_what_is_not_there_fails(disk: Disk) -> None:
    with pytest.raises(DiskFailed, match="ghost"):
        disk.rename("ghost", "target")
    assert disk.list_folder("") == []


def test_rename_does_not_overwrite_a_folder_in_use(disk: Disk) -> None:
    disk.make_folder("a")
    disk.make_folder("b")
    disk.replace_file("b/kept", b"x")
    disk.replace_file("file", b"y")
    for source, target in (("a", "b"), ("file", "b"), ("a", "file")):
        with pytest.raises(DiskFailed):
            disk.rename(source, target)
    assert disk.list_folder("") == ["a", "b", "file"]
    assert disk.read_file("b/kept") == b"x"


def test_delete_removes_a_file_or_a_whole_folder_and_tolerates_absence(disk: Disk) -> None:
    disk.make_folder("t-0/inner")
    disk.replace_file("t-0/inner/a", b"x")
    disk.replace_file("t-0/b", b"x")
    disk.replace_file("other", b"x")
    disk.delete("t-0/b")
    assert disk.list_folder("t-0") == ["inner"]
    disk.delete("t-0")
    disk.delete("t-0")
    disk.delete("t-0/b")
    assert disk.list_folder("") == ["other"]


def test_a_folder_that_is_not_there_cannot_be_synced(disk: Disk) -> None:
    disk.sync_folder("")
    with pytest.raises(DiskFailed, match="nowhere"):
        disk.sync_folder("nowhere")


def test_the_size_of_what_is_not_there_is_an_error(disk: Disk) -> None:
    with pytest.raises(DiskFailed, match="ghost"):
        disk.size("ghost")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside", "a/../../outside", "a//b", "./a", "a/.", "a/", "a\0b"]
)
def test_no_path_leads_outside(disk: Disk, path: str) -> None:
    for use in (disk.exists, disk.open_log, disk.read_file, disk.delete, disk.make_folder):
        with pytest.raises(AssertionError):
            use(path)
    with pytest.raises(AssertionError):
        disk.rename("a", path)
    with pytest.raises(AssertionError):
        disk.replace_file(path, b"")


def test_a_disk_has_some_room(disk: Disk) -> None:
    assert 0 < disk.free_bytes() <= disk.total_bytes()
