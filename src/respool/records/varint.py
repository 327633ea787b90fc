"""Variable-length integers, as in records.

Zigzag encoding keeps small negative numbers small (0, -1, 1, -2 become 0, 1, 2, 3); then seven bits per byte are
written, lowest first; the top bit means that another byte follows.

```
  300 -> zigzag 600 = 100 1011000b ->  1 1011000 | 0 0000100
```
"""

from respool.model.errors import CorruptMessage

# Lengths, counts and offset deltas; and the width of timestamp deltas.
INT_BITS = 32
LONG_BITS = 64
_ONE_BYTE_MAX = 0x3F


def append_varint(out: bytearray, value: int) -> None:
    """Append `value`, which must fit a signed 64-bit integer."""
    if 0 <= value <= _ONE_BYTE_MAX:
        # The common case.
        out.append(value << 1)
        return
    assert -(2**63) <= value < 2**63, value
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(buffer: bytes, position: int, *, end: int, bits: int = INT_BITS) -> tuple[int, int]:
    """Read the number at `position`; return it and the following position.

    Raises:
        CorruptMessage: it does not end before `end`, or does not fit `bits`.
    """
    folded = shift = 0
    while True:
        if position >= end:
            raise CorruptMessage(f"a number is incomplete at byte {end}")
        byte = buffer[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        # Stop at a run of 0xff, instead of building a number as long as the buffer.
        if shift >= bits:
            raise CorruptMessage(f"the number ending at byte {position} is longer than {bits} bits")
    if folded >> bits:
        raise CorruptMessage(f"the number ending at byte {position} does not fit {bits} bits")
    return (folded >> 1) ^ -(folded & 1), position
