"""Retention of a partition that lies on two tiers: what expires on both, and what need not be local any longer."""

from respool.archive.manifest import Manifest
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig


def expired_end(
    manifest: Manifest,
    config: TopicConfig,
    *,
    now_ms: int,
    local_bytes_beyond: int,
    kept_from: Offset,
) -> Offset | None:
    """The log start after retention; None if nothing has expired.

    Only archived segments expire; others stay, even during an outage of the store. `local_bytes_beyond` are
    the bytes that are not archived; what lies on both tiers counts once. A segment with a timestamp in the future keeps
    itself and all later ones. Records from `kept_from` on stay.
    """
    if not config.has_retention:
        return None
    bytes_over = -1
    if config.retention_bytes >= 0:
        bytes_over = manifest.log_bytes + local_bytes_beyond - config.retention_bytes
    end: Offset | None = None
    for segment in manifest.segments:
        is_large = segment.log_bytes <= bytes_over
        is_old = 0 <= config.retention_ms < now_ms - segment.largest_timestamp
        # Without a timestamp its age is unknown.
        is_old = is_old and segment.largest_timestamp >= 0
        if segment.next > kept_from or not (is_large or is_old):
            break
        bytes_over -= segment.log_bytes
        end = segment.next
    return end
