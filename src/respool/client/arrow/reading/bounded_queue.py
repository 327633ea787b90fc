"""The queue between the fetching threads and the reader, bounded in bytes; it also passes on errors and the end."""

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition

import pyarrow as pa

from respool.client.kafka.errors import ClientClosed


@dataclass(slots=True, kw_only=True)
class Piece:
    """Messages read from one partition, in order."""

    partition: int
    # None if no message at these offsets matches.
    batch: pa.RecordBatch | None
    # With this piece, everything of the partition before this offset has been returned.
    next_offset: int

    @property
    def size(self) -> int:
        return 0 if self.batch is None else int(self.batch.nbytes)


class BoundedQueue:
    def __init__(self, *, bytes_max: int, sources: int) -> None:
        """`sources` is the number of threads that put pieces; the queue ends when all have called `finish`."""
        self._bytes_max = bytes_max
        self._sources = sources
        self._pieces: deque[Piece] = deque()
        # The last queued piece of each partition.
        self._last: dict[int, Piece] = {}
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_closed = False
        # Guards all of the above; notified of every change.
        self._changed = Condition()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def _has_ended(self) -> bool:
        return self._is_closed or self._error is not None

    @property
    def has_room(self) -> bool:
        return self._bytes < self._bytes_max

    def put(self, piece: Piece) -> None:
        """Add a piece; waits until there is room. One piece may exceed the bound, so that any piece fits.

        A piece without a batch is merged into the partition's last one, if that is still queued.

        Raises:
            ClientClosed: the queue was closed, or another source failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.has_room or self._has_ended)
            # After one source has failed the others stop, or their pieces would keep coming before the error.
            if self._has_ended:
                raise ClientClosed("the read was closed")
            last = self._last.get(piece.partition)
            if piece.batch is None and last is not None:
                # Or such pieces, which have no size, would pile up while nobody takes them.
                last.next_offset = piece.next_offset
                return
            self._pieces.append(piece)
            self._last[piece.partition] = piece
            self._bytes += piece.size
            self._changed.notify_all()

    def take(self, timeout_s: float | None = None) -> Piece | None:
        """Return the next piece; None when all sources have finished.

        Raises:
            TimeoutError: no piece came in time.
            ClientClosed: the queue was closed.
            The error of a source, after the pieces that preceded it.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._is_closed:
                    raise ClientClosed("the read was closed")
                if self._pieces:
                    piece = self._pieces.popleft()
                    self._bytes -= piece.size
                    if self._last[piece.partition] is piece:
                        del self._last[piece.partition]
                    self._changed.notify_all()
                    return piece
                if self._error is not None:
                    raise self._error
                if not self._sources:
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(left)

    def wait(self, seconds: float) -> None:
        """Sleep, until the queue is closed at the latest.

        Raises:
            ClientClosed
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._is_closed, seconds):
                raise ClientClosed("the read was closed")

    def fail(self, error: BaseException) -> None:
        """Report that a source cannot continue. Only the first error is kept."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def finish(self) -> None:
        """Report that a source has put all its pieces."""
        with self._changed:
            self._sources -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._pieces.clear()
            self._last.clear()
            self._bytes = 0
            self._changed.notify_all()
