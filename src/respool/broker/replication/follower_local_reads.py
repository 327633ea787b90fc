"""Local reads, the follower's side: reads records from the files of a leader on this host.

The leader names only committed records, so the file is not normally truncated there, and the first bytes of the range
show whether the file still has the records. If the range cannot be read (the segment was deleted or compacted, the file
cannot be opened), it is fetched again, and for a while the leader sends all records over the socket.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from respool.model.file_range import FILE_RANGE_VALID_MS, LocalReadFailed
from respool.ports.clock import Clock
from respool.ports.local_reader import LocalReader
from respool.ports.peers import PeerUnreachable
from respool.records.validate import walk_batches
from respool.wire.fetch_reply import FetchedPart

logger = logging.getLogger(__name__)

RETRY_AFTER_MS = 60_000
# The disk of one leader may hang; reads from other leaders must not wait for that.
READ_MS_MAX = 5_000


class LocalReadRequest(NamedTuple):
    """The part of a request that tells the leader about local reads."""

    # This host's id; empty: the leader sends the records.
    host: str
    at_ms: int


class FollowerLocalReads:
    """Local reads from one leader."""

    def __init__(self, local_reader: LocalReader | None, *, clock: Clock, bytes_max: int) -> None:
        """`local_reader` None: no local reads. Ranges of more than `bytes_max` in one reply are refused."""
        self._local_reader = local_reader
        self._clock = clock
        self._bytes_max = bytes_max
        self._not_before_ms = 0

    def ask(self, *, is_on_this_host: bool) -> LocalReadRequest:
        """Return the request's local-read part. `is_on_this_host`: the leader has an address of this machine."""
        now_ms = self._clock.monotonic_ms()
        if self._local_reader is None or not is_on_this_host or now_ms < self._not_before_ms:
            return LocalReadRequest("", now_ms)
        return LocalReadRequest(self._local_reader.host, now_ms)

    async def filled(
        self,
        parts: Sequence[FetchedPart],
        *,
        asked: LocalReadRequest,
        epoch_of: Callable[[FetchedPart], int],
    ) -> list[FetchedPart]:
        """Return the parts with the records of their file ranges; without records if a range could not be read.

        `asked` is what `ask` returned for this request; `epoch_of` returns the leader epoch of a part's fetch.

        Raises:
            PeerUnreachable: the ranges are too large, or no local read was requested.
        """
        local_read = [part.file_range for part in parts if part.file_range is not None]
        if not local_read:
            return list(parts)
        size = sum(file_range.size for file_range in local_read)
        if self._local_reader is None or not asked.host or size > self._bytes_max:
            raise PeerUnreachable(
                f"file ranges of {size} bytes, limit {self._bytes_max}, or no local read was requested"
            )
        local_reader = self._local_reader
        return list(
            await asyncio.gather(
                *[self._filled(local_reader, part, asked, epoch=epoch_of(part)) for part in parts]
            )
        )

    async def _filled(
        self, local_reader: LocalReader, part: FetchedPart, asked: LocalReadRequest, *, epoch: int
    ) -> FetchedPart:
        if part.file_range is None:
            return part
        try:
            async with asyncio.timeout(READ_MS_MAX / 1000):
                records = await local_reader.read(part.file_range)
            self._check(records, asked, epoch=epoch)
        except (LocalReadFailed, TimeoutError) as error:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._not_before_ms:
                # One log line for all ranges that fail together.
                logger.info("local reads fail, so the leader sends the records: %s", error)
            self._not_before_ms = now_ms + RETRY_AFTER_MS
            return replace(part, file_range=None)
        return replace(part, records=records, file_range=None)

    def _check(self, records: memoryview, asked: LocalReadRequest, *, epoch: int) -> None:
        """Check that these are the records of the leader in the epoch of the request.

        1. A leader names a range.   2. Another leader is elected without those records, so the first one truncates its
        log and appends the new leader's records.   3. The follower reads a mix of both.
        """
        if self._clock.monotonic_ms() - asked.at_ms > FILE_RANGE_VALID_MS:
            raise LocalReadFailed("the range was read too late")
        if any(header.leader_epoch > epoch for _, header in walk_batches(records)):
            raise LocalReadFailed(f"the range has batches of later epochs than {epoch}")
