"""The disk between a test's broker and its folder: what it takes away, and what it must not."""

from pathlib import Path

import pytest

from respool.model.errors import DiskFailed, DiskFull
from respool.testing.faulty_disk import FaultyDisk, PowerCut


@pytest.fixture(params=[True, False], ids=["waits", "does not wait"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyDisk:
    return FaultyDisk(str(tmp_path), waits_for_disk=request.param)


def test_a_power_cut_takes_what_was_not_synced(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open_log("0.log")
    file.append([b"synced"])
    file.sync()
    file.append([b" and not"])

    disk.cut_power()

    assert disk.lose_unsynced() == len(b" and not")
    assert (tmp_path / "0.log").read_bytes() == b"synced"


def test_what_was_there_before_is_on_the_disk(disk: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"before")
    file = disk.open_log("0.log")
    file.append([b" and after"])
    file.close()
    # Opened again, it is still the same file.
    disk.open_log("0.log").append([b"!"])
    disk.cut_power()
    disk.lose_unsynced()
    assert (tmp_path / "0.log").read_bytes() == b"before"


def test_a_file_that_was_renamed_with_its_folder_loses_the_same(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    disk.make_folder("rides-0")
    file = disk.open_log("rides-0/0.log")
    file.append([b"synced"])
    file.sync()
    file.append([b" and not"])
    disk.rename("rides-0", "rides-0.gone")
    disk.open_log("fares.log").append([b"x"])
    disk.delete("fares.log")
    disk.cut_power()
    assert disk.lose_unsynced() == len(b" and not")
    assert (tmp_path / "rides-0.gone" / "0.log").read_bytes() == b"synced"


def test_a_sync_that_comes_too_late_saves_nothing(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open_log("0.log")
    file.append([b"lost"])
    disk.cut_power()
    for use in (file.sync, lambda: file.append([b"x"]), lambda: file.read(0, 1)):
        with pytest.raises(PowerCut):
            use()
    with pytest.raises(PowerCut):
        disk.replace_file("small", b"x")
    disk.lose_unsynced()
    assert (tmp_path / "0.log").read_bytes() == b""
    assert not (tmp_path / "small").exists()


def test_small_files_are_written_through(disk: FaultyDisk, tmp_path: Path) -> None:
    disk.replace_file("checkpoint", b"one")
    disk.replace_file("checkpoint", b"two")
    disk.cut_power()
    disk.lose_unsynced()
    assert (tmp_path / "checkpoint").read_bytes() == b"two"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint"]


def test_a_truncated_file_is_not_made_longer_by_a_crash(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open_log("0.log")
    file.append([b"0123456789"])
    file.sync()
    file.truncate(4)
    file.append([b"xx"])
    disk.cut_power()
    disk.lose_unsynced()
    assert (tmp_path / "0.log").read_bytes() == b"0123"


def test_a_full_disk_takes_nothing_and_gives_what_it_has(disk: FaultyDisk) -> None:
    file = disk.open_log("0.log")
    file.append([b"one"])
    index = disk.map_file("0.index", 16)
    disk.is_full = True
    with pytest.raises(DiskFull):
        file.append([b"two"])
    with pytest.raises(DiskFull):
        disk.open_log("1.log")
    with pytest.raises(DiskFull):
        disk.map_file("1.index", 16)
    with pytest.raises(DiskFull):
        index.resize(32)
    with pytest.raises(DiskFull):
        disk.replace_file("small", b"x")
    assert disk.free_bytes() == 0
    assert (file.size, file.read(0, 10)) == (3, b"one")
    disk.delete("0.log")
    disk.is_full = False
    assert disk.free_bytes() > 0
    disk.open_log("1.log").append([b"three"])


def test_errors_are_those_of_the_real_disk(disk: FaultyDisk) -> None:
    with pytest.raises(DiskFailed):
        disk.open_log("missing.log", create=False)
    with pytest.raises(DiskFailed):
        disk.replace_file("no/such/folder", b"x")
