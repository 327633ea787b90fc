"""A hash table of fixed size from key hash to newest offset, and the key hash.

```
 a slot, 24 bytes
 0        8        16           24
 | hash 0 | hash 1 | offset + 1 |       0 for offset + 1: the slot is free
```
Linear probing: a search starts at the slot given by the first word of the hash, and ends at the hash or at a free slot.

The hash is SipHash-2-4 with 128 bits (Aumasson and Bernstein): without the secret nobody can construct collisions. A
compaction treats two keys with the same hash as one key, and drops the older record. The odds are one in 10^20
compactions of a billion keys. A random secret per compaction keeps anybody from causing it on purpose.
"""

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, Words, kernel
from respool.columnar.record_table import HAS_VALUE, KEY_BEGIN, KEY_END, OFFSET, TIMESTAMP_DELTA

_INIT_0 = np.uint64(0x736F6D6570736575)
_INIT_1 = np.uint64(0x646F72616E646F6D)
_INIT_2 = np.uint64(0x6C7967656E657261)
_INIT_3 = np.uint64(0x7465646279746573)
_WIDE = np.uint64(0xEE)
_WIDE_SECOND = np.uint64(0xDD)


@kernel
def _turn(word: Word, bits: int) -> Word:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def _round(v0: Word, v1: Word, v2: Word, v3: Word) -> tuple[Word, Word, Word, Word]:
    v0 += v1
    v1 = _turn(v1, 13) ^ v0
    v0 = _turn(v0, 32)
    v2 += v3
    v3 = _turn(v3, 16) ^ v2
    v0 += v3
    v3 = _turn(v3, 21) ^ v0
    v2 += v1
    v1 = _turn(v1, 17) ^ v2
    v2 = _turn(v2, 32)
    return v0, v1, v2, v3


@kernel
def hash_bytes(data: Bytes, begin: int, end: int, secret: Words) -> tuple[Word, Word]:
    """The hash of data[begin:end] as two words."""
    v0 = secret[0] ^ _INIT_0
    v1 = secret[1] ^ _INIT_1 ^ _WIDE
    v2 = secret[0] ^ _INIT_2
    v3 = secret[1] ^ _INIT_3
    at = begin
    while at + 8 <= end:
        word = np.uint64(0)
        for byte in range(8):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    # The last word: the remaining bytes, and the length's lowest byte on top.
    word = np.uint64((end - begin) & 0xFF) << np.uint64(56)
    for byte in range(end - at):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _WIDE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _WIDE_SECOND
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@kernel
def hash_keys(data: Bytes, rows: Numbers, count: int, secret: Words, hashes: Words) -> None:
    """Hash each row's key; rows without a key are skipped."""
    for number in range(count):
        if rows[number, KEY_BEGIN] >= 0:
            begin, end = rows[number, KEY_BEGIN], rows[number, KEY_END]
            hashes[number, 0], hashes[number, 1] = hash_bytes(data, begin, end, secret)


SLOT_BYTES = 24
# Above three quarters, searches become long.
FILL_MAX = 0.75

_FREE = np.uint64(0)


@kernel
def find_slot(slots: Words, mask: int, hash_0: Word, hash_1: Word) -> Word:
    """The slot of this hash, or the free slot for it. There is always a free one."""
    slot = np.int64(hash_0 & np.uint64(mask))
    while slots[slot, 2] != _FREE and (slots[slot, 0] != hash_0 or slots[slot, 1] != hash_1):
        slot = (slot + 1) & mask
    return slot


@kernel
def put_newest(
    slots: Words, used: int, used_max: int, rows: Numbers, count: int, hashes: Words, begin: int
) -> tuple[int, int]:
    """Enter the offset of each row from the offset `begin` on; rows without a key are skipped.

    Returns the number of used slots, and the first row that did not fit, or `count`.
    """
    mask = slots.shape[0] - 1
    for number in range(count):
        if rows[number, KEY_BEGIN] < 0 or rows[number, OFFSET] < begin:
            continue
        slot = find_slot(slots, mask, hashes[number, 0], hashes[number, 1])
        if slots[slot, 2] == _FREE:
            if used >= used_max:
                return used, number
            used += 1
            slots[slot, 0] = hashes[number, 0]
            slots[slot, 1] = hashes[number, 1]
        slots[slot, 2] = np.uint64(rows[number, OFFSET] + 1)
    return used, count


@kernel
def filter_section(
    slots: Words,
    rows: Numbers,
    first: int,
    count: int,
    hashes: Words,
    end: int,
    drop_tombstones: int,
    retained: Numbers,
) -> tuple[int, int, int]:
    """Mark the retained rows; return their number, how many of them are tombstones, and their largest timestamp
    delta.
    """
    mask = slots.shape[0] - 1
    retained_count, tombstones = 0, 0
    delta_max: Word = np.int64(0)
    for number in range(first, first + count):
        retained[number] = 1
        has_key = rows[number, KEY_BEGIN] >= 0
        if rows[number, OFFSET] < end:
            if not has_key or (drop_tombstones and not rows[number, HAS_VALUE]):
                retained[number] = 0
                continue
            slot = find_slot(slots, mask, hashes[number, 0], hashes[number, 1])
            if slots[slot, 2] > np.uint64(rows[number, OFFSET] + 1):
                retained[number] = 0
                continue
        if retained_count == 0 or rows[number, TIMESTAMP_DELTA] > delta_max:
            delta_max = rows[number, TIMESTAMP_DELTA]
        retained_count += 1
        if has_key and not rows[number, HAS_VALUE]:
            tombstones += 1
    return retained_count, tombstones, delta_max


@kernel
def filter_sections(
    slots: Words,
    rows: Numbers,
    hashes: Words,
    end: int,
    drop_tombstones: Numbers,
    counts: Numbers,
    retained: Numbers,
    summaries: Numbers,
) -> None:
    """Fill a summary for each section: retained rows (-1 for a malformed section), tombstones, largest timestamp
    delta.
    """
    first = 0
    for index in range(counts.shape[0]):
        if counts[index] < 0:
            summaries[index, 0], summaries[index, 1], summaries[index, 2] = -1, 0, 0
            continue
        summaries[index, 0], summaries[index, 1], summaries[index, 2] = filter_section(
            slots, rows, first, counts[index], hashes, end, drop_tombstones[index], retained
        )
        first += counts[index]
