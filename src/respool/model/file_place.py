"""Where bytes lie in a file of this machine, for another process that may open it."""

from typing import NamedTuple


class FilePlace(NamedTuple):
    path: str
    # They tell whether the file under this name is still the one that is meant.
    device: int
    inode: int
    position: int
    size: int
    # What the bytes begin with: a deleted file's inode is given to the next one, and its name may be.
    head: bytes = b""


# How long a place may be used after it was asked for. A file that is replaced or deleted stays at least so long under
# another name, so that until then no other file has its inode.
PLACE_GOOD_MS = 10_000


class NotLent(Exception):
    """The bytes cannot be had this way: the file is gone, is another one, or not ours to open. Have them sent."""
