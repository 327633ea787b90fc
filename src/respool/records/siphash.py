"""SipHash-2-4 (Aumasson and Bernstein) in plain Python: without the secret nobody can construct collisions.

`columnar/key_table.py` is the compiled form. This one takes 20 us for a short value; callers remember results.
"""

from struct import Struct

_WORD_MASK = 2**64 - 1
_INIT = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# The variant with 128 bits.
_WIDE = 0xEE
_TWO_WORDS = Struct("<2Q").unpack
_WORD_BYTES = 8


def siphash(data: bytes, secret: bytes) -> int:
    """The first 64 of the 128 bits of the hash; the secret has 16 bytes."""
    low: int
    high: int
    low, high = _TWO_WORDS(secret)
    state = (low ^ _INIT[0], high ^ _INIT[1] ^ _WIDE, low ^ _INIT[2], high ^ _INIT[3])
    whole = len(data) // _WORD_BYTES * _WORD_BYTES
    # The last word: the remaining bytes, and the length's lowest byte on top.
    last = data[whole:].ljust(_WORD_BYTES - 1, b"\0") + bytes([len(data) & 0xFF])
    for at in range(0, whole + _WORD_BYTES, _WORD_BYTES):
        word = int.from_bytes(data[at : at + _WORD_BYTES] if at < whole else last, "little")
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _round(*_round(v0, v1, v2, v3 ^ word))
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = state
    v2 ^= _WIDE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _WORD_MASK
    v1 = _turn(v1, 13) ^ v0
    v0 = _turn(v0, 32)
    v2 = (v2 + v3) & _WORD_MASK
    v3 = _turn(v3, 16) ^ v2
    v0 = (v0 + v3) & _WORD_MASK
    v3 = _turn(v3, 21) ^ v0
    v2 = (v2 + v1) & _WORD_MASK
    v1 = _turn(v1, 17) ^ v2
    v2 = _turn(v2, 32)
    return v0, v1, v2, v3


def _turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD_MASK
