"""Numbers as records write them, for kernels; `records/varint.py` explains them."""

import numpy as np

from respool.columnar.compiled import Bytes, Word, kernel

INT_BITS = 32
LONG_BITS = 64
BROKEN = -1


@kernel
def read_varint(data: Bytes, at: int, end: int, bits: int) -> tuple[Word, int]:
    """The number at `at` and where the next thing begins; that is BROKEN when it is cut off or too large."""
    folded = np.uint64(0)
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        low = np.uint64(byte & 0x7F)
        # What does not fit is either shifted out of 64 bits, or above the 32 that an int has.
        if shift == 63 and low > np.uint64(1):
            return 0, BROKEN
        folded |= low << np.uint64(shift)
        if byte < 0x80:
            if bits == INT_BITS and folded >> np.uint64(32):
                return 0, BROKEN
            return np.int64(folded >> np.uint64(1)) ^ -np.int64(folded & np.uint64(1)), at
        shift += 7
        if shift >= bits:
            return 0, BROKEN
    return 0, BROKEN


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
