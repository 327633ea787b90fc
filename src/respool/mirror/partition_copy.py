"""How far the copy of one partition has come, and whether its end is the source's at that place."""

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
    """Why a topic is not copied any longer, as far as it matters for what to do about it."""

    # Source and copy have diverged.
    DIFFERS = "differs"
    # The topic was promoted, or deleted at either side.
    RELEASED = "released"
    # The target has an ordinary topic of that name.
    NOT_A_MIRROR = "not a mirror"
    # The source or the target returned an error that is not retried.
    REFUSED = "refused"


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """Invariant: all before `target_end` is in the copy for good; what lies from there to `position` is on its way."""

    place: Place
    state: CopyState = CopyState.SEEKING
    # What comes next.
    position: int = 0
    # Where the next fetch begins: the same, or later where the source starts inside the batch that comes next.
    fetch_offset: int = 0
    # The source's leader epoch of the batch before it; -1 where it is not known.
    epoch: int = -1
    source_start: int = -1
    source_end: int = -1
    target_start: int = -1
    target_end: int = -1
    # Where the source ended when the copy was begun; None until that is known.
    goal: int | None = None
    # Counted up whenever the position is found out anew: what belongs to an older run is void.
    run: int = 0
    tries: int = 0
    due_at: float = 0.0
    # Why it is not copying.
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.place[0]}/{self.place[1]}"

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind, as far as that is known."""
        return max(0, self.source_end - self.target_end)

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing that anybody could read, and nothing is on its way."""
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
        """Something went wrong: forget what is on its way and look where the copy ends, after a while."""
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

    def is_done(self, *, starts_too: bool) -> bool:
        """Whether all is copied that was there at the beginning."""
        if self.goal is None or self.state is CopyState.SEEKING or self.target_end < self.goal:
            return False
        return not starts_too or self.target_start >= self.source_start


def difference(mine: bytes, theirs: bytes, offset: int, *, is_compacted: bool) -> str:
    """Why the batches that hold this offset are not the same one; empty when they are, or that cannot be told.

    `mine` is the copy's, and the last one there. Compaction takes records out of a batch, and leaves the rest of its
    header.
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
        f"is at the source one from {source.base_offset} to {source.last_offset} with checksum {source.crc}"
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
