"""The batches of a piece of a log: which of them are aborted, and what a condition shows of the others."""

from collections.abc import Iterable, Sequence

from respool.broker.views.batch_filter import BatchFilter, ChunkBatch
from respool.broker.views.scan_pass import ScanPass
from respool.broker.views.scanned_log import ScannedLog
from respool.broker.views.verdict_cache import BatchKey, CacheScope, Verdict, VerdictCache
from respool.log.partition_log import AbortedTransaction
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.records.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    Codec,
    read_header,
)


class ChunkVerdicts:
    """What is shown of the batches of a chunk: from the cache, or found out.

    Uncompressed batches are matched together, compressed ones when they are asked for: the reply may end before them.
    """

    def __init__(
        self,
        chunk: bytes | memoryview,
        batches: Sequence[ChunkBatch],
        *,
        batch_filter: BatchFilter,
        cache: VerdictCache,
        scope: CacheScope,
        scan: ScanPass,
    ) -> None:
        self._cache = cache
        self._scan = scan
        self._filter = batch_filter
        self._chunk = chunk
        self._keys = {one.begin: BatchKey.of(scope, one.header) for one in batches}
        self._known = {begin: cache.get(key) for begin, key in self._keys.items()}
        plain = [
            one
            for one in batches
            if self._known[one.begin] is None and one.header.codec_bits == Codec.NONE
        ]
        if plain:
            for one, verdict in zip(plain, batch_filter.filter_plain(chunk, plain), strict=True):
                self._add(one, verdict)

    def of(self, batch: ChunkBatch) -> Verdict | None:
        """None for a batch that was not to be judged.

        Raises:
            NotCached: it holds too much for the event loop.
        """
        if batch.begin not in self._keys:
            return None
        known = self._known[batch.begin]
        if known is None:
            verdict, opened_bytes = self._filter.filter_compressed(
                self._chunk, batch, decompressed_bytes_max=self._scan.decompressed_bytes_max
            )
            self._scan.take_decompressed(opened_bytes)
            known = self._add(batch, verdict)
        return known

    def _add(self, batch: ChunkBatch, verdict: Verdict) -> Verdict:
        self._known[batch.begin] = verdict
        if not verdict.is_damaged:
            # Another read may get other bytes.
            self._cache.put(self._keys[batch.begin], verdict)
        self._scan.rebuilt_batches += verdict.rebuilt is not None
        self._scan.unreadable_batches += verdict.is_unreadable
        return verdict


class AbortedBatches:
    """Which batches belong to aborted transactions."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._of_producers: dict[int, list[AbortedTransaction]] = {}
        for one in transactions:
            self._of_producers.setdefault(one.producer_id, []).append(one)

    def has(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            one.first_offset <= header.base_offset <= one.last_offset
            for one in self._of_producers.get(header.producer_id, ())
        )


def aborted_batches(
    log: ScannedLog, batches: Sequence[ChunkBatch], *, cached_only: bool = False
) -> AbortedBatches:
    """
    Raises:
        The exceptions of `PartitionLog.aborted_in`.
    """
    begin, end = batches[0].header.base_offset, batches[-1].header.next_offset
    # The first batch may begin before the log start, which a segment's first offset never is after.
    begin = Offset(max(begin, log.first_base_offset))
    if not log.has_aborted_from(begin):
        return AbortedBatches(())
    return AbortedBatches(log.aborted_in(begin, end, cached_only=cached_only))


def batches_in(chunk: bytes | memoryview, offset: Offset) -> list[ChunkBatch]:
    """The whole batches that end after `offset`; the chunk's last one may be incomplete.

    Raises:
        SegmentCorrupt: a header is damaged. The log compares only that of the first batch.
    """
    found = []
    position, size = 0, len(chunk)
    while size - position >= HEADER_BYTES:
        one = ChunkBatch(read_header(chunk, position), position)
        header = one.header
        if header.magic != MAGIC or header.length < LENGTH_MIN:
            raise SegmentCorrupt(
                f"no batch at byte {position} of {size} read from offset {offset} on: "
                f"magic {header.magic}, length {header.length}"
            )
        if one.end > size:
            break
        if header.next_offset > offset:
            found.append(one)
        position = one.end
    return found
