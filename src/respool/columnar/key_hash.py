"""SipHash-2-4 with 128 bits (Aumasson and Bernstein): a hash that nobody without the secret can aim at.

A compaction takes two keys with one hash for the same key, and drops the older one's record. By chance that happens
once in 10^20 compactions of a billion keys; and since the secret is drawn anew for each, not on purpose either.
"""

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, Words, kernel
from respool.columnar.record_table import KEY_BEGIN, KEY_END

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
    """The hash of data[begin:end], as two words."""
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
    # The last word: what is left, and the length's lowest byte on top.
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
    """The hash of each row's key; a row without one is left as it is."""
    for number in range(count):
        if rows[number, KEY_BEGIN] >= 0:
            begin, end = rows[number, KEY_BEGIN], rows[number, KEY_END]
            hashes[number, 0], hashes[number, 1] = hash_bytes(data, begin, end, secret)
