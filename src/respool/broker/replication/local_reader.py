"""Records that a leader on this machine does not send, but lends: a follower reads them from the leader's own files.

What is lent is committed, so as a rule nobody cuts it off; and what it begins with tells whether it is still what the
leader had there. Where it cannot be had (the segment was deleted or compacted meanwhile, the file is not ours to open)
nothing is lost: it is fetched again, and for a while all is sent.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from respool.model.file_place import PLACE_GOOD_MS, NotLent
from respool.ports.clock import Clock
from respool.ports.neighbours import Neighbours
from respool.ports.peers import PeerUnreachable
from respool.records.validate import walk_batches
from respool.wire.fetch_reply import FetchedPart

logger = logging.getLogger(__name__)

AGAIN_AFTER_MS = 60_000
# A disk that hangs is its leader's trouble; what others lend is not to wait for it.
READ_MS_MAX = 5_000


class Asked(NamedTuple):
    """What a leader is told with a request."""

    # The machine we are on; empty: it is to send the records.
    host: str
    at_ms: int


class BorrowedRecords:
    """From one leader."""

    def __init__(self, neighbours: Neighbours | None, *, clock: Clock, bytes_max: int) -> None:
        """None: there are no neighbours. No more than `bytes_max` is taken at once."""
        self._neighbours = neighbours
        self._clock = clock
        self._bytes_max = bytes_max
        self._not_before_ms = 0

    def ask(self, *, is_near: bool) -> Asked:
        """What to tell the leader. `is_near`: it is at an address of this machine."""
        now_ms = self._clock.monotonic_ms()
        if self._neighbours is None or not is_near or now_ms < self._not_before_ms:
            return Asked("", now_ms)
        return Asked(self._neighbours.host, now_ms)

    async def filled(
        self, parts: Sequence[FetchedPart], *, asked: Asked, epoch_of: Callable[[FetchedPart], int]
    ) -> list[FetchedPart]:
        """The same with the records that were lent; without any where these could not be read.

        `asked` is what `ask` said for this request, and `epoch_of` tells in which leader epoch it asked for a part.

        Raises:
            PeerUnreachable: the leader lends more than may be, or unasked.
        """
        lent = [part.place for part in parts if part.place is not None]
        if not lent:
            return list(parts)
        size = sum(place.size for place in lent)
        if self._neighbours is None or not asked.host or size > self._bytes_max:
            raise PeerUnreachable(f"a leader lends {size} bytes, which nobody asked for")
        neighbours = self._neighbours
        return list(
            await asyncio.gather(
                *[self._filled(neighbours, part, asked, epoch=epoch_of(part)) for part in parts]
            )
        )

    async def _filled(
        self, neighbours: Neighbours, part: FetchedPart, asked: Asked, *, epoch: int
    ) -> FetchedPart:
        if part.place is None:
            return part
        try:
            async with asyncio.timeout(READ_MS_MAX / 1000):
                records = await neighbours.read(part.place)
            self._check(records, asked, epoch=epoch)
        except (NotLent, TimeoutError) as error:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._not_before_ms:
                # Once for all that fail with it.
                logger.info("records are sent that a leader on this machine would lend: %s", error)
            self._not_before_ms = now_ms + AGAIN_AFTER_MS
            return replace(part, place=None)
        return replace(part, records=records, place=None)

    def _check(self, records: memoryview, asked: Asked, *, epoch: int) -> None:
        """Whether it is what the leader has there, in the epoch that it was asked in.

        1. A leader lends something.   2. Another is elected that does not have it, and this one cuts it off and writes
        there what the other has.   3. The follower reads some of both.
        """
        if self._clock.monotonic_ms() - asked.at_ms > PLACE_GOOD_MS:
            raise NotLent("it was read too late")
        if any(header.leader_epoch > epoch for _, header in walk_batches(records)):
            raise NotLent(f"it has batches of later epochs than {epoch}")
