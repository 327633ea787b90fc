"""The ends of transactions that lie in a log and are not committed yet: found when the log is opened.

A marker at or after the high watermark may still be taken back by another leader. Until it is committed, its
transaction keeps readers of committed records back like an open one (open_transactions.py). Where it began, only what
comes before the marker tells. So where there is such a marker, producers are replayed from a snapshot that is not
beyond the high watermark; where there is none, which is nearly always, a walk over the last headers is all.
"""

from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.log_walk import replay_batch, replay_producers, walk_log
from respool.log.segments import Segments
from respool.model.ids import Offset


def find_uncommitted_ends(
    segments: Segments,
    snapshots: SnapshotFiles,
    *,
    high_watermark: Offset,
    log_end: Offset,
    expiration_ms: int,
) -> list[tuple[Offset, Offset]]:
    """The first offset of each such transaction, and its marker's."""
    tail = walk_log(segments, high_watermark, log_end)
    if not any(batch.header.is_control for _, batch in tail):
        return []
    replay_from, producers = snapshots.load(at_most=high_watermark, expiration_ms=expiration_ms)
    replay_producers(producers, segments, replay_from, high_watermark)
    for segment, batch in walk_log(segments, high_watermark, log_end):
        replay_batch(producers, segment, batch, high_watermark=high_watermark)
    return producers.transactions.ended_before(log_end)
