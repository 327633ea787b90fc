"""The tag index of one segment: which of its batches may hold records that a condition matches.

A finished segment has it in a file (`tag_file.py`), which is made when the topic has a view, or `respool.tags` names
headers. The active segment has it in memory, as far as it was made. It is only a hint: a batch that may match is opened
and sifted, and where there is no index every batch is.

Invariant: an index describes the bytes that its segment has now. So it is dropped, durably, before a segment is
truncated, and a file is written only when its segment is finished and durable. A file that does not fit the segment's
size, its first and last batch, or the secret of the hashes is not used.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from respool.log.file_names import TAG_INDEX, offset_name
from respool.log.index.tag_columns import GrowingTags, Tags
from respool.log.index.tag_file import (
    MappedTags,
    TagFileBroken,
    TagFileHead,
    encode_tags,
    parse_tags,
)
from respool.log.tag_query import TagName
from respool.model.errors import DiskFailed
from respool.model.ids import Offset
from respool.ports.disk import Disk
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header


class IndexedSegment(Protocol):
    """The segment, as an index needs it: `Segment`."""

    base_offset: Offset
    size: int

    def read(self, position: int, size: int) -> bytes | memoryview: ...


class TagIndex:
    """The owner's thread drops and releases; any thread may search. One thread at a time adds and saves."""

    __slots__ = ("_disk", "_folder", "_generation", "_is_retired", "_opened", "growing", "path")

    def __init__(self, disk: Disk, folder: str, base_offset: Offset) -> None:
        self._disk = disk
        self._folder = folder
        self.path = f"{folder}/{offset_name(base_offset, TAG_INDEX)}"
        # Incremented when the index is dropped, so that a reader that opened the file before does not keep it.
        self._generation = 0
        # The generation, and the mapped file; None if there is none that can be used.
        self._opened: tuple[int, MappedTags | None] | None = None
        # The file at the path belongs to another segment by now.
        self._is_retired = False
        # The index in memory, as far as it was made.
        self.growing: GrowingTags | None = None

    def of_finished(self, segment: IndexedSegment, *, secret_check: int) -> Tags | None:
        """The index of a finished segment, from its file if there is a sound one, else as far as it was made."""
        opened = self._open(segment)
        if opened is not None and opened.head.secret_check == secret_check:
            return opened
        return self.growing

    def has_file(
        self, segment: IndexedSegment, names: Collection[TagName], *, secret_check: int
    ) -> bool:
        """True if there is a sound file with all these names."""
        opened = self._open(segment)
        return (
            opened is not None
            and opened.head.secret_check == secret_check
            and opened.columns.keys() >= set(names)
        )

    def grow(self, names: Sequence[TagName], base_offset: Offset) -> GrowingTags:
        """The index in memory; a new one if that lacks some of the names."""
        growing = self.growing
        if growing is None or not growing.names.issuperset(names):
            growing = self.growing = GrowingTags(names, base_offset)
        return growing

    def save(self, segment: IndexedSegment, growing: GrowingTags, *, secret_check: int) -> None:
        """Write the file of a finished and durable segment, of which everything was added.

        Raises:
            DiskFull, DiskFailed: the write failed.
        """
        if growing is not self.growing:
            return
        assert growing.extent.position == segment.size
        first, last = _ends(segment, growing)
        head = TagFileHead(
            growing.extent.batch_count, first.crc, last.crc, segment.size, secret_check
        )
        self._disk.replace_file(self.path, encode_tags(growing, head))
        self._opened = None
        self.growing = None

    def drop(self) -> None:
        """Discard the index, durably: its segment is about to change."""
        self._generation += 1
        self._opened = None
        self.growing = None
        if self._disk.exists(self.path):
            self._disk.delete(self.path)
            self._disk.sync_folder(self._folder)

    def retire(self) -> None:
        """The segment was replaced or removed; readers that still have it use what is open."""
        self._is_retired = True

    def release(self) -> None:
        """Close the file; it is opened again when needed."""
        if not self._is_retired:
            self._opened = None

    def _open(self, segment: IndexedSegment) -> MappedTags | None:
        generation, opened = self._generation, self._opened
        if opened is not None and opened[0] == generation:
            return opened[1]
        found = None if self._is_retired else self._map(segment)
        self._opened = generation, found
        return found

    def _map(self, segment: IndexedSegment) -> MappedTags | None:
        if not self._disk.exists(self.path):
            return None
        try:
            tags = parse_tags(self._disk.map_file(self.path, None).buffer)
        except (TagFileBroken, DiskFailed):
            return None
        head = tags.head
        if head.log_bytes != segment.size or not head.batch_count:
            return None
        first, last = _ends(segment, tags)
        return tags if (first.crc, last.crc) == (head.first_crc, head.last_crc) else None


def _ends(segment: IndexedSegment, tags: Tags) -> tuple[BatchHeader, BatchHeader]:
    """The headers of the first and the last batch."""
    last = tags.positions[tags.extent.batch_count - 1]
    return (
        read_header(segment.read(0, HEADER_BYTES)),
        read_header(segment.read(last, HEADER_BYTES)),
    )
