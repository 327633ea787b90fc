"""The entries of a tag index: for each batch and name, which values may occur. In memory while they are made.

| different values in a batch | remembered                                        | false matches |
|-----------------------------|---------------------------------------------------|---------------|
| up to 64                    | 16 bits of each one's hash, sorted                | below 0.1 %   |
| up to 4,096                 | a Bloom filter of 10 bits per value, 7 hashes     | below 1 %     |
| more                        | nothing: the batch may match                      |               |

One thread adds batches; others may search at the same time: they see only batches below `extent`, which is replaced
when everything of a batch is there.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from respool.log.tag_query import TagName
from respool.model.ids import Offset
from respool.ports.record_scan import TagHashes

HASHES_MAX = 64
SHORT_HASH_BYTES = 2
_SHORT_HASH_MASK = 0xFFFF
BLOOM_BITS_PER_VALUE = 10
BLOOM_HASHES = 7
_HALF_BITS = 32
_HALF_MASK = 2**32 - 1


class TagExtent(NamedTuple):
    """How far an index reaches into its segment."""

    batch_count: int
    # The end of the last batch.
    position: int
    offset: Offset


class TagColumn(Protocol):
    """The index of one name. Batches are numbered in the order of the segment."""

    @property
    def starts(self) -> Sequence[int]:
        """Where each batch's short hashes start, counted in hashes; one more than there are batches."""

    @property
    def others(self) -> Sequence[int]:
        """The batches with too many values for short hashes."""

    def find(self, short_hash: bytes, begin: int, end: int) -> int:
        """The position of these bytes within the short hashes; -1 if they do not occur."""

    def filter_of(self, index: int) -> bytes | memoryview:
        """The Bloom filter of `others[index]`; empty if anything may occur."""


class Tags(Protocol):
    """The index of one segment, in memory or in a file."""

    @property
    def extent(self) -> TagExtent: ...

    @property
    def bases(self) -> Sequence[int]:
        """Each batch's base offset, relative to the segment's."""

    @property
    def positions(self) -> Sequence[int]: ...

    @property
    def columns(self) -> "dict[TagName, TagColumn]": ...


class GrowingColumn:
    def __init__(self) -> None:
        self.starts = array("I", [0])
        self.others = array("I")
        self.hashes = bytearray()
        self.filters: list[bytes] = []

    def add(self, batch: int, hashes: TagHashes) -> None:
        if hashes is None or len(hashes) > HASHES_MAX:
            self.filters.append(b"" if hashes is None else bloom_filter(hashes))
            self.others.append(batch)
        else:
            short = array("H", sorted({one & _SHORT_HASH_MASK for one in hashes}))
            self.hashes += short.tobytes()
        self.starts.append(len(self.hashes) // SHORT_HASH_BYTES)

    def find(self, short_hash: bytes, begin: int, end: int) -> int:
        return self.hashes.find(short_hash, begin, end)

    def filter_of(self, index: int) -> bytes:
        return self.filters[index]


class GrowingTags:
    """The index of a segment that is being made, or of one that is being written."""

    def __init__(self, names: Sequence[TagName], base_offset: Offset) -> None:
        self.names = frozenset(names)
        self.bases = array("I")
        self.positions = array("I")
        self._columns = {name: GrowingColumn() for name in names}
        self._base_offset = base_offset
        self.extent = TagExtent(0, 0, base_offset)

    @property
    def columns(self) -> dict[TagName, TagColumn]:
        return dict(self._columns)

    @property
    def growing_columns(self) -> dict[TagName, GrowingColumn]:
        return self._columns

    def add(
        self,
        *,
        base_offset: Offset,
        next_offset: Offset,
        size: int,
        values: Sequence[TagHashes] | None,
    ) -> None:
        """Add the batch that follows; `values` in the order of the names, None if anything may occur."""
        count, position, _ = self.extent
        self.bases.append(base_offset - self._base_offset)
        self.positions.append(position)
        for number, column in enumerate(self._columns.values()):
            column.add(count, None if values is None else values[number])
        self.extent = TagExtent(count + 1, position + size, next_offset)


class TagSearch:
    """Finds the batches that may match, in order. A value's next batch is remembered, so that each is searched once."""

    def __init__(
        self, tags: Tags, clauses: Sequence[tuple[TagName, tuple[int, ...] | None]]
    ) -> None:
        """`clauses` of names that the index lacks are left out."""
        self.extent = tags.extent
        self.tags = tags
        count = self.extent.batch_count
        columns = tags.columns
        self._clauses = [
            _ClauseSearch(columns[name], hashes, count)
            for name, hashes in clauses
            if name in columns
        ]

    @property
    def is_useful(self) -> bool:
        return bool(self._clauses)

    def next_from(self, batch: int) -> int:
        """The first batch at or after this one that may match; the number of batches if there is none."""
        while batch < self.extent.batch_count:
            following = max(one.next_from(batch) for one in self._clauses)
            if following == batch:
                return batch
            batch = following
        return batch


class _ClauseSearch:
    def __init__(self, column: TagColumn, hashes: tuple[int, ...] | None, count: int) -> None:
        self._column = column
        self._hashes = hashes
        self._count = count
        # Of a value: where a search began, and the batch that it found.
        self._known: dict[int, tuple[int, int]] = {}

    def next_from(self, batch: int) -> int:
        if self._hashes is None:
            return self._next_with_any(batch)
        return min(self._next_with(one, batch) for one in self._hashes)

    def _next_with_any(self, batch: int) -> int:
        column, count = self._column, self._count
        starts, others = column.starts, column.others
        following = bisect_right(starts, starts[batch], batch, count + 1) - 1
        other = bisect_left(others, batch)
        return min(following, count, others[other] if other < len(others) else count)

    def _next_with(self, value: int, batch: int) -> int:
        begin, found = self._known.get(value, (0, -1))
        if not begin <= batch <= found:
            found = min(self._next_with_hash(value, batch), self._next_with_filter(value, batch))
            self._known[value] = batch, found
        return found

    def _next_with_hash(self, value: int, batch: int) -> int:
        column, count = self._column, self._count
        starts = column.starts
        short_hash = array("H", [value & _SHORT_HASH_MASK]).tobytes()
        at, end = starts[batch] * SHORT_HASH_BYTES, starts[count] * SHORT_HASH_BYTES
        while (at := column.find(short_hash, at, end)) >= 0:
            if at % SHORT_HASH_BYTES == 0:
                return bisect_right(starts, at // SHORT_HASH_BYTES, batch, count + 1) - 1
            # Halves of two hashes.
            at += 1
        return count

    def _next_with_filter(self, value: int, batch: int) -> int:
        column, count = self._column, self._count
        others = column.others
        for index in range(bisect_left(others, batch), len(others)):
            if others[index] >= count:
                break
            if may_contain(column.filter_of(index), value):
                return others[index]
        return count


def bloom_filter(hashes: Sequence[int]) -> bytes:
    found = bytearray((len(hashes) * BLOOM_BITS_PER_VALUE + 7) // 8)
    for one in hashes:
        for bit in _bits(one, 8 * len(found)):
            found[bit >> 3] |= 1 << (bit & 7)
    return bytes(found)


def may_contain(bloom: bytes | memoryview, value: int) -> bool:
    """True for an empty filter."""
    return not bloom or all(
        bloom[bit >> 3] >> (bit & 7) & 1 for bit in _bits(value, 8 * len(bloom))
    )


def _bits(value: int, bit_count: int) -> list[int]:
    # Two halves of one hash serve as seven (Kirsch and Mitzenmacher).
    first, step = value & _HALF_MASK, (value >> _HALF_BITS) | 1
    return [(first + number * step) % bit_count for number in range(BLOOM_HASHES)]
