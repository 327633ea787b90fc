"""Where bytes lie in a file of this machine, for another process that may open it."""

from typing import NamedTuple


class FilePlace(NamedTuple):
    path: str
    # They tell whether the file under this name is still the one that is meant.
    device: int
    inode: int
    position: int
    size: int


class NotLent(Exception):
    """The bytes cannot be had this way: the file is gone, is another one, or not ours to open. Have them sent."""
