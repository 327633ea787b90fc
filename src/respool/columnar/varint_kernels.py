"""Variable-length integers of records, for kernels; `records/varint.py` explains the format."""

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
    """Return the number at `at` and the following position, which is BROKEN if it is incomplete or too large."""
    # Nearly all take one to three bytes, and unrolled these take a third of the time. An unsigned index needs no check
    # for negative positions.
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
    """As `read_varint`, for numbers of any length."""
    folded = np.uint64(0)
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        low = np.uint64(byte & 0x7F)
        # Excess bits are either shifted out of 64 bits, or above the 32 of an int.
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
    """Zigzag decoding: even numbers are non-negative, odd ones negative."""
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
