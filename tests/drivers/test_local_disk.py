"""What only a real disk can do wrong: full, failing, half-written, slow, pulled from under a reader."""

import asyncio
import errno
import os
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from respool.drivers.local_disk import LocalDisk, ThreadedLocalReader
from respool.drivers.local_files import READ_AHEAD_FROM_BYTES, LocalLogFile
from respool.drivers.read_ahead import READ_AHEAD_BYTES
from respool.model.errors import DiskFailed, DiskFull, HandlesExhausted
from respool.model.file_range import FileRange, LocalReadFailed
from respool.ports.disk import NotCached

Buffers = Sequence[bytes | bytearray | memoryview]


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(str(tmp_path / "data"))


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def always(number: int) -> Callable[..., int]:
    def fail(*args: object) -> int:
        raise error(number)

    return fail


def fd_of(log: LocalLogFile) -> int:
    assert log._descriptor is not None
    return log._descriptor.fd


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """No file of this process may grow beyond: writes stop there half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[LocalDisk]:
    """A file system of one MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a file system here: {done.stderr.decode().strip()}")
    try:
        yield LocalDisk(str(mount))
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


# -- appends -----------------------------------------------------------------------------------------------------------


def test_an_append_that_finds_no_room_half_way_is_cut_off_again(disk: LocalDisk) -> None:
    log = disk.open_log("a.log")
    log.append([b"kept"])
    with files_at_most(1000), pytest.raises(DiskFull, match=r"append a\.log: .*errno 27"):
        log.append([b"x" * 700, b"y" * 700])
    assert (log.size, disk.size("a.log")) == (4, 4)
    log.append([b"+more"])
    assert log.read(0, 100) == b"kept+more"


def test_a_really_full_disk_is_full_for_appends_maps_and_replacements(
    small_disk: LocalDisk,
) -> None:
    log = small_disk.open_log("a.log")
    log.append([b"x" * 900_000])
    free = small_disk.free_bytes()
    with pytest.raises(DiskFull, match="errno 28"):
        log.append([b"y" * 100_000, b"y" * 100_000])
    assert (log.size, small_disk.size("a.log")) == (900_000, 900_000)
    with pytest.raises(DiskFull):
        small_disk.map_file("a.index", 200_000)
    with pytest.raises(DiskFull):
        small_disk.replace_file("checkpoint", b"z" * 200_000)
    assert small_disk.list_folder("") == ["a.log"]
    assert small_disk.free_bytes() == free


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_every_way_to_have_no_room_is_a_full_disk(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = disk.open_log("a.log")
    monkeypatch.setattr(os, "pwritev", always(number))
    with pytest.raises(DiskFull, match=os.strerror(number)):
        log.append([b"x"])
    assert log.size == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_sync_that_fails_is_no_full_disk_that_gets_room_again(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What could not be written may be gone from memory, and the next sync would not know of it."""
    log, index = disk.open_log("a.log"), disk.map_file("a.index", 4096)
    log.append([b"x"])
    monkeypatch.setattr(os, "fdatasync", always(number))
    for file in (log, index):
        with pytest.raises(DiskFailed, match=os.strerror(number)):
            file.sync()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_opening_without_a_handle_to_spare_is_a_passing_trouble(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    disk.open_log("a.log").append([b"x"])
    opening: list[Callable[[], object]] = [
        lambda: disk.open_log("a.log", create=False),
        lambda: disk.open_log("b.log"),
        lambda: disk.map_file("a.index", 100),
        lambda: disk.map_file("a.log", None),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", always(number))
        for work in opening:
            with pytest.raises(HandlesExhausted, match=os.strerror(number)):
                work()
    assert disk.list_folder("") == ["a.log"]
    assert disk.open_log("a.log", create=False).read(0, 10) == b"x"


def test_a_folder_that_cannot_be_opened_for_a_sync_is_a_passing_trouble(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", always(errno.EMFILE))
    with pytest.raises(HandlesExhausted):
        disk.sync_folder("")
    with pytest.raises(HandlesExhausted):
        disk.replace_file("checkpoint", b"x")


def test_a_sync_that_fails_for_want_of_memory_is_no_passing_trouble(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"x"])
    monkeypatch.setattr(os, "fdatasync", always(errno.ENOMEM))
    with pytest.raises(DiskFailed):
        log.sync()


def test_partial_writes_are_carried_on_to_the_end(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"<"])

    def dribble(fd: int, buffers: Buffers, position: int) -> int:
        return os.pwrite(fd, b"".join(buffers)[:3], position)

    monkeypatch.setattr(os, "pwritev", dribble)
    log.append([b"", b"0123456789", b"", memoryview(b"abcde"), b">"])
    assert log.read(0, 100) == b"<0123456789abcde>"
    assert log.size == 17


def test_a_failing_write_is_cut_off_and_told_with_its_reason(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"kept"])
    answers: Iterator[int | OSError] = iter([3, error(errno.EIO)])

    def write_some_then_fail(fd: int, buffers: Buffers, position: int) -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return os.pwrite(fd, b"".join(buffers)[:answer], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", write_some_then_fail)
        with pytest.raises(DiskFailed, match=r"append a\.log: Input/output error \(errno 5\)"):
            log.append([b"0123456789"])
    assert (log.size, disk.size("a.log")) == (4, 4)
    log.append([b"!"])
    assert log.read(0, 100) == b"kept!"


def test_a_write_that_makes_no_progress_fails(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: 0)
    with pytest.raises(DiskFailed):
        log.append([b"x"])


def test_a_log_that_cannot_be_cut_back_takes_nothing_more(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"kept"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", always(errno.ENOSPC))
        patch.setattr(os, "ftruncate", always(errno.EIO))
        with pytest.raises(DiskFull):
            log.append([b"x"])
    uses: list[Callable[[], None]] = [
        lambda: log.append([b"x"]),
        log.sync,
        lambda: log.truncate(0),
    ]
    for use in uses:
        with pytest.raises(DiskFailed, match="could not be truncated"):
            use()
    assert log.read(0, 100) == b"kept"


def test_readers_never_see_a_half_written_append(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"whole"])
    seen = []

    def write_and_look(fd: int, buffers: Buffers, position: int) -> int:
        written = os.pwrite(fd, b"".join(buffers), position)
        seen.append(log.read(0, 100))
        return written

    monkeypatch.setattr(os, "pwritev", write_and_look)
    log.append([b"next"])
    assert seen == [b"whole"]
    assert log.read(0, 100) == b"wholenext"


# -- syncs -------------------------------------------------------------------------------------------------------------


def test_a_failed_sync_is_final(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", always(errno.EIO))
        with pytest.raises(DiskFailed, match=r"sync a\.log: Input/output error"):
            log.sync()
    for use in (log.sync, lambda: log.append([b"x"]), lambda: log.truncate(0)):
        with pytest.raises(DiskFailed, match="an earlier sync failed"):
            use()
    assert log.size == 4
    assert log.read(0, 4) == b"0123"


def test_a_failed_sync_of_a_map_is_final(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = disk.map_file("a.index", 16)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", always(errno.EIO))
        with pytest.raises(DiskFailed):
            mapped.sync()
    with pytest.raises(DiskFailed, match="an earlier sync failed"):
        mapped.sync()


def test_a_folder_that_cannot_be_synced_is_told(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.make_folder("t-0")
    monkeypatch.setattr(os, "fsync", always(errno.EIO))
    with pytest.raises(DiskFailed, match="sync folder t-0"):
        disk.sync_folder("t-0")


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [errno.EAGAIN, 3])
def test_bytes_that_are_not_all_in_memory_are_not_cached(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    short = 3
    fake = (lambda *args: short) if answer == short else always(answer)
    monkeypatch.setattr(os, "preadv", fake)
    with pytest.raises(NotCached, match=r"a\.log"):
        log.read(0, 10, cached_only=True)
    assert log.read(0, 10) == b"0123456789"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_cached_reads_is_asked_once(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log, other = disk.open_log("a.log"), disk.open_log("b.log")
    log.append([b"0123456789"])
    other.append([b"other"])
    asked = []

    def refuse(*args: object) -> int:
        asked.append(args)
        raise error(number)

    monkeypatch.setattr(os, "preadv", refuse)
    assert log.read(0, 10, cached_only=True) == b"0123456789"
    assert log.read(0, 10, cached_only=True) == b"0123456789"
    assert other.read(0, 10, cached_only=True) == b"other"
    assert len(asked) == 1


def test_bytes_thrown_out_of_memory_are_read_again_all_the_same(disk: LocalDisk) -> None:
    content = os.urandom(1 << 20)
    log = disk.open_log("a.log")
    log.append([content])
    log.sync()
    os.posix_fadvise(fd_of(log), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        # The advice is only advice, so either may happen; what comes must be right.
        assert log.read(0, 1 << 20, cached_only=True) == content
    except NotCached:
        assert log.read(0, 1 << 20) == content
        assert log.read(0, 1 << 20, cached_only=True) == content


def test_a_failing_read_is_told(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123"])
    monkeypatch.setattr(os, "pread", always(errno.EIO))
    monkeypatch.setattr(os, "preadv", always(errno.EIO))
    for cached_only in (False, True):
        with pytest.raises(DiskFailed, match=r"read a\.log: Input/output error"):
            log.read(0, 4, cached_only=cached_only)


def test_short_reads_are_carried_on(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: whole(fd, min(size, 3), position))
    assert log.read(1, 8) == b"12345678"
    os.truncate(disk._full("a.log"), 5)
    assert log.read(1, 8) == b"1234"


def test_closing_does_not_pull_the_file_from_under_a_reader(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open_log("a.log")
    log.append([b"0123456789"])
    fd = fd_of(log)
    reading, closed = threading.Event(), threading.Event()
    whole = os.pread
    got: list[bytes | memoryview] = []

    def slow(fd: int, size: int, position: int) -> bytes:
        reading.set()
        assert closed.wait(timeout=60)
        return whole(fd, size, position)

    monkeypatch.setattr(os, "pread", slow)
    reader = threading.Thread(target=lambda: got.append(log.read(0, 10)))
    reader.start()
    assert reading.wait(timeout=60)
    log.close()
    assert is_open(fd)
    closed.set()
    reader.join()
    assert got == [b"0123456789"]
    assert not is_open(fd)


def test_a_log_nobody_holds_any_more_is_closed(disk: LocalDisk) -> None:
    log = disk.open_log("a.log")
    other = log
    fd = fd_of(log)
    del log
    assert is_open(fd)
    del other
    assert not is_open(fd)


# -- maps --------------------------------------------------------------------------------------------------------------


def test_the_room_of_a_map_is_taken_from_the_disk_at_once(disk: LocalDisk) -> None:
    mapped = disk.map_file("a.index", 1 << 20)
    assert os.stat(disk._full("a.index")).st_blocks * 512 >= 1 << 20
    mapped.close()


def test_a_map_that_finds_no_room_leaves_the_file_as_it_was(disk: LocalDisk) -> None:
    mapped = disk.map_file("old.index", 100)
    mapped.buffer[:5] = b"entry"
    with files_at_most(1000):
        with pytest.raises(DiskFull, match=r"map new\.index"):
            disk.map_file("new.index", 5000)
        with pytest.raises(DiskFull, match=r"resize old\.index"):
            mapped.resize(5000)
        with pytest.raises(DiskFull):
            disk.map_file("old.index", 5000)
    assert disk.list_folder("") == ["old.index"]
    assert disk.size("old.index") == 100
    assert bytes(mapped.buffer[:5]) == b"entry"


def test_room_that_was_taken_only_in_part_is_given_back(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.map_file("a.index", 100).close()

    def take_a_part(fd: int, position: int, size: int) -> None:
        os.ftruncate(fd, position + size // 2)
        raise error(errno.ENOSPC)

    monkeypatch.setattr(os, "posix_fallocate", take_a_part)
    with pytest.raises(DiskFull):
        disk.map_file("a.index", 1000)
    assert disk.size("a.index") == 100


def test_a_closed_map_gives_its_descriptors_back(disk: LocalDisk) -> None:
    before = os.listdir("/proc/self/fd")
    mapped = disk.map_file("a.index", 4096)
    mapped.resize(8192)
    mapped.close()
    assert set(os.listdir("/proc/self/fd")) <= set(before)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_failed_replacement_leaves_the_old_file_and_no_temporary_one(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace_file("checkpoint", b"old")
    for name in ("fsync", "pwritev", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, always(errno.EIO))
            with pytest.raises(DiskFailed, match="replace checkpoint"):
                disk.replace_file("checkpoint", b"new")
        assert disk.read_file("checkpoint") == b"old"
        assert disk.list_folder("") == ["checkpoint"]


def test_a_temporary_file_left_by_a_crash_is_written_over(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "data" / "checkpoint.tmp").write_bytes(b"left over and longer than the new content")
    disk.replace_file("checkpoint", b"new")
    assert disk.read_file("checkpoint") == b"new"
    assert disk.list_folder("") == ["checkpoint"]


def test_replacing_syncs_content_before_the_name_and_the_folder_after_it(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, os.rename

    def traced_sync(fd: int) -> None:
        steps.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        sync(fd)

    def traced_rename(source: str, target: str) -> None:
        steps.append(f"rename to {os.path.basename(target)}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_sync)
    monkeypatch.setattr(os, "rename", traced_rename)
    disk.replace_file("checkpoint", b"1")
    assert steps == ["sync checkpoint.tmp", "rename to checkpoint", "sync data"]


def test_the_data_folder_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = LocalDisk("data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    disk.replace_file("a", b"x")
    assert (tmp_path / "data" / "a").read_bytes() == b"x"


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DiskFailed, match="data"):
        LocalDisk(str(tmp_path / "data"))


def test_the_data_folder_itself_is_not_deleted(disk: LocalDisk) -> None:
    disk.replace_file("a", b"x")
    with pytest.raises(AssertionError):
        disk.delete("")
    assert disk.list_folder("") == ["a"]


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where the system was told what will be read."""
    told: list[tuple[int, int]] = []

    def note(_fd: int, position: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        told.append((position, size))

    monkeypatch.setattr(os, "posix_fadvise", note)
    return told


def test_what_follows_a_large_read_from_the_disk_is_read_ahead(
    tmp_path: Path, hints: list[tuple[int, int]]
) -> None:
    file = LocalDisk(str(tmp_path)).open_log("a.log")
    file.append([bytes(4 * READ_AHEAD_BYTES)])
    file.read(0, READ_AHEAD_FROM_BYTES - 1)
    assert hints == []
    file.read(0, READ_AHEAD_FROM_BYTES)
    assert hints == [(READ_AHEAD_FROM_BYTES, READ_AHEAD_BYTES)]


def test_it_is_read_ahead_again_before_a_reader_comes_to_the_end_of_it(
    tmp_path: Path, hints: list[tuple[int, int]]
) -> None:
    file = LocalDisk(str(tmp_path)).open_log("a.log")
    file.append([bytes(4 * READ_AHEAD_BYTES)])
    step = READ_AHEAD_BYTES // 4
    # Nobody read from the disk so far: all of it is in memory.
    file.read(0, step, cached_only=True)
    if not file._cached_reads.supported:
        pytest.skip("this file system cannot read from memory only")
    assert hints == []
    file.read(0, step)
    for number in range(1, 9):
        file.read(number * step, step, cached_only=True)
    file._ahead.drain()
    assert [position // step for position, _ in hints] == [1, 4, 7]


# -- neighbours --------------------------------------------------------------------------------------------------------


def test_a_closed_file_is_nowhere(disk: LocalDisk) -> None:
    log = disk.open_log("a.log")
    log.close()
    with pytest.raises(DiskFailed, match="closed"):
        log.file_range(0, 1)


@pytest.fixture
def local_reader() -> Iterator[ThreadedLocalReader]:
    found = ThreadedLocalReader("here")
    yield found
    found.close()


def read(local_reader: ThreadedLocalReader, *places: FileRange) -> list[bytes]:
    async def story() -> list[memoryview]:
        return await asyncio.gather(*map(local_reader.read, places))

    return list(map(bytes, asyncio.run(story())))


def test_the_bytes_are_where_they_are_said_to_be(
    disk: LocalDisk, local_reader: ThreadedLocalReader
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    assert read(local_reader, log.file_range(2, 5)) == [b"23456"]
    # Also what was appended since, and several at once.
    log.append([b"abc" * 100_000])
    places = [log.file_range(position, 100_000) for position in (8, 0, 200_000)]
    whole = b"0123456789" + b"abc" * 100_000
    assert read(local_reader, *places) == [
        whole[file_range.position : file_range.position + file_range.size] for file_range in places
    ]


def test_what_has_lost_its_name_is_not_to_be_had(
    disk: LocalDisk, local_reader: ThreadedLocalReader
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    disk.rename("rides-0", "gone")
    with pytest.raises(LocalReadFailed):
        read(local_reader, log.file_range(2, 5))


def test_nobody_changes_what_was_read(disk: LocalDisk, local_reader: ThreadedLocalReader) -> None:
    log = disk.open_log(f"{0:020d}.log")
    log.append([b"0123456789"])

    async def story() -> memoryview:
        return await local_reader.read(log.file_range(0, 10))

    assert asyncio.run(story()).readonly
