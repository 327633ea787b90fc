"""Records that a leader on this machine does not send, but lends: a follower reads them from the leader's own files.

What is lent is committed, so as a rule nobody cuts it off; and what it begins with tells whether it is still what the
leader had there. Where it cannot be had (the segment was deleted or compacted meanwhile, the file is not ours to open)
nothing is lost: it is fetched again, and for a while all is sent.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from respool.model.file_place import FilePlace, NotLent
from respool.ports.clock import Clock
from respool.ports.neighbours import Neighbours
from respool.ports.peers import PeerUnreachable
from respool.wire.fetch_reply import FetchedPart

logger = logging.getLogger(__name__)

AGAIN_AFTER_MS = 60_000


class BorrowedRecords:
    """From one leader."""

    def __init__(self, neighbours: Neighbours | None, *, clock: Clock, bytes_max: int) -> None:
        """None: there are no neighbours. No more than `bytes_max` is taken at once."""
        self._neighbours = neighbours
        self._clock = clock
        self._bytes_max = bytes_max
        self._not_before_ms = 0

    def ask(self, *, is_near: bool) -> str:
        """What to tell the leader; empty: it is to send the records. `is_near`: it is at an address of this machine."""
        if self._neighbours is None or not is_near:
            return ""
        return self._neighbours.host if self._clock.monotonic_ms() >= self._not_before_ms else ""

    async def filled(self, parts: Sequence[FetchedPart], *, asked: str) -> list[FetchedPart]:
        """The same with the records that were lent; without any where these could not be read.

        `asked` is what `ask` said for this request.

        Raises:
            PeerUnreachable: the leader lends more than may be, or unasked.
        """
        lent = [part.place for part in parts if part.place is not None]
        if not lent:
            return list(parts)
        size = sum(place.size for place in lent)
        if self._neighbours is None or not asked or size > self._bytes_max:
            raise PeerUnreachable(f"a leader lends {size} bytes, which nobody asked for")
        neighbours = self._neighbours
        found = await asyncio.gather(*[self._read(neighbours, place) for place in lent])
        records = dict(zip(lent, found, strict=True))
        return [
            part
            if part.place is None
            else replace(part, records=records[part.place] or part.records, place=None)
            for part in parts
        ]

    async def _read(self, neighbours: Neighbours, place: FilePlace) -> memoryview | None:
        try:
            return await neighbours.read(place)
        except NotLent as error:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._not_before_ms:
                # Once for all that fail with it.
                logger.info("records are sent that a leader on this machine would lend: %s", error)
            self._not_before_ms = now_ms + AGAIN_AFTER_MS
            return None
