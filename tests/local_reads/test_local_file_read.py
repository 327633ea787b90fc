"""What another process lends is read if it is that very file, and nothing else ever is."""

import os
from pathlib import Path

import pytest

from respool.local_reads.local_file_read import read_file_range, this_host
from respool.model.file_range import FileRange, LocalReadFailed

CONTENT = bytes(range(256)) * 1_000


def place_in(path: Path, position: int = 0, size: int = 100) -> FileRange:
    found = path.stat()
    return FileRange(str(path), found.st_dev, found.st_ino, position, size)


def read(file_range: FileRange) -> bytes:
    target = bytearray(file_range.size)
    read_file_range(file_range, memoryview(target))
    return bytes(target)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize(("position", "size"), [(0, 1), (1_000, 5_000), (0, len(CONTENT))])
def test_the_bytes_of_the_place_are_read(log: Path, position: int, size: int) -> None:
    assert read(place_in(log, position, size)) == CONTENT[position : position + size]


def test_bytes_that_come_in_pieces_are_all_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.preadv

    def a_few(fd: int, buffers: list[memoryview], position: int) -> int:
        return whole(fd, [buffers[0][:700]], position)

    monkeypatch.setattr(os, "preadv", a_few)
    assert read(place_in(log, 10, 5_000)) == CONTENT[10:5_010]


def test_a_file_that_is_gone_is_not_lent(log: Path) -> None:
    file_range = place_in(log)
    log.unlink()
    with pytest.raises(LocalReadFailed, match="No such file"):
        read(file_range)


def test_another_file_under_the_name_is_not_lent(log: Path, tmp_path: Path) -> None:
    file_range = place_in(log)
    other = tmp_path / "other"
    other.write_bytes(CONTENT)
    # Both are there for a moment, so they have two inodes.
    other.replace(log)
    with pytest.raises(LocalReadFailed, match="another file now"):
        read(file_range)


def test_a_file_that_ends_before_is_not_lent(log: Path) -> None:
    file_range = place_in(log, len(CONTENT) - 50)
    with pytest.raises(LocalReadFailed, match=f"ends at byte {len(CONTENT)}"):
        read(file_range)


def test_what_is_no_file_is_not_lent_and_not_waited_for(tmp_path: Path) -> None:
    pipe, folder = tmp_path / f"{1:020d}.log", tmp_path / f"{2:020d}.log"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(LocalReadFailed, match="not a log segment"):
            read(place_in(path))


def test_only_segments_of_logs_are_ever_opened(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "id_ed25519"
    log.rename(secret)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(LocalReadFailed, match="not a log segment"):
        read(place_in(secret))


def test_another_log_that_got_the_name_and_the_inode_is_not_lent(log: Path) -> None:
    """1. A reader is told of a place.   2. The topic is deleted and made again, or the segment compacted twice.

    3. The new file has the same name, and the inode of the one that was deleted.
    """
    file_range = place_in(log, 0, 100)._replace(head=CONTENT[:21])
    assert read(file_range) == CONTENT[:100]
    with log.open("r+b") as file:
        file.write(b"another log")
    with pytest.raises(LocalReadFailed, match="has other bytes at 0 now"):
        read(file_range)


def test_a_link_is_not_followed(log: Path, tmp_path: Path) -> None:
    link = tmp_path / f"{1:020d}.log"
    link.symlink_to(log)
    with pytest.raises(LocalReadFailed):
        read(place_in(log)._replace(path=str(link)))


@pytest.mark.parametrize("kind", ["link", "pipe", "another file"])
def test_what_takes_the_name_between_the_look_and_the_opening_is_not_read(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file_range, looked = place_in(log), os.stat(log)
    kept = tmp_path / "kept"
    log.rename(kept)
    match kind:
        case "link":
            log.symlink_to(kept)
        case "pipe":
            os.mkfifo(log)
        case _:
            log.write_bytes(CONTENT)
    monkeypatch.setattr(os, "stat", lambda *_, **__: looked)
    with pytest.raises(LocalReadFailed):
        read(file_range)


def test_a_name_that_cannot_be_one_is_not_lent(log: Path) -> None:
    with pytest.raises(LocalReadFailed):
        read(place_in(log)._replace(path=f"/a\0b/{0:020d}.log"))


def test_no_file_stays_open(log: Path) -> None:
    before = os.listdir("/proc/self/fd")
    read(place_in(log))
    with pytest.raises(LocalReadFailed):
        read(place_in(log, len(CONTENT)))
    assert os.listdir("/proc/self/fd") == before


def test_a_machine_has_one_name() -> None:
    assert this_host() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert len(this_host()) == 36
