"""Local reads (HDFS: short-circuit local reads): a client or follower on the broker's host reads the log files.

The broker names a file range instead of sending the bytes. The reader opens the file, checks that it is the same file,
and reads the range; if that fails, it asks the broker to send the bytes.
"""

import os
import re
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from respool.model.file_range import FileRange, LocalReadFailed

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Log segments only.
_NAME = re.compile(r"\d{20}\.log")
# Readers are mostly sequential, so the kernel reads ahead.
READ_AHEAD_BYTES = 4 * 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


@cache
def this_host() -> str:
    """Return the kernel's boot id, which only processes under the same kernel share; empty if there is none."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def read_file_range(file_range: FileRange, target: memoryview) -> None:
    """Read the range into `target`, which has its size.

    The file is opened each time: that costs little compared with megabytes of data, and an open file would keep the
    disk space of a deleted segment.

    Raises:
        LocalReadFailed: the range cannot be read locally; the content of `target` is undefined.
    """
    assert len(target) == file_range.size
    try:
        # Opening a device may have effects, so its type is checked first.
        _check(file_range, os.stat(file_range.path, follow_symlinks=False))
        fd = os.open(file_range.path, _FLAGS)
    except (OSError, ValueError) as error:
        raise LocalReadFailed(f"{file_range.path!r}: {error}") from error
    try:
        _check(file_range, os.fstat(fd))
        _fill(fd, file_range, target)
    except OSError as error:
        raise LocalReadFailed(f"{file_range.path!r}: {error}") from error
    finally:
        os.close(fd)
    if target[: len(file_range.head)] != file_range.head:
        # The file was deleted and its inode reused by a log of the same name, or it was truncated and rewritten.
        raise LocalReadFailed(f"{file_range.path!r} has other bytes at {file_range.position} now")


def _check(file_range: FileRange, found: os.stat_result) -> None:
    if _NAME.fullmatch(os.path.basename(file_range.path)) is None or not stat.S_ISREG(
        found.st_mode
    ):
        raise LocalReadFailed(f"{file_range.path!r} is not a log segment")
    if (found.st_dev, found.st_ino) != (file_range.device, file_range.inode):
        raise LocalReadFailed(f"{file_range.path!r} is another file now")


def _fill(fd: int, file_range: FileRange, target: memoryview) -> None:
    with suppress(OSError, AttributeError):
        os.posix_fadvise(
            fd, file_range.position, file_range.size + READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED
        )
    have = 0
    while have < file_range.size:
        got = os.preadv(fd, [target[have:]], file_range.position + have)
        if not got:
            raise LocalReadFailed(f"{file_range.path!r} ends at byte {file_range.position + have}")
        have += got
