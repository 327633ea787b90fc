"""A range of a file on this host, for local reads by another process."""

from typing import NamedTuple


class FileRange(NamedTuple):
    path: str
    # Both show whether the path still refers to the same file.
    device: int
    inode: int
    position: int
    size: int
    # The first bytes of the range, because the inode and name of a deleted file may be reused.
    head: bytes = b""


# How long after the request a range may be read. A replaced or deleted file is kept for longer under another name, so
# that no other file can get its inode in that time.
FILE_RANGE_VALID_MS = 10_000


class LocalReadFailed(Exception):
    """The range cannot be read locally: the file is gone, replaced or not accessible. Fetch the bytes instead."""
