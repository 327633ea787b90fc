"""Memory for replies of many megabytes that live for a millisecond.

By default glibc maps such a block anew each time, and the kernel then clears every page of it: reading 1 MB from the
page cache took 1.4 ms of CPU, and takes 0.4 ms from memory that is kept. Python clears it once more; that was a
seventh of what a broker does to serve a fetch.
"""

import ctypes
import sys
from typing import Any

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Blocks up to this size come from memory that is kept; glibc takes no larger number.
KEPT_BLOCK_BYTES_MAX = 32 * 1024 * 1024
# This much free memory at the end of the heap is kept.
KEPT_BYTES_MAX = 64 * 1024 * 1024
# Below this Python's own way takes less.
UNCLEARED_FROM_BYTES = 16 * 1024


def keep_freed_memory() -> bool:
    """Set it for this process; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX)
        and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    )


def uncleared(size: int) -> bytearray:
    """Room for so many bytes with whatever was there before: only for who fills all of it before anybody looks."""
    if _new_bytearray is None or size < UNCLEARED_FROM_BYTES:
        return bytearray(size)
    room: bytearray = _new_bytearray(None, size)
    return room


def _python_call() -> Any:
    """C's way to a bytearray, which copies into it only where it is given something to copy; None outside CPython."""
    if sys.implementation.name != "cpython":
        return None
    call = ctypes.pythonapi.PyByteArray_FromStringAndSize
    call.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
    call.restype = ctypes.py_object
    return call


_new_bytearray = _python_call()
