"""Commits a stream's progress as offsets of a group, for monitoring only. Nothing reads them back.

The checkpoint is authoritative; a failed commit is logged at a limited rate, and never delays the query for long.
"""

import logging
import time
from collections.abc import Callable

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import ClientError
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.spark.source.stream_offset import Position

COMMIT_MS = 2_000
# After a failure, no commits are attempted for this time.
PAUSE_S = 30.0

_log = logging.getLogger("respool.spark")


class GroupProgress:
    def __init__(self, group: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.group = group
        self._monotonic = monotonic
        self._paused_until = 0.0

    def show(self, cluster: Cluster, position: Position) -> bool:
        """Commit the position; returns whether it succeeded."""
        if self._monotonic() < self._paused_until:
            return False
        places = {
            (topic, number): OffsetAndMetadata(offset)
            for topic, at in position.items()
            for number, offset in at.offsets.items()
        }
        try:
            commit_offsets(cluster, self.group, places, limit_ms=COMMIT_MS)
        except ClientError as error:
            self._paused_until = self._monotonic() + PAUSE_S
            _log.warning(
                "the stream's progress could not be shown as group %r, so its lag is not up to date; the stream "
                "continues, and tries again in %d s: %s",
                self.group,
                PAUSE_S,
                error,
            )
            return False
        return True
