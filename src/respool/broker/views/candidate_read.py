"""Reads one partition for a reader that sifts records itself: what cannot match its condition is passed over, unread.

```
 offset      100         200         300         400       end
 tag index   | may match | cannot    | may match | cannot |
 the reply   | as stored |           | as stored | marker |
```
As in `filtered_read.py`, a marker moves the reader over what the reply ends with, and for a read_committed reader
aborted batches are left out here: the marker that ends an aborted transaction may be among what is passed over, and
without it the reader would drop what its producer committed later.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from respool.broker.views.batch_filter import ChunkBatch
from respool.broker.views.chunk_verdicts import aborted_batches, batches_in
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.scan_pass import ScanPass
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.log.tag_query import TagQuery
from respool.log.tagged_read import TagCursor, TaggedBatches
from respool.model.ids import Offset
from respool.records.batch import BatchHeader
from respool.records.rebuilt_batch import build_skip_marker

# Reads of the log for one reply. Each takes some 30 us, and may bring only one batch.
READS_MAX = 500


class Stretch(NamedTuple):
    """Adjacent batches that may match."""

    begin: Offset
    end: Offset
    # The bytes before it that cannot match.
    passed_bytes: int


class CandidateRead:
    """One read. It searches indexes, which may be on disk, so it is not for the event loop."""

    def __init__(
        self,
        log: PartitionLog,
        query: TagQuery,
        spec: ReadSpec,
        scan: ScanPass,
        *,
        read_committed: bool,
    ) -> None:
        """`spec` is as for a read of the log itself."""
        self._log = log
        self._cursor = TagCursor(query)
        self._spec = spec
        self._scan = scan
        self._read_committed = read_committed
        self._records = FilteredRecords()
        # Everything before it is in the records, or cannot match.
        self._position = spec.offset
        # Nothing from here to the position is in the records.
        self._sent_end = spec.offset
        # The last batch before the position.
        self._last: BatchHeader | None = None

    def find_stretch(self, *, bytes_min: int) -> Stretch | None:
        """The next batches that may match, unread; None if they are fewer bytes, or there is no index.

        Raises:
            The exceptions of `PartitionLog.read_tagged`.
        """
        cursor, spec, passed_bytes = self._cursor, self._spec, 0
        while spec.offset < spec.max_offset:
            tagged = self._log.read_tagged(cursor, spec, locate_only=True)
            if tagged is None or tagged.end <= spec.offset:
                # The index ends here.
                return Stretch(spec.offset, spec.max_offset, passed_bytes) if passed_bytes else None
            passed_bytes += tagged.passed_bytes
            if tagged.size >= bytes_min:
                return Stretch(tagged.passed_to, tagged.end, passed_bytes)
            if tagged.size:
                return None
            # Nothing of this segment may match.
            spec = spec._replace(offset=tagged.end)
        return None

    def run(self) -> FilteredRecords | None:
        """Return what may match; None if that is everything, as far as it is known.

        Raises:
            The exceptions of `PartitionLog.read`.
        """
        for _ in range(READS_MAX):
            if self._position >= self._spec.max_offset or self._is_full:
                break
            spec = self._next_spec()
            tagged = self._log.read_tagged(self._cursor, spec)
            if tagged is None or tagged.end <= self._position:
                if self._last is None:
                    return None
                # The index ends within the reply.
                if not self._add(self._log.read(spec)):
                    break
            elif not self._take(tagged):
                break
        # Nothing was read, as beyond the log's end.
        return None if self._last is None else self._end_with_marker()

    @property
    def _is_full(self) -> bool:
        return 0 < self._records.size >= self._spec.bytes_max

    def _next_spec(self) -> ReadSpec:
        spec, size = self._spec, self._records.size
        return spec._replace(
            offset=self._position,
            bytes_max=max(0, spec.bytes_max - size),
            at_least_one=spec.at_least_one and not size,
        )

    def _take(self, tagged: TaggedBatches) -> bool:
        """Return False if the reply has no room for these."""
        self._scan.skipped_bytes += tagged.passed_bytes
        if tagged.last_passed is not None:
            self._position, self._last = tagged.passed_to, tagged.last_passed
        if tagged.data and not self._add(tagged.data):
            return False
        # Compaction may have left a gap before the next batch.
        self._position = max(self._position, tagged.end)
        return True

    def _add(self, data: bytes | memoryview) -> bool:
        """Add whole batches; return False if the reply has no room for the first one, or there is none."""
        batches = batches_in(data, self._position)
        if not batches:
            return False
        spec, records = self._spec, self._records
        is_first = spec.at_least_one and not records.size
        size = batches[-1].end - batches[0].begin
        if not is_first and records.size + size > spec.bytes_max:
            return False
        for run in self._runs(batches):
            messages = sum(one.header.record_count for one in run)
            records.add(memoryview(data)[run[0].begin : run[-1].end], messages=messages)
            self._sent_end = run[-1].header.next_offset
        self._last = batches[-1].header
        self._position = self._last.next_offset
        return True

    def _runs(self, batches: Sequence[ChunkBatch]) -> Iterator[list[ChunkBatch]]:
        """Adjacent batches that were not aborted."""
        run: list[ChunkBatch] = []
        aborted = aborted_batches(self._log, batches) if self._read_committed else None
        for one in batches:
            if aborted is None or not aborted.has(one.header):
                run.append(one)
            elif run:
                yield run
                run = []
        if run:
            yield run

    def _end_with_marker(self) -> FilteredRecords:
        records = self._records
        records.join_if_small()
        if self._position > self._sent_end:
            assert self._last is not None
            marker = build_skip_marker(
                last_offset=Offset(self._position - 1),
                leader_epoch=self._last.leader_epoch,
                timestamp_ms=self._last.latest_timestamp,
            )
            records.add(marker, messages=0)
        return records
