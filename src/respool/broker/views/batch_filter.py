"""Decides what a condition shows of stored batches: nothing, the stored bytes, or a rebuilt batch.

Uncompressed batches of one buffer are matched in one call; each compressed one is decompressed first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from respool.broker.views.scan_pass import DECOMPRESSED_BYTES_MAX
from respool.broker.views.verdict_cache import DAMAGED, NOTHING_SHOWN, UNREADABLE, Verdict
from respool.log.tag_query import TagQuery
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.model.ids import Offset
from respool.model.where import Where
from respool.ports.disk import NotCached
from respool.ports.record_scan import MatchedSections, RecordMatcher, RecordScanner, Section
from respool.records.batch import HEADER_BYTES, BatchHeader, crc_of
from respool.records.compress import codec_of, decompress
from respool.records.rebuilt_batch import rebuild_batch

# ViewConditions whose matchers are kept.
_CONDITIONS_MAX = 1_000
_IDLE_MATCHERS_MAX = 4


class ChunkBatch(NamedTuple):
    """A batch within a buffer of stored batches."""

    header: BatchHeader
    begin: int

    @property
    def end(self) -> int:
        return self.begin + self.header.size


class ViewCondition:
    """A condition, its canonical text, and matchers for it that no thread uses now."""

    __slots__ = ("_idle", "_scanner", "tag_query", "text", "where")

    def __init__(self, where: Where, scanner: RecordScanner, *, secret: bytes | None) -> None:
        """`secret` is that of the hashes in tag indexes; None before there is one."""
        self.where = where
        self.text = str(where)
        self.tag_query = None if secret is None else TagQuery.of(where, secret)
        self._scanner = scanner
        # Used by several threads: `pop` and `append` of a list are atomic.
        self._idle: list[RecordMatcher] = []

    def acquire(self, *, quickly: bool) -> RecordMatcher:
        """
        Raises:
            NotCached: `quickly`, and a matcher would have to be created, which may compile it.
        """
        try:
            return self._idle.pop()
        except IndexError:
            if quickly:
                raise NotCached("no matcher is idle") from None
        return self._scanner.matcher(self.where)

    def release(self, matcher: RecordMatcher) -> None:
        if len(self._idle) < _IDLE_MATCHERS_MAX:
            self._idle.append(matcher)


class ViewConditions:
    """The conditions in use, each once."""

    def __init__(self, scanner: RecordScanner) -> None:
        self._scanner = scanner
        self._secret: bytes | None = None
        self._known: dict[Where, ViewCondition] = {}

    def use_secret(self, secret: bytes) -> None:
        """From now on tag indexes are used."""
        self._secret = secret
        self._known.clear()

    def of(self, where: Where) -> ViewCondition:
        found = self._known.get(where)
        if found is None:
            if len(self._known) >= _CONDITIONS_MAX:
                self._known.clear()
            found = self._known[where] = ViewCondition(where, self._scanner, secret=self._secret)
        return found


class BatchFilter:
    """Filters batches in one thread, with one matcher."""

    def __init__(self, matcher: RecordMatcher) -> None:
        self._matcher = matcher

    def filter_plain(
        self, data: bytes | memoryview, batches: Sequence[ChunkBatch]
    ) -> list[Verdict]:
        """Return what is shown of each of these uncompressed batches."""
        matched = self._matcher.match(data, [_section(one) for one in batches])
        return [_verdict(data, one, matched, index) for index, one in enumerate(batches)]

    def filter_compressed(
        self, data: bytes | memoryview, batch: ChunkBatch, *, decompressed_bytes_max: int
    ) -> tuple[Verdict, int]:
        """Return what is shown of a compressed batch, and the size of its records.

        Raises:
            NotCached: they are larger than `decompressed_bytes_max`, but not too large for another thread.
        """
        header = batch.header
        if not _is_intact(data, batch):
            return DAMAGED, 0
        compressed = memoryview(data)[batch.begin + HEADER_BYTES : batch.end]
        try:
            records = decompress(
                codec_of(header.codec_bits), compressed, limit=decompressed_bytes_max
            )
        except (CorruptMessage, UnsupportedCompressionType):
            return UNREADABLE, 0
        except MessageTooLarge as error:
            if decompressed_bytes_max < DECOMPRESSED_BYTES_MAX:
                raise NotCached(f"too large for the event loop: {error}") from error
            return UNREADABLE, decompressed_bytes_max
        section = Section(
            0, len(records), header.record_count, header.base_offset, header.last_offset_delta
        )
        return _verdict(None, batch, self._matcher.match(records, [section]), 0), len(records)


def _section(batch: ChunkBatch) -> Section:
    header = batch.header
    return Section(
        batch.begin + HEADER_BYTES,
        batch.end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
    )


def _is_intact(data: bytes | memoryview, batch: ChunkBatch) -> bool:
    return crc_of(memoryview(data)[batch.begin : batch.end]) == batch.header.crc


def _verdict(
    data: bytes | memoryview | None, batch: ChunkBatch, matched: MatchedSections, index: int
) -> Verdict:
    """`data` has the batch; None if its checksum was compared."""
    header, summary = batch.header, matched.summaries[index]
    if summary.matched == header.record_count:
        # Sent as it is stored: its readers compare the checksum.
        return Verdict(summary.matched, header.last_offset)
    if data is not None and not _is_intact(data, batch):
        return DAMAGED
    if summary.matched < 0:
        return UNREADABLE
    if not summary.matched:
        return NOTHING_SHOWN
    rebuilt = rebuild_batch(header, matched.matching_records(index), summary)
    return Verdict(
        summary.matched,
        Offset(header.base_offset + summary.offset_delta_last),
        bytes(rebuilt.data),
    )
