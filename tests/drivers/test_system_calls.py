"""What stands in for the system calls that macOS lacks, and for what its own do differently."""

import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from respool.drivers.local_disk import LocalDisk
from respool.drivers.read_ahead import Descriptor
from respool.drivers.system_calls import allocate, raise_file_limit, sync_data, sync_file
from respool.local_reads import local_file_read
from respool.model.errors import DiskFailed

F_FULLFSYNC = 51
MISSING = ("fdatasync", "posix_fallocate", "posix_fadvise", "POSIX_FADV_WILLNEED")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    descriptor = Descriptor(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    yield descriptor.fd
    # Not before: a descriptor that nobody refers to is closed.
    del descriptor


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that sync, as they come."""
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, noting(calls, name))
    return calls


def noting(calls: list[str], name: str) -> Callable[..., None]:
    return lambda *_: calls.append(name)


def failing(number: int) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def add_full_sync(monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", call)


def test_data_is_synced_by_fsync_without_fdatasync(
    fd: int, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    sync_data(fd)
    monkeypatch.delattr(os, "fdatasync")
    sync_data(fd)
    assert synced == ["fdatasync", "fsync"]


def test_every_sync_is_a_full_one_where_the_system_has_it(
    fd: int, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[int, int]] = []
    add_full_sync(monkeypatch, lambda fd, command: commands.append((fd, command)))
    sync_data(fd)
    sync_file(fd)
    assert commands == [(fd, F_FULLFSYNC)] * 2
    assert synced == []


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_full_syncs_gets_plain_ones(
    fd: int, synced: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    add_full_sync(monkeypatch, failing(number))
    sync_file(fd)
    monkeypatch.delattr(os, "fdatasync")
    sync_data(fd)
    assert synced == ["fsync", "fsync"]


def test_a_full_sync_that_fails_is_not_made_good_by_a_plain_one(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LocalDisk(str(tmp_path)).open_log("a.log")
    log.append([b"lost"])
    add_full_sync(monkeypatch, failing(errno.EIO))
    with pytest.raises(DiskFailed, match=r"sync a\.log"):
        log.sync()
    assert synced == []


@pytest.mark.parametrize("size", [1, 4096, 3 * 1024 * 1024 + 7])
def test_zeros_are_written_without_posix_fallocate(
    fd: int, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    os.pwrite(fd, b"entry", 0)
    monkeypatch.delattr(os, "posix_fallocate")
    allocate(fd, 5, size)
    assert os.pread(fd, 5 + size + 1, 0) == b"entry" + bytes(size)
    assert os.fstat(fd).st_blocks * 512 >= 5 + size


def test_zeros_are_written_where_the_file_system_allocates_nothing(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EOPNOTSUPP))
    allocate(fd, 0, 5000)
    assert os.fstat(fd).st_size == 5000
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        allocate(fd, 5000, 5000)
    assert os.fstat(fd).st_size == 5000


def test_a_map_is_flushed_where_syncing_its_file_may_not_write_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []

    class Noting(mmap.mmap):
        def flush(self, *args: int) -> None:
            flushed.append(len(self))
            super().flush(*args)

    monkeypatch.setattr(mmap, "mmap", Noting)
    disk = LocalDisk(str(tmp_path))
    mapped = disk.map_file("a.index", 4096)
    mapped.sync()
    assert flushed == []
    for name in MISSING:
        monkeypatch.delattr(os, name)
    mapped.resize(8192)
    mapped.buffer[8187:] = b"entry"
    mapped.sync()
    assert flushed == [8192]
    mapped.close()
    empty = disk.map_file("empty.index", 0)
    empty.sync()
    empty.close()
    assert disk.size("a.index") == 8192


def test_hints_to_the_page_cache_are_left_out_without_posix_fadvise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("posix_fadvise", "POSIX_FADV_WILLNEED", "POSIX_FADV_DONTNEED"):
        monkeypatch.delattr(os, name)
    name = "00000000000000000000.log"
    log = LocalDisk(str(tmp_path)).open_log(name)
    data = os.urandom(512 * 1024)
    log.append([data])
    log.forget_cached()
    assert bytes(log.read(0, len(data))) == data
    target = bytearray(len(data))
    local_file_read.read_file_range(log.file_range(0, len(data)), memoryview(target))
    assert target == data


def test_a_system_without_a_boot_id_has_no_name_for_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_file_read, "_BOOT_ID", tmp_path / "none")
    assert local_file_read.this_host.__wrapped__() == ""


@pytest.mark.parametrize(
    ("soft", "hard", "accepted_max", "expected"),
    [
        (1024, 4096, 4096, 4096),
        (4096, 4096, 0, 4096),
        # macOS: the hard limit is infinite, and the system takes no more than it can do.
        (256, resource.RLIM_INFINITY, 122_880, 65_536),
        (256, resource.RLIM_INFINITY, 10_240, 10_240),
        (20_000, resource.RLIM_INFINITY, 10_240, 20_000),
    ],
)
def test_the_limit_of_open_files_is_the_highest_that_the_system_takes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, accepted_max: int, expected: int
) -> None:
    limits = [(soft, hard)]

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        if not 0 <= wanted[0] <= accepted_max:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    raise_file_limit()
    assert limits[-1] == (expected, hard)
