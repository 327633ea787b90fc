"""An entry of the wheel: when a record is due, and where it lies in the log.

```
 0          8         16        24
 | due (ms) | offset  | first  |      big-endian, so that comparing entries as bytes orders them by (due, offset)
```
`offset` is where the record lies now, `first` where it was written: retention moves records that wait. An entry in
memory is these bytes: they are half as large as numbers, and sort faster.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from respool.model.ids import Offset

ENTRY_BYTES = 24
# A bytes object of an entry, and a list's reference to it.
ENTRY_MEMORY_BYTES = 72
_ENTRY = Struct(">QQQ")
_DUE = Struct(">Q")


def pack_entry(due_ms: int, offset: Offset, first: Offset | None = None) -> bytes:
    return _ENTRY.pack(due_ms, offset, offset if first is None else first)


def due_of(entry: bytes) -> int:
    return int.from_bytes(entry[:8], "big")


def offset_of(entry: bytes) -> Offset:
    return Offset(int.from_bytes(entry[8:16], "big"))


def first_offset_of(entry: bytes) -> Offset:
    return Offset(int.from_bytes(entry[16:24], "big"))


def entries_in(data: bytes | memoryview) -> list[bytes]:
    data = bytes(data)
    return [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]


def dues_in(entries: Sequence[bytes]) -> Iterator[int]:
    """The times at which they are due, for many entries at once."""
    return (due for (due,) in map(_DUE.unpack_from, entries))


def bytes_due_before(due_ms: int) -> bytes:
    """Entries that are due earlier compare less than this, others do not."""
    return _DUE.pack(due_ms)
