"""Records that a leader on this machine does not send, but lends: a follower reads them from the leader's own files.

What is lent is committed, and of a topic that never elects a leader without it: so nobody cuts it off, and the bytes in
the file stay what they were when the leader named them. Where they cannot be had (the segment was deleted or compacted
meanwhile, the file is not ours to open) nothing is lost: they are fetched again, and for a while all is sent.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from respool.model.file_place import FilePlace, NotLent
from respool.ports.clock import Clock
from respool.ports.neighbours import Neighbours
from respool.wire.fetch_reply import FetchedPart

logger = logging.getLogger(__name__)

AGAIN_AFTER_MS = 60_000


class BorrowedRecords:
    """From one leader."""

    def __init__(self, neighbours: Neighbours | None, *, clock: Clock) -> None:
        """None: there are no neighbours."""
        self._neighbours = neighbours
        self._clock = clock
        self._not_before_ms = 0

    def ask(self, *, is_near: bool) -> str:
        """What to tell the leader; empty: it is to send the records. `is_near`: it is at an address of this machine."""
        if self._neighbours is None or not is_near:
            return ""
        return self._neighbours.host if self._clock.monotonic_ms() >= self._not_before_ms else ""

    async def filled(self, parts: Sequence[FetchedPart]) -> list[FetchedPart]:
        """The same with the records that were lent; without any where these could not be read."""
        neighbours = self._neighbours
        lent = [part.place for part in parts if part.place is not None]
        if not lent or neighbours is None:
            return [replace(part, place=None) for part in parts]
        records = await asyncio.gather(*[_read(neighbours, place) for place in lent])
        if None in records:
            self._not_before_ms = self._clock.monotonic_ms() + AGAIN_AFTER_MS
        found = dict(zip(lent, records, strict=True))
        return [
            part
            if part.place is None
            else replace(part, records=found[part.place] or part.records, place=None)
            for part in parts
        ]


async def _read(neighbours: Neighbours, place: FilePlace) -> memoryview | None:
    try:
        return await neighbours.read(place)
    except NotLent as error:
        logger.info("a leader on this machine lends what is not to be had: %s", error)
        return None
