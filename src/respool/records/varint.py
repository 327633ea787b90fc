"""Whole numbers in as few bytes as they need, as records write them.

A number is folded so that small negatives stay small (0, -1, 1, -2 become 0, 1, 2, 3) and then written seven bits a
byte, lowest first; the top bit says that another byte follows.

```
  300 -> folded 600 = 100 1011000b ->  1 1011000 | 0 0000100
```
"""

from respool.model.errors import CorruptMessage

# Lengths, counts and offset deltas; and what only timestamp deltas need.
INT_BITS = 32
LONG_BITS = 64
_ONE_BYTE_MAX = 0x3F


def append_varint(out: bytearray, value: int) -> None:
    """Write `value`, which must fit 64 bits with its sign."""
    if 0 <= value <= _ONE_BYTE_MAX:
        # Most of them.
        out.append(value << 1)
        return
    assert -(2**63) <= value < 2**63, value
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(buffer: bytes, position: int, *, end: int, bits: int = INT_BITS) -> tuple[int, int]:
    """Read the number at `position`; return it and where the next thing begins.

    Raises:
        CorruptMessage: it does not stop before `end`, or does not fit `bits`.
    """
    folded = shift = 0
    while True:
        if position >= end:
            raise CorruptMessage(f"a number is cut off at byte {end}")
        byte = buffer[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        # Stops a run of 0xff here, instead of building a number as long as the buffer.
        if shift >= bits:
            raise CorruptMessage(f"the number ending at byte {position} is longer than {bits} bits")
    if folded >> bits:
        raise CorruptMessage(f"the number ending at byte {position} does not fit {bits} bits")
    return (folded >> 1) ^ -(folded & 1), position
