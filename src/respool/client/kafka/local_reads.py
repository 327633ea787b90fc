"""Local reads: a broker on this host names a range of its log file, and the client reads the records from the file.

If that fails, the fetch is repeated and the broker sends the records. A local read fails if the segment was deleted or
compacted since the reply, or if this process cannot open the broker's files, or its paths lead to other files (a
container). So after a failure no local reads are requested from that broker for a while.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from respool.client.kafka.connection import ReplyBuffer
from respool.local_reads.local_file_read import read_file_range, this_host
from respool.model.file_range import FILE_RANGE_VALID_MS, LocalReadFailed
from respool.wire.fetch_reply import FetchedPart
from respool.wire.protocol_errors import RequestMalformed

logger = logging.getLogger(__name__)

AGAIN_AFTER_S = 60.0
# Broker address -> the earliest time of the next local read; shared by all reads of this process.
_NOT_BEFORE: dict[tuple[str, int] | None, float] = {}


class LocalReads:
    """Local reads from one broker, in one thread."""

    def __init__(
        self, address: tuple[str, int] | None, *, into: ReplyBuffer, bytes_max: int
    ) -> None:
        """`address` is None unless the broker is on this host. File ranges above `bytes_max` in total are refused."""
        self._address = address
        self._host = "" if address is None else this_host()
        self._bytes_max = bytes_max
        self._buffer = into
        # The request in flight names this host, which asks for local reads.
        self._is_asked = False
        self._asked_at = 0.0

    def host_to_name(self) -> str:
        """Return the host to name in the next request; empty: the broker sends the records."""
        not_before = _NOT_BEFORE.get(self._address, 0.0)
        self._asked_at = time.monotonic()
        self._is_asked = bool(self._host) and self._asked_at >= not_before
        return self._host if self._is_asked else ""

    def filled(self, parts: Sequence[FetchedPart]) -> list[FetchedPart]:
        """Return the parts, with file ranges replaced by their records, which are valid until the next call.

        A part that still has a file range could not be read: fetch it again.

        Raises:
            RequestMalformed: the ranges are too large, or no local read was requested.
        """
        size = sum(part.file_range.size for part in parts if part.file_range is not None)
        if not size:
            return list(parts)
        if not self._is_asked:
            raise RequestMalformed("the reply has file ranges, but no local read was requested")
        if size > self._bytes_max:
            raise RequestMalformed(f"{size} bytes in file ranges, limit {self._bytes_max}")
        room = self._buffer.room(size)
        found = []
        for part in parts:
            if part.file_range is not None:
                target, room = room[: part.file_range.size], room[part.file_range.size :]
                found.append(self._read(part, target))
            else:
                found.append(part)
        return found

    def _read(self, part: FetchedPart, target: memoryview) -> FetchedPart:
        assert part.file_range is not None
        try:
            read_file_range(part.file_range, target)
            if (time.monotonic() - self._asked_at) * 1000 > FILE_RANGE_VALID_MS:
                # The caller paused in between: another file may have taken the name and the inode.
                return part
        except LocalReadFailed as error:
            logger.debug("local read failed, the records are fetched again: %s", error)
            _NOT_BEFORE[self._address] = time.monotonic() + AGAIN_AFTER_S
            return part
        return replace(part, records=target, file_range=None)
