"""Which old segments a log no longer has to keep. Whole segments only, oldest first, without a gap."""

from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig


def count_expired(
    segments: Segments,
    *,
    config: TopicConfig,
    log_start: Offset,
    log_end: Offset,
    bound: Offset,
    now_ms: int,
) -> int:
    """How many segments, from the oldest on, may go. When it is all of them, begin a new one first.

    A segment goes when it lies below the log's start. If the topic is not only compacted, it also goes when its latest
    record is older than `retention.ms`, or when what is left without it still has `retention.bytes`. None goes that is
    not wholly below `bound`: it is not committed, or part of an open transaction, and somebody may still need it. A
    timestamp in the future keeps its segment, and with it all that come after.
    """
    has_bytes_max = config.has_retention and config.retention_bytes >= 0
    bytes_over = segments.size_bytes - config.retention_bytes if has_bytes_max else -1
    retention_ms = config.retention_ms if config.has_retention else -1
    count = 0
    for index, segment in enumerate(segments.all):
        end = segments.end_of(index, log_end=log_end)
        # An empty segment can only be the active one, and a new one would be no better.
        if not segment.size or end > bound:
            break
        if not (
            end <= log_start
            or segment.size <= bytes_over
            or _is_too_old(segment, retention_ms, now_ms)
        ):
            break
        bytes_over -= segment.size
        count += 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    return 0 <= retention_ms < now_ms - segment.retention_timestamp
