"""Reads ahead of sequential readers, in a thread of its own; and shared file descriptors.

posix_fadvise only starts the reads. But the call takes a millisecond on an idle disk and many on a busy one, and
readers on the event loop must not wait for it.
"""

import os
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Lock, Thread

READ_AHEAD_BYTES = 4 * 1024 * 1024
# Further requests are dropped: they are hints.
WAITING_MAX = 64
# The thread ends after this time without requests.
IDLE_S = 10.0


class Descriptor:
    """A file descriptor that is closed with the last reference to this object.

    Users keep the object in a local variable while they use the number, so `close` in one thread never closes the file
    under a read in another, nor lets the number be reused.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def read_ahead(fd: int, position: int) -> None:
    """Read ahead now, in this thread."""
    with suppress(OSError, AttributeError):
        os.posix_fadvise(fd, position, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


class ReadAhead:
    """Serves all files of a disk."""

    def __init__(self) -> None:
        self._requests: Queue[tuple[Descriptor, int]] = Queue(WAITING_MAX)
        # Guards `_has_thread`.
        self._lock = Lock()
        self._has_thread = False

    def request(self, descriptor: Descriptor, position: int) -> None:
        """Read ahead soon, in the other thread. The file stays open until then."""
        with self._lock:
            try:
                self._requests.put_nowait((descriptor, position))
            except Full:
                return
            if not self._has_thread:
                self._has_thread = True
                Thread(target=self._run, name="respool-read-ahead", daemon=True).start()

    def drain(self) -> None:
        """Wait until all requests are processed."""
        self._requests.join()

    def _run(self) -> None:
        while self._process_one():
            pass

    def _process_one(self) -> bool:
        """Process one request; False after a long idle time, to end the thread."""
        try:
            descriptor, position = self._requests.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                self._has_thread = not self._requests.empty()
                return self._has_thread
        read_ahead(descriptor.fd, position)
        self._requests.task_done()
        return True
