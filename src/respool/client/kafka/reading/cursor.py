"""The position of a read in one partition: the next offset, and the effect of each broker reply. Pure.

```
            begin ... position ... end          position: the next offset to fetch; everything before it was read
```
It returns what to do (`FetchStep`); the caller does it. Invariant: offsets are read without gaps and never twice,
whichever broker answers. The position advances only past complete batches that cover it, and a reply from a log that
lacks what was already read is refused (KIP-320: each fetch carries the leader epoch of the last batch read).
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct

from respool.client.kafka.codes import Code
from respool.client.kafka.reading.read_errors import (
    BatchDamaged,
    LogTruncated,
    PartitionRetired,
    RetentionOvertook,
)
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES, MAGIC, MAGIC_AT
from respool.wire.fetch_reply import FetchedPart

NO_EPOCH = -1
# The assumed message size until some messages have been read.
MESSAGE_BYTES_GUESS = 1_024
FETCH_BYTES_MIN = 64 * 1024

_OFFSET_LENGTH_EPOCH = Struct(">qii").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_AT = 23


class FetchStep(Enum):
    TAKE = "there are records; the position has moved behind them"
    WAIT = "nothing yet"
    ASK_BOUNDS = (
        "the position is not in the log, as this broker sees it: ask where it begins and ends"
    )
    RETRY = "refused; whether it may be asked again is in its error code"


@dataclass(slots=True, kw_only=True)
class Cursor:
    topic: str
    partition: int
    position: int
    # None: follow the log forever.
    end: int | None
    # The leader epoch of the last batch read.
    last_epoch: int = NO_EPOCH
    # Average bytes per offset in the last reply.
    bytes_per_offset: float = MESSAGE_BYTES_GUESS
    # The log end in the last reply; -1 before the first.
    log_end: int = -1

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.position >= self.end

    def bytes_wanted(self, limit: int) -> int:
        """How many bytes to fetch: at most `limit`, and no more than the rest of the range is estimated to need."""
        if self.end is None:
            return limit
        left = (self.end - self.position) * self.bytes_per_offset * 1.1
        return min(limit, max(FETCH_BYTES_MIN, int(left)))

    def on_answer(self, part: FetchedPart) -> FetchStep:
        """
        Raises:
            LogTruncated: the broker's log lacks messages that were already read.
            RetentionOvertook: messages at the position have been deleted.
            BatchDamaged: the offsets of batches are out of order.
        """
        if part.error_code == Code.offset_out_of_range:
            return FetchStep.ASK_BOUNDS
        if part.error_code:
            return FetchStep.RETRY
        if part.diverging is not None:
            raise self._truncated(part.diverging[1])
        if part.log_start > self.position:
            raise self._overtaken(part.log_start)
        self.log_end = max(self.log_end, part.high_watermark)
        return self._advance(part.records)

    def on_bounds(self, log_start: int, log_end: int) -> None:
        """Handle the log's bounds, after the position was out of range.

        Raises:
            RetentionOvertook, LogTruncated: the cause. If neither is raised, the position is in range on a new leader.
        """
        if self.position < log_start:
            raise self._overtaken(log_start)
        if self.position > log_end:
            raise self._truncated(log_end)

    def on_retired(self) -> None:
        """The partition was taken away: the read of it is done, if it has come to its end.

        Raises:
            PartitionRetired: there were messages left to be read.
        """
        last = max(self.log_end, -1 if self.end is None else self.end)
        if last > self.position:
            raise PartitionRetired(
                f"the partition was retired (respool topic retire --force) with messages up to offset {last - 1}, and "
                f"those from offset {self.position} on were not read: they are deleted",
                topic=self.topic,
                partition=self.partition,
                offset=self.position,
            )
        self.end = self.position

    def _advance(self, records: memoryview) -> FetchStep:
        at, size = 0, len(records)
        position, epoch, offset_min = self.position, self.last_epoch, 0
        while size - at >= HEADER_BYTES:
            base_offset, length, leader_epoch = _OFFSET_LENGTH_EPOCH(records, at)
            following = at + LENGTH_BYTES + length
            if length < 0 or following > size:
                break
            if records[at + MAGIC_AT] != MAGIC:
                # An old message format. Accept it here, so that the decoder reports it.
                position = max(position, base_offset + 1)
                break
            next_offset = (
                base_offset + _LAST_OFFSET_DELTA(records, at + _LAST_OFFSET_DELTA_AT)[0] + 1
            )
            # No checksum covers the base offset. A wrong one looks like a gap, unless the next batch contradicts it.
            if not offset_min <= base_offset < next_offset:
                raise self._out_of_order(base_offset, offset_min)
            offset_min = next_offset
            position, epoch = max(position, next_offset), leader_epoch
            at = following
        if position == self.position:
            # No complete batch: the next fetch names this partition first, and then the batch comes whole.
            return FetchStep.WAIT
        self.bytes_per_offset = max(at, 1) / (position - self.position)
        self.position, self.last_epoch = position, epoch
        return FetchStep.TAKE

    def _out_of_order(self, base_offset: int, offset_min: int) -> BatchDamaged:
        return BatchDamaged(
            f"a batch with offset {base_offset} comes where it should be {offset_min} or later, so one of them is "
            "damaged: check the broker's log (`respool log verify`)",
            topic=self.topic,
            partition=self.partition,
            offset=self.position,
        )

    def _truncated(self, log_end: int) -> LogTruncated:
        return LogTruncated(
            f"messages up to offset {self.position - 1} were read, and the log of the leader now ends or differs from "
            f"offset {log_end} on: it was elected without having them all (unclean election). What was read from there "
            f"on is no longer in the log; to continue with the rest, begin at {log_end}",
            topic=self.topic,
            partition=self.partition,
            offset=log_end,
        )

    def _overtaken(self, log_start: int) -> RetentionOvertook:
        return RetentionOvertook(
            f"messages from offset {self.position} on were deleted before they were read, by retention or "
            f"DeleteRecords; the log now begins at {log_start}: begin there, read faster, or keep messages longer "
            "(retention.ms, retention.bytes)",
            topic=self.topic,
            partition=self.partition,
            offset=self.position,
            first_offset=log_start,
        )
