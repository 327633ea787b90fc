"""Numbers as records write them, for kernels; `records/varint.py` explains them."""

import numpy as np

from respool.columnar.compiled import Bytes, Word, kernel, part_of_kernels

INT_BITS = 32
LONG_BITS = 64
BROKEN = -1

_SHORT_BYTES = 3
_MORE = np.uint64(0x80)
_LOW = np.uint64(0x7F)


@part_of_kernels
def read_varint(data: Bytes, at: int, end: int, bits: int) -> tuple[Word, int]:
    """The number at `at` and where the next thing begins; that is BROKEN when it is cut off or too large."""
    # Nearly all take one byte, two or three, and without a loop these take a third of the time. An index without a sign
    # needs no look whether it counts from the end.
    if end - at >= _SHORT_BYTES:
        first = np.uint64(data[np.uint64(at)])
        if first < _MORE:
            return unfolded(first), at + 1
        second = np.uint64(data[np.uint64(at + 1)])
        folded = (first & _LOW) | (second & _LOW) << np.uint64(7)
        if second < _MORE:
            return unfolded(folded), at + 2
        third = np.uint64(data[np.uint64(at + 2)])
        if third < _MORE:
            return unfolded(folded | third << np.uint64(14)), at + 3
    return read_long_varint(data, at, end, bits)


@kernel
def read_long_varint(data: Bytes, at: int, end: int, bits: int) -> tuple[Word, int]:
    """The same for a number of any length."""
    folded = np.uint64(0)
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        low = np.uint64(byte & 0x7F)
        # What does not fit is either shifted out of 64 bits, or above the 32 that an int has.
        if shift == 63 and low > np.uint64(1):
            return np.int64(0), BROKEN
        folded |= low << np.uint64(shift)
        if byte < 0x80:
            if bits == INT_BITS and folded >> np.uint64(32):
                return np.int64(0), BROKEN
            return unfolded(folded), at
        shift += 7
        if shift >= bits:
            return np.int64(0), BROKEN
    return np.int64(0), BROKEN


@part_of_kernels
def unfolded(folded: Word) -> Word:
    """Even numbers stand for those from 0 up, odd ones for those from -1 down."""
    return np.int64(folded >> np.uint64(1)) ^ -np.int64(folded & np.uint64(1))


@kernel
def write_varint(target: Bytes, at: int, value: Word) -> int:
    rest = (np.uint64(value) << np.uint64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    while rest > np.uint64(0x7F):
        target[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    target[at] = np.uint8(rest)
    return at + 1


@kernel
def varint_bytes(value: Word) -> int:
    rest = (np.uint64(value) << np.uint64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    size = 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size
