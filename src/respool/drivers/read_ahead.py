"""Has the disk bring bytes into memory before they are asked for, in a thread of its own.

The system is only given a hint, and the reads then go on by themselves. But giving it takes a millisecond where the
disk is idle and many where it is not, and who reads from memory on the event loop must not wait for that.
"""

import os
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Lock, Thread

READ_AHEAD_BYTES = 4 * 1024 * 1024
# More are passed over: they are hints.
WAITING_MAX = 64
# The thread ends when nothing was asked for so long.
IDLE_S = 10.0


class Descriptor:
    """A file descriptor that is closed when the last one who holds this object lets go.

    Whoever uses the number keeps the object in a local variable meanwhile, so `close` in one thread never pulls
    the file, or another file with the same number, from under a read in another.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def read_ahead(fd: int, position: int) -> None:
    """Now, in the thread that asks."""
    with suppress(OSError, AttributeError):
        os.posix_fadvise(fd, position, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


class ReadAhead:
    """For all files of a disk."""

    def __init__(self) -> None:
        self._asked: Queue[tuple[Descriptor, int]] = Queue(WAITING_MAX)
        # Guards whether there is a thread.
        self._lock = Lock()
        self._has_thread = False

    def ask(self, descriptor: Descriptor, position: int) -> None:
        """Soon, and not in this thread. The file stays open until then."""
        with self._lock:
            try:
                self._asked.put_nowait((descriptor, position))
            except Full:
                return
            if not self._has_thread:
                self._has_thread = True
                Thread(target=self._run, name="respool-read-ahead", daemon=True).start()

    def settle(self) -> None:
        """Wait until all that was asked for has been passed on."""
        self._asked.join()

    def _run(self) -> None:
        while self._pass_on():
            pass

    def _pass_on(self) -> bool:
        """One; False when there was none for long, and the thread is to end."""
        try:
            descriptor, position = self._asked.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                self._has_thread = not self._asked.empty()
                return self._has_thread
        read_ahead(descriptor.fd, position)
        self._asked.task_done()
        return True
