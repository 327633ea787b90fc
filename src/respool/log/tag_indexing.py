"""Makes the tag indexes of one log, in slices off the event loop.

while indexing.run():                      # in any thread: a slice of the work
    if indexing.is_save_due:               # then, while the log is neither truncated nor compacted:
        indexing.save()
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.log.index.tag_columns import GrowingTags
from respool.log.log_parts import LogParts
from respool.log.segment import Segment
from respool.log.tag_query import TagName, secret_check
from respool.model.errors import (
    CorruptMessage,
    MessageTooLarge,
    SegmentCorrupt,
    UnsupportedCompressionType,
)
from respool.ports.record_scan import RecordScanner, Section, TagCollector, TagHashes
from respool.records.batch import HEADER_BYTES, LENGTH_MIN, BatchHeader, Codec, read_header
from respool.records.compress import codec_of, decompress
from respool.records.validate import check_stored

# Bytes of the log per slice: some 50 ms of work, so that others can run.
SLICE_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
# A batch that holds more may match anything.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TagTools:
    scanner: RecordScanner
    # 16 random bytes of this data folder: nobody can construct values with the same hash.
    secret: bytes
    slice_bytes: int = SLICE_BYTES


class TagIndexing:
    def __init__(self, parts: LogParts, names: Sequence[TagName], tools: TagTools) -> None:
        """Use `LogReader.index_tags`."""
        self._parts = parts
        self._names = tuple(names)
        self._tools = tools
        self._check = secret_check(tools.secret)
        # One for each set of names: an index may have more of them than are wanted now.
        self._collectors: dict[tuple[TagName, ...], TagCollector] = {}
        self._to_save: tuple[Segment, GrowingTags] | None = None
        self.bytes_read = 0

    def run(self) -> bool:
        """Do one slice of the work; return False if nothing is left to do now. From any thread, one at a time.

        Raises:
            SegmentCorrupt, DiskFailed: a segment cannot be read, or is damaged.
        """
        stop_at = self.bytes_read + self._tools.slice_bytes
        # The end first: segments replaced after it still hold every byte up to it.
        end, synced, segments = self._parts.end, self._parts.synced, self._parts.segments
        for index, segment in enumerate(segments.all):
            is_active = segment is end.segment
            size = end.position if is_active else segment.size
            if not size or (
                not is_active
                and segment.tags.has_file(segment, self._names, secret_check=self._check)
            ):
                continue
            growing = segment.tags.grow(self._names, segment.base_offset)
            while growing.extent.position < size:
                if self.bytes_read >= stop_at:
                    return True
                self._add_chunk(segment, growing, size)
            if is_active:
                break
            if segments.end_of(index, log_end=end.offset) <= synced.offset:
                self._to_save = segment, growing
                return True
        return False

    @property
    def is_save_due(self) -> bool:
        """True if the last slice completed the index of a finished segment."""
        return self._to_save is not None

    def save(self) -> None:
        """Write that index to its file. From any thread, while the log is neither truncated nor compacted.

        Raises:
            DiskFull, DiskFailed: the write failed. The index is discarded.
        """
        assert self._to_save is not None
        segment, growing = self._to_save
        self._to_save = None
        if segment not in self._parts.segments.all[:-1]:
            # It was removed meanwhile, or it is written again.
            return
        try:
            segment.tags.save(segment, growing, secret_check=self._check)
        finally:
            segment.tags.growing = None

    def _add_chunk(self, segment: Segment, growing: GrowingTags, size: int) -> None:
        position = growing.extent.position
        chunk_size = min(CHUNK_BYTES, size - position)
        header = read_header(segment.read(position, HEADER_BYTES))
        chunk = memoryview(segment.read(position, max(chunk_size, header.size)))
        batches = _batches_in(chunk, segment, position)
        assert batches, f"no whole batch at byte {position} of {segment.path}"
        names = tuple(growing.columns)
        collector = self._collectors.get(names)
        if collector is None:
            collector = self._collectors[names] = self._tools.scanner.tag_collector(
                names, secret=self._tools.secret
            )
        nothing: list[TagHashes] = [()] * len(names)
        plain = [
            (begin, header)
            for begin, header in batches
            if header.codec_bits == Codec.NONE and _has_records(header)
        ]
        found = dict(
            zip(
                (begin for begin, _ in plain),
                collector.collect(
                    chunk, [_section(header, begin + HEADER_BYTES) for begin, header in plain]
                ),
                strict=True,
            )
        )
        for begin, header in batches:
            if begin in found:
                values = found[begin]
            elif _has_records(header):
                values = _collect_compressed(collector, chunk, begin, header)
            else:
                values = nothing
            growing.add(
                base_offset=header.base_offset,
                next_offset=header.next_offset,
                size=header.size,
                values=values,
            )
            self.bytes_read += header.size


def _collect_compressed(
    collector: TagCollector, chunk: memoryview, begin: int, header: BatchHeader
) -> list[TagHashes] | None:
    try:
        records = decompress(
            codec_of(header.codec_bits),
            chunk[begin + HEADER_BYTES : begin + header.size],
            limit=DECOMPRESSED_BYTES_MAX,
        )
    except (CorruptMessage, MessageTooLarge, UnsupportedCompressionType):
        return None
    (found,) = collector.collect(
        records,
        [
            Section(
                0, len(records), header.record_count, header.base_offset, header.last_offset_delta
            )
        ],
    )
    return found


def _section(header: BatchHeader, begin: int) -> Section:
    end = begin + header.size - HEADER_BYTES
    return Section(begin, end, header.record_count, header.base_offset, header.last_offset_delta)


def _has_records(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.is_control


def _batches_in(
    chunk: memoryview, segment: Segment, position: int
) -> list[tuple[int, BatchHeader]]:
    """Where each whole batch begins in the chunk, which is at this position, and its header.

    Raises:
        SegmentCorrupt: a batch is damaged. An index of it would hide records for good.
    """
    found = []
    begin = 0
    while len(chunk) - begin >= HEADER_BYTES:
        header = read_header(chunk, begin)
        end = begin + header.size
        if header.length >= LENGTH_MIN and end > len(chunk):
            break
        if not check_stored(header, chunk[begin : max(begin, end)]):
            raise SegmentCorrupt(
                f"{segment.path}: the batch at byte {position + begin}, offset {header.base_offset}, is damaged"
            )
        found.append((begin, header))
        begin = end
    return found
