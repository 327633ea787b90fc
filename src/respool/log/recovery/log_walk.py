"""Replays the batch headers of a log: producers, transactions and leader epochs."""

from collections.abc import Iterator

from respool.log.batch_walk import BatchAt
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.leader_epochs import EpochCache
from respool.log.producers.producer_states import ProducerStates
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.ids import Offset
from respool.records.markers import read_marker


def walk_log(segments: Segments, begin: Offset, end: Offset) -> Iterator[tuple[Segment, BatchAt]]:
    """Yield the batches that start in [begin, end), each with its segment."""
    if begin >= end:
        return
    for segment in segments.all[max(segments.index_of(begin), 0) :]:
        if segment.base_offset >= end:
            return
        for batch in segment.walk_from(max(begin, segment.base_offset)):
            if batch.header.base_offset >= end:
                return
            if batch.header.base_offset >= begin:
                yield segment, batch


def replay_producers(
    producers: ProducerStates, segments: Segments, begin: Offset, end: Offset
) -> None:
    """Replay the producers from one offset to a later one."""
    for segment, batch in walk_log(segments, begin, end):
        replay_batch(producers, segment, batch)


def replay_batch(
    producers: ProducerStates,
    segment: Segment,
    batch: BatchAt,
    *,
    high_watermark: Offset | None = None,
) -> AbortedTransaction | None:
    """Replay one batch; return the transaction that it aborts.

    Without a high watermark its marker counts as committed, since there may be millions; callers that know better
    correct that after the replay (`find_uncommitted_markers`).
    """
    header = batch.header
    if not header.is_control:
        producers.update(header, base_offset=header.base_offset)
        return None
    # Control batches are rare and small; only their record shows which transaction they end.
    marker = read_marker(segment.read_batch(batch)) if header.has_producer_id else None
    if marker is None:
        return None
    offset = header.base_offset
    aborted = producers.aborting(marker.producer_id, marker_offset=offset)
    producers.end_transaction(marker, offset=offset, timestamp_ms=header.max_timestamp)
    if high_watermark is None:
        producers.transactions.on_high_watermark(header.next_offset)
    return None if marker.is_commit else aborted


def epochs_of(segments: Segments, begin: Offset, end: Offset) -> EpochCache:
    """Return the leader epochs in [begin, end), and some from before.

    The epoch after a gap may have written the missing records: it is entered at the start of the gap.
    """
    epochs = EpochCache()
    # The batch that contains `begin` may start before it.
    begin = segments.all[max(segments.index_of(begin), 0)].base_offset
    for _, (_, header) in walk_log(segments, begin, end):
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, begin)
        begin = header.next_offset
    return epochs
