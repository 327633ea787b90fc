"""A log's segments, oldest first; there is at least one. A change creates a new list: readers continue with theirs."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from respool.log.index.transaction_index import AbortedTransaction
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.ports.disk import NotCached


class LogPoint(NamedTuple):
    """The end offset of a batch and its position; readers must see the three values together."""

    offset: Offset
    segment: Segment
    position: int


class Segments:
    __slots__ = ("_bases", "_peaks", "all")

    def __init__(self, segments: Sequence[Segment], *, peaks: Sequence[int] = ()) -> None:
        assert segments, "a log has at least its active segment"
        self.all = tuple(segments)
        self._bases = [segment.base_offset for segment in self.all]
        # For each finished segment, the largest timestamp in it and all earlier ones, as far as computed. Because it
        # never decreases, the first segment that reaches a timestamp is found by bisection, even if the segments' own
        # largest timestamps do.
        self._peaks = list(peaks)

    @property
    def first(self) -> Segment:
        return self.all[0]

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.all[-1]

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self.all])

    def __len__(self) -> int:
        return len(self.all)

    def index_of(self, offset: Offset) -> int:
        """Index of the segment that contains the offset; -1 if it is before all of them."""
        return bisect_right(self._bases, offset) - 1

    def end_of(self, index: int, *, log_end: Offset) -> Offset:
        """The end offset of the segment."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end

    def first_reaching(self, timestamp_ms: int, *, cached_only: bool = False) -> int:
        """Index of the first segment with a record at or after that time; that of the active one if there is no other.

        Raises:
            NotCached: `cached_only`, and indexes would have to be read.
        """
        peaks = self._peaks
        if len(peaks) < len(self.all) - 1:
            if cached_only:
                raise NotCached
            peaks = list(peaks)
            for segment in self.all[len(peaks) : -1]:
                largest = segment.largest.timestamp
                peaks.append(max(largest, peaks[-1]) if peaks else largest)
            # Replaced as a whole: other threads may be here too.
            self._peaks = peaks
        return bisect_left(peaks, timestamp_ms)

    def has_aborted(self, begin: Offset) -> bool:
        """True if a transaction may have been aborted at or after `begin`. Cheap; false positives are possible."""
        return any(segment.aborted.count for segment in self._from(begin))

    def aborted_in(
        self,
        begin: Offset,
        end: Offset,
        *,
        cached_only: bool = False,
        at_most: int | None = None,
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [begin, end), by first offset; see `PartitionLog.aborted_in`."""
        found: list[AbortedTransaction] = []
        # A transaction is in the index of the segment that holds its marker.
        for segment in self._from(begin):
            if segment.aborted.count:
                left = None if at_most is None else at_most - len(found)
                some, is_all = segment.aborted.find(
                    begin, end, cached_only=cached_only, at_most=left
                )
                found += some
                if is_all:
                    break
        return sorted(found, key=lambda one: one.first_offset)

    def _from(self, offset: Offset) -> Sequence[Segment]:
        """The segments from the one that contains the offset on."""
        return self.all[max(self.index_of(offset), 0) :]

    def with_new(self, segment: Segment) -> "Segments":
        """Add a new active segment."""
        assert segment.base_offset > self._bases[-1]
        return Segments((*self.all, segment), peaks=self._peaks)

    def with_replaced(self, old: Sequence[Segment], new: Segment) -> "Segments | None":
        """Replace consecutive segments by one; None if some of them are gone."""
        first = self.index_of(old[0].base_offset)
        end = first + len(old)
        if (
            first < 0
            or len(self.all) < end
            or any(here is not one for here, one in zip(self.all[first:end], old, strict=True))
        ):
            return None
        assert new.base_offset == old[0].base_offset
        return Segments((*self.all[:first], new, *self.all[end:]))

    def without_first(self, count: int) -> "Segments":
        assert 0 <= count < len(self.all), f"{count} of {len(self.all)} segments"
        return Segments(self.all[count:])

    def up_to(self, count: int) -> "Segments":
        """The first `count` segments; the last of them becomes the active one."""
        assert 0 < count <= len(self.all), f"{count} of {len(self.all)} segments"
        return Segments(self.all[:count], peaks=self._peaks[: count - 1])
