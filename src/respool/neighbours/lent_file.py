"""Bytes of a file that another process of this machine names: taken if it is that very file, and we may open it."""

import os
import stat

from respool.model.file_place import FilePlace, NotLent


def read_lent(place: FilePlace, target: memoryview) -> None:
    """Fill `target`, which is as large as what was lent.

    The file is opened each time: that costs little beside the megabytes that are read, and one kept open would keep a
    deleted segment's room on the disk.

    Raises:
        NotLent: one of its reasons; what is in `target` then is of no use.
    """
    assert len(target) == place.size
    try:
        # It waits for nobody, whatever the name stands for.
        fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise NotLent(f"{place.path}: {error}") from error
    try:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (place.device, place.inode):
            raise NotLent(f"{place.path} is another file by now")
        if not stat.S_ISREG(found.st_mode):
            raise NotLent(f"{place.path} is no file")
        _fill(fd, place, target)
    except OSError as error:
        raise NotLent(f"{place.path}: {error}") from error
    finally:
        os.close(fd)


def _fill(fd: int, place: FilePlace, target: memoryview) -> None:
    have = 0
    while have < place.size:
        got = os.preadv(fd, [target[have:]], place.position + have)
        if not got:
            raise NotLent(f"{place.path} ends at byte {place.position + have}")
        have += got
