"""Local reads, the leader's side: finds the file range of the records that a reader on this host fetches.

The records themselves are not read, so the aborted transactions are those of the rest of the segment. Readers ignore
those that concern no record in the range.
"""

from typing import NamedTuple

from respool.broker.fetch.readers import Reader
from respool.broker.partitions.watermarks import ReadTo
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.file_range import FileRange
from respool.model.ids import Offset

# With more aborted transactions than this the records are sent, with only the transactions that concern them.
LOCAL_READ_ABORTED_MAX = 200


class LocalRead(NamedTuple):
    file_range: FileRange
    # None for a read_uncommitted reader.
    aborted: list[tuple[int, int]] | None


class LocalReadRanges:
    def __init__(self, reader: Reader, *, bytes_min: int) -> None:
        """Fewer than `bytes_min` bytes are sent over the socket: that costs no more than opening a file."""
        self._reader = reader
        self.bytes_min = bytes_min

    def find(
        self,
        log: PartitionLog,
        spec: ReadSpec,
        *,
        last_stable_offset: Offset,
        high_watermark: Offset,
    ) -> LocalRead | None:
        """Return the range to read, or None if the records are to be sent.

        Raises:
            The exceptions of `PartitionLog.locate`; NotCached also if the records are in memory but the index is not.
        """
        end = self._reader.local_read_end(
            log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
        )
        if end is None or self._is_small_and_cached(log, spec):
            return None
        found = log.locate(spec._replace(max_offset=end))
        if found is None or found.file_range.size < self.bytes_min:
            return None
        if self._reader.read_to is not ReadTo.STABLE:
            return LocalRead(found.file_range, None)
        if not log.has_aborted_from(spec.offset):
            return LocalRead(found.file_range, [])
        aborted = log.aborted_in(
            spec.offset,
            found.end,
            cached_only=spec.cached_only,
            at_most=LOCAL_READ_ABORTED_MAX + 1,
        )
        if len(aborted) > LOCAL_READ_ABORTED_MAX:
            return None
        return LocalRead(found.file_range, [(one.producer_id, one.first_offset) for one in aborted])

    def _is_small_and_cached(self, log: PartitionLog, spec: ReadSpec) -> bool:
        """True if all available bytes are in memory and below `bytes_min`, as for most readers at the log's end."""
        if not spec.cached_only:
            return False
        cached = log.read_tail(
            ReadSpec(spec.offset, spec.max_offset, self.bytes_min, at_least_one=False)
        )
        return cached is not None and cached.end >= spec.max_offset
