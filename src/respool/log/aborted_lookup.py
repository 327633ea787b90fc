"""From offsets to the transactions that were aborted there. Runs in any thread."""

from respool.log.segments import Segments
from respool.log.transaction_index import AbortedTransaction
from respool.model.ids import Offset


def has_aborted(segments: Segments, begin: Offset) -> bool:
    """Whether any transaction was aborted from `begin` on; cheap, and may err on the side of yes."""
    return any(
        segment.aborted.count for segment in segments.all[max(segments.index_of(begin), 0) :]
    )


def find_aborted(
    segments: Segments,
    begin: Offset,
    end: Offset,
    *,
    cached_only: bool = False,
    at_most: int | None = None,
) -> list[AbortedTransaction]:
    """Those that reach into [begin, end), by their first offsets; see `PartitionLog.aborted_in`."""
    found: list[AbortedTransaction] = []
    # Each is in the index of the segment that has its marker.
    for segment in segments.all[max(segments.index_of(begin), 0) :]:
        if segment.aborted.count:
            left = None if at_most is None else at_most - len(found)
            some, is_all = segment.aborted.find(begin, end, cached_only=cached_only, at_most=left)
            found += some
            if is_all:
                break
    return sorted(found, key=lambda one: one.first_offset)
