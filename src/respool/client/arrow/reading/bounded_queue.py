"""Between the threads that fetch and the one that takes: a queue with room for so many bytes, and how it all ends."""

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition

import pyarrow as pa

from respool.client.kafka.errors import ClientClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What was read of one partition, in its order."""

    partition: int
    # None where no message of these offsets is wanted.
    batch: pa.RecordBatch | None
    # Everything before this offset has been handed out with this piece and those before it.
    next_offset: int

    @property
    def size(self) -> int:
        return 0 if self.batch is None else int(self.batch.nbytes)


class BoundedQueue:
    def __init__(self, *, bytes_max: int, sources: int) -> None:
        """`sources` is how many threads will put pieces in; it ends when all have `finish`ed."""
        self._bytes_max = bytes_max
        self._sources = sources
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_closed = False
        # Guards all of the above; told of every change.
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
        """Wait until there is room. One piece may go beyond: there is always room for something.

        Raises:
            ClientClosed: nobody will take it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.has_room or self._has_ended)
            # Once a source has failed no other goes on: what they put in would come before the error for ever.
            if self._has_ended:
                raise ClientClosed("the read was closed")
            self._pieces.append(piece)
            self._bytes += piece.size
            self._changed.notify_all()

    def take(self, timeout_s: float | None = None) -> Piece | None:
        """The next piece; None when all have finished.

        Raises:
            TimeoutError: there is none in time.
            ClientClosed: it was closed.
            whatever a source failed with, after the pieces before it.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._is_closed:
                    raise ClientClosed("the read was closed")
                if self._pieces:
                    piece = self._pieces.popleft()
                    self._bytes -= piece.size
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
        """Sleep, unless it is closed.

        Raises:
            ClientClosed
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._is_closed, seconds):
                raise ClientClosed("the read was closed")

    def fail(self, error: BaseException) -> None:
        """A source cannot go on. The first error counts."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def finish(self) -> None:
        """A source has put in everything."""
        with self._changed:
            self._sources -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._pieces.clear()
            self._bytes = 0
            self._changed.notify_all()
