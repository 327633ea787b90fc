"""The archive of one partition: its manifest's entries, applied in the order of their numbers.

A leader appends entries under its leader epoch. An entry with a lower epoch than one before it is void: a deposed
leader wrote it too late. An entry that it wrote in time does no harm, since leaders archive only committed records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from respool.archive.manifest_entry import (
    VERSION,
    ArchivedSegment,
    LogStartEntry,
    ManifestEntry,
    entry_fields,
    entry_of,
)
from respool.archive.object_keys import PartitionKeys
from respool.archive.sealed_json import open_json, seal_json
from respool.archive.segment_trailer import EpochStart
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

# A `.full` object is written after this many entries.
FULL_INTERVAL = 64
FULL_BYTES_MAX = 256 * 1024 * 1024


class Manifest:
    """Mutable; `apply` each entry in turn."""

    def __init__(self, keys: PartitionKeys) -> None:
        self.keys = keys
        # The number of the last entry.
        self.number = 0
        # The highest leader epoch of an entry: those of older ones are void.
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.log_start = Offset(0)
        # The archived segments, oldest first, without gaps or overlaps. Replaced as a whole.
        self.segments: tuple[ArchivedSegment, ...] = ()
        # Where the next segment must begin, once anything was archived.
        self._end: Offset | None = None
        # Objects that no entry refers to any more: safe to delete once no reader has an older manifest.
        self.dropped: list[str] = []
        self._bases: list[Offset] = []
        self._peaks: list[int] = []

    @property
    def archived_end(self) -> Offset | None:
        """Everything from the log start up to here is archived; None: nothing was archived yet."""
        return self._end

    @property
    def first_offset(self) -> Offset | None:
        """The log start according to the archive; None if it does not know."""
        if self.segments:
            # Records before the first segment were deleted before anything was archived.
            return max(self.log_start, self.segments[0].base)
        return self.log_start or None

    @property
    def next_number(self) -> int:
        return self.number + 1

    @property
    def log_bytes(self) -> int:
        return sum(one.log_bytes for one in self.segments)

    def apply(self, number: int, entry: ManifestEntry) -> bool:
        """Apply the next entry; False if it is void.

        Raises:
            ArchiveCorrupt: it contradicts what is archived. The manifest is unchanged and ends before it.
        """
        assert number == self.next_number, f"entry {number} after {self.number}"
        if entry.by.leader_epoch < self.leader_epoch:
            if isinstance(entry, ArchivedSegment):
                self.dropped.append(entry.key)
            self.number = number
            return False
        if isinstance(entry, ArchivedSegment):
            if self._end is not None and entry.base != self._end:
                raise ArchiveCorrupt(
                    f"{self.keys.entry(number)}: a segment from offset {entry.base} on, but "
                    f"the archive ends at {self._end}"
                )
            self._end = entry.next
            self._set((*self.segments, entry))
            self._drop_before(self.log_start)
        elif isinstance(entry, LogStartEntry):
            self._raise_start(entry.log_start)
        else:
            self._cut(entry.end)
        self.number = number
        self.leader_epoch = entry.by.leader_epoch
        return True

    def _raise_start(self, log_start: Offset) -> None:
        if log_start <= self.log_start:
            return
        self.log_start = log_start
        self._drop_before(log_start)
        if self._end is not None and self._end < log_start:
            # Records were deleted before they were archived: the archive continues at the log start.
            self._end = log_start

    def _drop_before(self, log_start: Offset) -> None:
        kept = tuple(one for one in self.segments if one.next > log_start)
        if len(kept) < len(self.segments):
            self.dropped += [one.key for one in self.segments if one.next <= log_start]
            self._set(kept)

    def _cut(self, end: Offset) -> None:
        if self._end is None or end >= self._end:
            return
        kept = [_cut_to(one, end) for one in self.segments if one.base < end]
        self.dropped += [one.key for one in self.segments if one.base >= end]
        self._end = max(end, self.log_start)
        self._set(tuple(kept))

    def _set(self, segments: tuple[ArchivedSegment, ...]) -> None:
        self.segments = segments
        self._bases = [one.base for one in segments]
        peak = -1
        self._peaks = [peak := max(peak, one.largest_timestamp) for one in segments]

    # -- lookups -----------------------------------------------------------------------------------------------------

    def find(self, offset: Offset) -> ArchivedSegment | None:
        """The segment with this offset."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0 or offset >= self.segments[at].next:
            return None
        return self.segments[at]

    def after(self, segment: ArchivedSegment) -> ArchivedSegment | None:
        return self.find(segment.next)

    def reaching(self, timestamp_ms: int) -> Iterator[ArchivedSegment]:
        """The segments that may have the first record at or after that time, in order."""
        # The running maximum never decreases, even if the segments' own largest timestamps do.
        for one in self.segments[bisect_left(self._peaks, timestamp_ms) :]:
            if one.largest_timestamp >= timestamp_ms:
                yield one

    def with_aborts(self, begin: Offset, end: Offset) -> list[ArchivedSegment]:
        """The segments whose abort markers may concern [begin, end)."""
        first = max(0, bisect_right(self._bases, begin) - 1)
        return [
            one for one in self.segments[first:] if one.aborted_count and one.aborted_from < end
        ]

    def diverges_at(self, epochs: Sequence[tuple[LeaderEpoch, Offset]]) -> Offset | None:
        """The offset at which the archive diverges from a log with these epochs; None: it does not.

        `epochs` are a log's, from its start on. Only an unclean election makes the two differ.
        """
        archived: list[EpochStart] = []
        for segment in self.segments:
            for one in segment.epochs:
                if not archived or one.epoch > archived[-1].epoch:
                    archived.append(one)
        if not archived or not epochs or self._end is None:
            return None
        known = dict(epochs)
        first_epoch, first_start = epochs[0]
        ends = [*(one.start_offset for one in archived[1:]), self._end]
        for (epoch, start), end in zip(archived, ends, strict=True):
            if end <= first_start or (epoch not in known and epoch < first_epoch):
                # The log has forgotten the epochs before its start.
                continue
            if epoch not in known:
                return max(start, first_start)
            following = [begin for other, begin in epochs if other > epoch]
            if following and following[0] < end:
                return following[0]
        return None

    # -- the whole -----------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The whole manifest as one object."""
        fields = {
            "v": VERSION,
            "number": self.number,
            "epoch": self.leader_epoch,
            "log_start": self.log_start,
            "end": self._end,
            "segments": [entry_fields(one) for one in self.segments],
        }
        return seal_json(fields)

    @classmethod
    def decode(cls, data: bytes | memoryview, keys: PartitionKeys, *, name: str) -> Self:
        """
        Raises:
            ArchiveCorrupt: it is damaged, or of a newer format.
        """
        fields = open_json(data, name=name, bytes_max=FULL_BYTES_MAX)
        try:
            version, number, epoch = (int(fields[one]) for one in ("v", "number", "epoch"))
            log_start, end, segments = (
                int(fields["log_start"]),
                fields["end"],
                list(fields["segments"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveCorrupt(f"{name} is no manifest: {error!r}") from error
        if version > VERSION:
            raise ArchiveCorrupt(
                f"{name}: format {version}, this version reads {VERSION}; upgrade the broker"
            )
        found = cls(keys)
        expected: Offset | None = None
        entries = []
        for one in segments:
            entry = entry_of(one, keys, name=name)
            if not isinstance(entry, ArchivedSegment) or (
                expected is not None and entry.base != expected
            ):
                raise ArchiveCorrupt(f"{name}: its segments do not follow each other")
            entries.append(entry)
            expected = entry.next
        is_end_valid = end is None or (type(end) is int and (expected is None or end == expected))
        if number < 0 or log_start < 0 or not is_end_valid:
            raise ArchiveCorrupt(f"{name}: its numbers contradict each other")
        found.number, found.leader_epoch = number, LeaderEpoch(epoch)
        found.log_start = Offset(log_start)
        found._end = None if end is None else Offset(end)
        found._set(tuple(entries))
        return found


def _cut_to(segment: ArchivedSegment, end: Offset) -> ArchivedSegment:
    if segment.next <= end:
        return segment
    epochs = tuple(one for one in segment.epochs if one.start_offset < end)
    return replace(segment, next=end, epochs=epochs)
