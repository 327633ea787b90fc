"""A range of a file on this host, for local reads by another process."""

from typing import NamedTuple


class FileRange(NamedTuple):
    path: str
    # They tell whether the path still names the same file.
    device: int
    inode: int
    position: int
    size: int
    # The first bytes of the range: inode and name of a deleted file may be reused.
    head: bytes = b""


# How long after the request a range may be read. A replaced or deleted file is kept for longer under another name, so
# that no other file can have its inode in that time.
FILE_RANGE_VALID_MS = 10_000


class LocalReadFailed(Exception):
    """The range cannot be read locally: the file is gone, was replaced or may not be opened. Have the bytes sent."""
