"""Appends what the leader sent in a Fetch reply, byte for byte.

The leader has decided everything: offsets, epochs, sequences, transactions. So batches that it accepted are never
rejected here, and producers and transactions follow the batches, as in a recovery. The only checks are that the bytes
are intact and continue this log:

```
 log_end                        possible content of a reply
    | skipped | batch | batch | gap | batch | incomplete
```
- A fetch inside a batch returns the whole batch, so the first batches may be before the log end.
- A reply ends at the fetch's limit, possibly within a batch. The rest comes with the next fetch.
- A compacted log has gaps. A segment spans at most 2^31 offsets, so a larger gap cannot be stored.

All batches are checked before the first is written. Those of one segment are written at once: the cost per batch is a
parsed header, a checksum, and an index entry if one is due.
"""

from typing import NamedTuple

from respool.log.batch_walk import BatchAt
from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.log_parts import LogParts
from respool.log.log_truncation import LogTruncation
from respool.model.errors import CorruptMessage, ReplicationDiverged, StorageError
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_BYTES,
    LENGTH_MIN,
    BatchHeader,
    RecordBatch,
    read_header,
    stamp,
)
from respool.records.markers import EndTransactionMarker, read_marker
from respool.records.validate import check_stored


class AppendedFetched(NamedTuple):
    log_end: Offset
    # The epoch of the last record in the log; -1 if unknown.
    last_epoch: LeaderEpoch
    # The number of bytes appended; 0 if the log already had all of them, or no batch was complete.
    byte_count: int
    # A new segment began with one of these batches.
    has_rolled: bool = False


class ReplicaAppender:
    def __init__(self, parts: LogParts, truncation: LogTruncation) -> None:
        self._parts = parts
        self._truncation = truncation

    def append(
        self, records: bytes | memoryview, *, now_ms: int, leader_epoch: LeaderEpoch | None
    ) -> AppendedFetched:
        """Append the new batches. Errors as in `PartitionLog.append_fetched`."""
        parts = self._parts
        active = parts.end.segment
        byte_count = self._append(memoryview(records), now_ms, leader_epoch)
        has_rolled = parts.end.segment is not active
        return AppendedFetched(parts.end.offset, parts.last_epoch, byte_count, has_rolled)

    def _append(self, data: memoryview, now_ms: int, leader_epoch: LeaderEpoch | None) -> int:
        parts = self._parts
        batches = _valid_batches(data, log_end=parts.end.offset, is_empty=self.is_empty)
        if not batches:
            return 0
        if leader_epoch is None:
            _check_epochs(batches, last_epoch=parts.last_epoch)
        else:
            data, batches = _with_epoch(data, batches, leader_epoch)
        if parts.ledger.failure is not None:
            parts.ledger.check()
        first = batches[0].header
        if first.leader_epoch < parts.epochs.latest:
            # This broker became leader without writing; then another leader continued from an older epoch's end.
            parts.epochs.truncate_end(parts.end.offset)
        if first.base_offset < parts.end.offset:
            self._append_straddling(data, batches, now_ms)
        else:
            self._write(data, batches, now_ms)
        return batches[-1].end - batches[0].position

    @property
    def is_empty(self) -> bool:
        """True if the log holds no batch, not even a deleted one."""
        segments = self._parts.segments
        return len(segments) == 1 and not segments.active.size

    def _append_straddling(self, data: memoryview, batches: list[BatchAt], now_ms: int) -> None:
        """The leader's log starts inside a batch, and so must this one: append the whole batch, then raise the log
        start.
        """
        log_start = self._parts.end.offset
        # The checkpoint stays valid: a log that ends before its checkpointed start continues there.
        self._truncation.restart_at(batches[0].header.base_offset)
        try:
            self._write(data, batches, now_ms)
        except StorageError:
            if self.is_empty:
                self._truncation.restart_at(log_start)
            else:
                self._parts.raise_log_start(log_start)
            raise
        self._parts.raise_log_start(log_start)

    def _write(self, data: memoryview, batches: list[BatchAt], now_ms: int) -> None:
        run = _Run(self._parts, data, now_ms)
        for position, header in batches:
            run.add(position, header)
        run.flush()


class _Run:
    """Consecutive batches in `data` that are written to one segment with one call.

    They are written before anything that depends on them: a new segment, whose snapshot must include their producers; a
    new epoch, which must be durable before its first batch; an abort marker, which is resolved through their producer
    state.
    """

    __slots__ = ("_begin", "_data", "_end", "_headers", "_markers", "_now_ms", "_parts", "_room")

    def __init__(self, parts: LogParts, data: memoryview, now_ms: int) -> None:
        self._parts = parts
        self._data = data
        self._now_ms = now_ms
        self._begin = self._end = 0
        self._headers: list[BatchHeader] = []
        # Transaction markers among them, by offset.
        self._markers: dict[Offset, EndTransactionMarker] = {}
        # How many batches the run may have.
        self._room = 0

    def add(self, position: int, header: BatchHeader) -> None:
        parts = self._parts
        segment = parts.segments.active
        size = header.length + LENGTH_BYTES
        if parts.roll_rule.is_due_for(
            segment,
            size=self._end - self._begin + size,
            last_offset=header.last_offset,
            max_timestamp=header.latest_timestamp,
            now_ms=self._now_ms,
        ):
            self.flush()
            parts.roll(self._now_ms)
        if header.leader_epoch > parts.epochs.latest:
            self.flush()
            # Not the batch's base offset: compaction removed what is missing before it, which may have been of this
            # epoch too. Another replica may have uncommitted records of an older epoch there.
            parts.epochs.begin(header.leader_epoch, parts.end.offset)
        if header.attributes & CONTROL_BIT and header.producer_id >= 0:
            batch = RecordBatch(header, self._data[position : position + size])
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                self._write_abort(batch, marker)
                return
            if marker is not None:
                self._markers[header.base_offset] = marker
        if not self._headers:
            self._begin = position
            self._room = self._make_ready()
        self._headers.append(header)
        self._end = position + size
        if len(self._headers) >= self._room:
            self.flush()

    def flush(self) -> None:
        """Write the batches, and update producers and transactions.

        Raises:
            DiskFull, DiskFailed: none of them was written.
        """
        headers = self._headers
        if not headers:
            return
        parts = self._parts
        parts.write_run(self._data[self._begin : self._end], headers, self._now_ms)
        producers = parts.producers
        for header in headers:
            if header.producer_id < 0:
                continue
            offset = header.base_offset
            marker = self._markers.get(offset) if header.attributes & CONTROL_BIT else None
            if marker is None:
                producers.update(header, base_offset=offset)
            else:
                timestamp_ms = header.max_timestamp
                producers.end_transaction(marker, offset=offset, timestamp_ms=timestamp_ms)
        self._headers = []
        self._markers.clear()
        self._begin = self._end = 0

    def _make_ready(self) -> int:
        """Make the segment writable; return how many batches one run may have."""
        parts = self._parts
        segment = parts.segments.active
        parts.make_writable(segment)
        # The first batch sets the segment's age, by which the others are checked.
        return segment.index_room if segment.size else 1

    def _write_abort(self, batch: RecordBatch, marker: EndTransactionMarker) -> None:
        self.flush()
        parts = self._parts
        self._make_ready()
        header = batch.header
        offset = header.base_offset
        aborted = parts.producers.aborting(marker.producer_id, marker_offset=offset)
        parts.write_run(batch.data, (header,), self._now_ms, aborted)
        parts.producers.end_transaction(marker, offset=offset, timestamp_ms=header.max_timestamp)


def _valid_batches(data: memoryview, *, log_end: Offset, is_empty: bool) -> list[BatchAt]:
    """Return the new whole batches, each validated by itself and against its predecessor."""
    batches: list[BatchAt] = []
    position, end, next_offset = 0, len(data), log_end
    while end - position >= HEADER_BYTES:
        header = read_header(data, position)
        size = header.length + LENGTH_BYTES
        if header.length >= LENGTH_MIN and size > end - position:
            break
        if header.last_offset_delta < 0 or not check_stored(
            header, data[position : position + size]
        ):
            raise CorruptMessage(
                f"the leader's reply for offset {log_end} is corrupt at byte {position} of {end}: "
                f"magic {header.magic}, length {header.length}, base offset {header.base_offset}, "
                f"{header.record_count} records up to {header.last_offset_delta}, crc {header.crc}"
            )
        # An empty log may have to start inside its first batch.
        if header.base_offset >= next_offset or (
            is_empty and not batches and header.last_offset >= log_end
        ):
            if header.last_offset - next_offset > RELATIVE_OFFSET_MAX:
                raise ReplicationDiverged(
                    f"after offset {next_offset} a batch from {header.base_offset} to {header.last_offset}: "
                    f"no segment spans more than {RELATIVE_OFFSET_MAX} offsets"
                )
            batches.append(BatchAt(position, header))
            next_offset = header.next_offset
        elif batches or header.last_offset >= log_end:
            raise ReplicationDiverged(
                f"a batch from {header.base_offset} to {header.last_offset} where {next_offset} comes next"
            )
        position += size
    return batches


def _check_epochs(batches: list[BatchAt], *, last_epoch: LeaderEpoch) -> None:
    for _, header in batches:
        epoch = header.leader_epoch
        if epoch < last_epoch:
            raise ReplicationDiverged(
                f"the batch at offset {header.base_offset} is of leader epoch {epoch}, "
                f"the one before it of {last_epoch}"
            )
        last_epoch = epoch


def _with_epoch(
    data: memoryview, batches: list[BatchAt], leader_epoch: LeaderEpoch
) -> tuple[memoryview, list[BatchAt]]:
    """The same batches with another leader epoch, which the checksum does not cover. This copies them."""
    copy = bytearray(data)
    changed = []
    for position, header in batches:
        head = stamp(header, base_offset=header.base_offset, leader_epoch=leader_epoch)
        copy[position : position + len(head)] = head
        changed.append(BatchAt(position, header._replace(leader_epoch=leader_epoch)))
    return memoryview(copy), changed
