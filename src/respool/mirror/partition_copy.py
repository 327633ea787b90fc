"""The state of one partition's copy, and the check that its last batch is the source's batch at that offset."""

from dataclasses import dataclass
from enum import StrEnum

from respool.client.kafka.metadata import Place
from respool.pacing.backoff import Backoff
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header

# In seconds.
RETRY = Backoff(first=0.2, longest=5.0)


class CopyState(StrEnum):
    # The end of the copy, where to continue, is being looked up.
    SEEKING = "seeking"
    COPYING = "copying"
    # Not retried: an operator must decide.
    STOPPED = "stopped"


class StopReason(StrEnum):
    """Why a topic is no longer copied, as far as it affects what the operator should do."""

    # Source and copy have diverged.
    DIFFERS = "differs"
    # The topic was promoted, or deleted in either cluster.
    RELEASED = "released"
    # The target has an ordinary topic of that name.
    NOT_A_MIRROR = "not a mirror"
    # The source or the target returned an error that is not retried.
    REFUSED = "refused"


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """Invariant: the target has committed everything before `target_end`; from there to `position` is in flight."""

    place: Place
    state: CopyState = CopyState.SEEKING
    # The next offset to produce.
    position: int = 0
    # The next offset to fetch: the same, or larger if the source's log starts inside the next batch.
    fetch_offset: int = 0
    # The source's leader epoch of the batch before it; -1 if unknown.
    epoch: int = -1
    source_start: int = -1
    source_end: int = -1
    target_start: int = -1
    target_end: int = -1
    # The source's log end when copying began; None until known.
    goal: int | None = None
    # Increased whenever the position is looked up again; replies to requests of an older run are ignored.
    run: int = 0
    tries: int = 0
    due_at: float = 0.0
    # Why it is not being copied.
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.place[0]}/{self.place[1]}"

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind, as far as known."""
        return max(0, self.source_end - self.target_end)

    @property
    def is_empty(self) -> bool:
        """True if the copy has no records and none are in flight."""
        return self.position == self.target_end == self.target_start

    def begin(self, position: int, epoch: int) -> None:
        self.state, self.why = CopyState.COPYING, ""
        self.target_end = position
        self.move_to(position, epoch)
        self.fetch_offset = max(position, self.source_start)

    def move_to(self, position: int, epoch: int) -> None:
        self.position = self.fetch_offset = position
        self.epoch = epoch

    def seek_again(self, why: str, now: float) -> None:
        """After a failure: ignore what is in flight, and look up the end of the copy again after a delay."""
        if self.state is CopyState.STOPPED:
            return
        delay = RETRY.delay(self.tries + 1)
        self.state, self.why, self.due_at = CopyState.SEEKING, why, now + delay
        self.run += 1
        self.tries += 1

    def on_written(self, end: int) -> None:
        self.target_end = max(self.target_end, end)
        self.tries = 0

    def stop(self, why: str) -> None:
        self.state, self.why = CopyState.STOPPED, why
        self.run += 1

    def is_done(self, *, with_log_start: bool) -> bool:
        """True when everything that existed at the start is copied."""
        if self.goal is None or self.state is CopyState.SEEKING or self.target_end < self.goal:
            return False
        return not with_log_start or self.target_start >= self.source_start


def difference(mine: bytes, theirs: bytes, offset: int, *, is_compacted: bool) -> str:
    """How the two batches that contain this offset differ; empty if they are the same, or cannot be compared.

    `mine` is the last batch of the copy. Compaction removes records from a batch and keeps its offsets and producer.
    """
    copied, source = _holding(mine, offset), _holding(theirs, offset)
    if copied is None or source is None or _is_filler(copied):
        return ""
    if (copied.base_offset, copied.crc) == (source.base_offset, source.crc):
        return ""
    if is_compacted and _origin(copied) == _origin(source):
        return ""
    return (
        f"the copy's last batch, from offset {copied.base_offset} to {copied.last_offset} with checksum {copied.crc}, "
        f"is a batch from {source.base_offset} to {source.last_offset} with checksum {source.crc} at the source"
    )


def header_of(batch: bytes) -> BatchHeader | None:
    return read_header(batch) if len(batch) >= HEADER_BYTES else None


def _holding(batch: bytes, offset: int) -> BatchHeader | None:
    header = header_of(batch)
    if header is None or not header.base_offset <= offset <= header.last_offset:
        return None
    return header


def _is_filler(header: BatchHeader) -> bool:
    return not header.record_count and not header.has_producer_id


def _origin(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
