"""Records that a broker on this machine does not send, but lends: it names its file, and they are read from there.

Nothing is lost where that fails: what was asked for is asked for again, and sent. It can fail because the segment was
deleted or compacted meanwhile, and because this process may not open the broker's files, or sees others under their
names (a container). So after a failure everything is sent for a while.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from respool.client.kafka.reply_buffer import ReplyBuffer
from respool.model.file_place import PLACE_GOOD_MS, NotLent
from respool.neighbours.host import this_host
from respool.neighbours.lent_file import read_lent
from respool.wire.fetch_reply import FetchedPart
from respool.wire.protocol_errors import RequestMalformed

logger = logging.getLogger(__name__)

AGAIN_AFTER_S = 60.0
# When brokers whose files could not be read may be asked for them again; for all reads of this process.
_NOT_BEFORE: dict[tuple[str, int] | None, float] = {}


class Borrowing:
    """From one broker, by one thread."""

    def __init__(
        self, address: tuple[str, int] | None, *, into: ReplyBuffer, bytes_max: int
    ) -> None:
        """The broker's address, if that is one of this machine. `bytes_max` is the most that is taken at once."""
        self._address = address
        self._host = "" if address is None else this_host()
        self._bytes_max = bytes_max
        self._buffer = into
        # The request under way allows it.
        self._is_asked = False
        self._asked_at = 0.0

    def ask(self) -> str:
        """What to tell the broker with the next request; empty: it is to send the records."""
        not_before = _NOT_BEFORE.get(self._address, 0.0)
        self._asked_at = time.monotonic()
        self._is_asked = bool(self._host) and self._asked_at >= not_before
        return self._host if self._is_asked else ""

    def filled(self, parts: Sequence[FetchedPart]) -> list[FetchedPart]:
        """The same with the records that were lent, until this is called again. Who could not be read has its place
        still: that is to be asked for again.

        Raises:
            RequestMalformed: it is more than may be, or was not asked for.
        """
        size = sum(part.place.size for part in parts if part.place is not None)
        if not size:
            return list(parts)
        if not self._is_asked:
            raise RequestMalformed("records were lent that were to be sent")
        if size > self._bytes_max:
            raise RequestMalformed(f"{size} bytes were lent; up to {self._bytes_max} are taken")
        room = self._buffer.room(size)
        found = []
        for part in parts:
            if part.place is not None:
                target, room = room[: part.place.size], room[part.place.size :]
                found.append(self._read(part, target))
            else:
                found.append(part)
        return found

    def _read(self, part: FetchedPart, target: memoryview) -> FetchedPart:
        assert part.place is not None
        try:
            read_lent(part.place, target)
            if (time.monotonic() - self._asked_at) * 1000 > PLACE_GOOD_MS:
                # Whoever takes the messages paused. The file may be another by now that looks the same.
                return part
        except NotLent as error:
            logger.debug("what a broker of this machine lent is not to be had: %s", error)
            _NOT_BEFORE[self._address] = time.monotonic() + AGAIN_AFTER_S
            return part
        return replace(part, records=target, place=None)
