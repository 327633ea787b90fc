"""The `.tagindex` file of a finished segment: for each batch and indexed name, which values may occur.

```
 0       8            12        16              20            24           28          36             44
 | magic | byte order | batches | columns       | first crc   | last crc   | log bytes | secret check |
 44
 | base offset, relative: 4 per batch | position: 4 per batch | columns … | crc of everything before it: 4 |

 a column
 0             1             3        7        11             15
 | kind        | name length | hashes | others | filter bytes | name | starts: 4 per batch, and 4 | hashes: 2 each |
 | others: 4 each | end of each one's filter: 4 | filters |
```
Numbers are in the machine's byte order, since the file is mapped and searched as it is; a file of another order is not
used. `kind` is 0 for a header, 1 for the key. `log bytes` is the segment's size, `first crc` and `last crc` are the
checksums in the headers of its first and last batch: an index of other bytes is not used. `secret check` tells the
secret of the hashes. `tag_columns.py` says what hashes, others and filters are.

The file derives from the log, and may be deleted. It is written as a whole, replaced, and never changed.
"""

import re
from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from respool.log.index.tag_columns import SHORT_HASH_BYTES, GrowingTags, TagColumn, TagExtent
from respool.log.tag_query import TagName
from respool.model.ids import Offset

_MAGIC = b"rsp-tag1"
_BYTE_ORDER = 0x01020304
_HEAD = Struct("=8sIIIIIQQ")
_COLUMN = Struct("=BHIII")
_CRC = Struct("=I")
_NUMBER_BYTES = 4
_OF_HEADER, _OF_KEY = 0, 1


class TagFileBroken(Exception):
    """The file is from another machine, or damaged."""


class TagFileHead(NamedTuple):
    batch_count: int
    first_crc: int
    last_crc: int
    log_bytes: int
    secret_check: int


class MappedColumn:
    def __init__(
        self,
        starts: memoryview,
        hashes: memoryview,
        others: memoryview,
        filter_ends: memoryview,
        filters: memoryview,
    ) -> None:
        self.starts: Sequence[int] = starts
        self.others: Sequence[int] = others
        self._hashes = hashes
        self._filter_ends = filter_ends
        self._filters = filters

    def find(self, short_hash: bytes, begin: int, end: int) -> int:
        # A view has no `find`; this is as fast, and copies nothing.
        found = re.compile(re.escape(short_hash), re.DOTALL).search(self._hashes, begin, end)
        return -1 if found is None else found.start()

    def filter_of(self, index: int) -> memoryview:
        begin = self._filter_ends[index - 1] if index else 0
        return self._filters[begin : self._filter_ends[index]]


class MappedTags:
    def __init__(
        self,
        head: TagFileHead,
        bases: memoryview,
        positions: memoryview,
        columns: dict[TagName, TagColumn],
    ) -> None:
        self.head = head
        self.bases: Sequence[int] = bases
        self.positions: Sequence[int] = positions
        self.columns = columns
        # The offset after the last batch is that of the next segment.
        self.extent = TagExtent(head.batch_count, head.log_bytes, Offset(-1))


def encode_tags(tags: GrowingTags, head: TagFileHead) -> bytes:
    columns = tags.growing_columns
    parts = [
        _HEAD.pack(
            _MAGIC, _BYTE_ORDER, head.batch_count, len(columns), head.first_crc, head.last_crc,
            head.log_bytes, head.secret_check,
        ),
        tags.bases.tobytes(),
        tags.positions.tobytes(),
    ]  # fmt: skip
    for name, column in columns.items():
        filters = b"".join(column.filters)
        ends, end = [], 0
        for one in column.filters:
            end += len(one)
            ends.append(end)
        parts += [
            _COLUMN.pack(
                _OF_KEY if name is None else _OF_HEADER,
                len(name or b""),
                len(column.hashes) // SHORT_HASH_BYTES,
                len(column.others),
                len(filters),
            ),
            name or b"",
            column.starts.tobytes(),
            bytes(column.hashes),
            column.others.tobytes(),
            Struct(f"={len(ends)}I").pack(*ends),
            filters,
        ]
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def parse_tags(data: memoryview) -> MappedTags:
    """
    Raises:
        TagFileBroken: it is short, damaged, or of another machine.
    """
    try:
        body = data[: len(data) - _CRC.size]
        (crc,) = _CRC.unpack_from(data, len(body))
        if crc != crc32c(body):
            raise TagFileBroken("the checksum does not fit")
        return _TagFileReader(body).tags()
    except (error, ValueError, TypeError) as cause:
        raise TagFileBroken(str(cause)) from cause


class _TagFileReader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def tags(self) -> MappedTags:
        magic, order, batches, columns, first_crc, last_crc, log_bytes, check = _HEAD.unpack(
            self._take(_HEAD.size)
        )
        if magic != _MAGIC or order != _BYTE_ORDER:
            raise TagFileBroken("it has another format or byte order")
        bases, positions = self._numbers(batches), self._numbers(batches)
        found = dict(self._column(batches) for _ in range(columns))
        if self._at != len(self._data):
            raise TagFileBroken(f"{len(self._data) - self._at} bytes are left over")
        head = TagFileHead(batches, first_crc, last_crc, log_bytes, check)
        return MappedTags(head, bases, positions, found)

    def _column(self, batches: int) -> tuple[TagName, TagColumn]:
        kind, name_length, hashes, others, filter_bytes = _COLUMN.unpack(self._take(_COLUMN.size))
        name = bytes(self._take(name_length))
        column = MappedColumn(
            self._numbers(batches + 1),
            self._take(hashes * SHORT_HASH_BYTES),
            self._numbers(others),
            self._numbers(others),
            self._take(filter_bytes),
        )
        return (None if kind == _OF_KEY else name), column

    def _numbers(self, count: int) -> memoryview:
        return self._take(count * _NUMBER_BYTES).cast("I")

    def _take(self, size: int) -> memoryview:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise TagFileBroken(f"it ends before byte {self._at + size}")
        self._at += size
        return taken
