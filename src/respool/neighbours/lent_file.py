"""Bytes of a file that another process of this machine names: taken if it is that very file, and we may open it."""

import os
import re
import stat
from contextlib import suppress

from respool.model.file_place import FilePlace, NotLent

# Segments of logs, and nothing else.
_NAME = re.compile(r"\d{20}\.log")
# Who reads so much reads on: what is behind it is brought into memory meanwhile.
READ_AHEAD_BYTES = 4 * 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def read_lent(place: FilePlace, target: memoryview) -> None:
    """Fill `target`, which is as large as what was lent.

    The file is opened each time: that costs little beside the megabytes that are read, and one kept open would keep a
    deleted segment's room on the disk.

    Raises:
        NotLent: one of its reasons; what is in `target` then is of no use.
    """
    assert len(target) == place.size
    try:
        # To open a device may do something; so it is looked at before.
        _check(place, os.stat(place.path, follow_symlinks=False))
        fd = os.open(place.path, _FLAGS)
    except (OSError, ValueError) as error:
        raise NotLent(f"{place.path!r}: {error}") from error
    try:
        _check(place, os.fstat(fd))
        _fill(fd, place, target)
    except OSError as error:
        raise NotLent(f"{place.path!r}: {error}") from error
    finally:
        os.close(fd)
    if target[: len(place.head)] != place.head:
        # Deleted, and its inode given to another log of the same name; or cut off there, and written anew.
        raise NotLent(f"{place.path!r} has other bytes at {place.position} by now")


def _check(place: FilePlace, found: os.stat_result) -> None:
    if _NAME.fullmatch(os.path.basename(place.path)) is None or not stat.S_ISREG(found.st_mode):
        raise NotLent(f"{place.path!r} is no segment of a log")
    if (found.st_dev, found.st_ino) != (place.device, place.inode):
        raise NotLent(f"{place.path!r} is another file by now")


def _fill(fd: int, place: FilePlace, target: memoryview) -> None:
    with suppress(OSError, AttributeError):
        os.posix_fadvise(fd, place.position, place.size + READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
    have = 0
    while have < place.size:
        got = os.preadv(fd, [target[have:]], place.position + have)
        if not got:
            raise NotLent(f"{place.path!r} ends at byte {place.position + have}")
        have += got
