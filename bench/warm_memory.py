"""Memory that is surely there: held until a measurement begins, then released as fast as the broker may need it.

Many virtual machines give free memory back to their host within seconds. A newly allocated page then costs several
times what it costs on a machine that owns its memory, and a growing log takes nothing but new pages: one would
measure the host. So a part of memory is kept in use and freed while the load runs; the log's pages are then those
just freed.
"""

import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import psutil

from bench.scale import MB

STEP_SECONDS = 0.01
# A broker may take this much between two steps.
AHEAD_BYTES = 128 * MB
# Of what is free; the rest is for the page cache that the broker reads from.
SHARE_MAX = 0.25
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14 and newer; Python has no name for it.
_PAGE = mmap.PAGESIZE
_HUGE = 2 * MB


class WarmMemory:
    """Use as a context. `refill` before a measurement, soon after memory was freed; `released_during` during it."""

    def __init__(self, size: int) -> None:
        possible = int(psutil.virtual_memory().available * SHARE_MAX)
        self._size = min(size, possible) // _HUGE * _HUGE

    def __enter__(self) -> Self:
        # Private: shared memory would stay in use until it is unmapped.
        self._map = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # In large pieces: a file written in large pieces takes its pages from the lists of large free ones.
        self._map.madvise(mmap.MADV_HUGEPAGE)
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def refill(self) -> None:
        try:
            self._map.madvise(_POPULATE_WRITE)
        except OSError:
            # An older kernel: touch every page.
            for at in range(0, self._size, _PAGE):
                self._map[at] = 1

    @contextmanager
    def released_during(self, taken: Callable[[], int]) -> Iterator[None]:
        """Free it bit by bit, always some more than the number of bytes that were `taken` since the start."""
        ended = threading.Event()
        thread = threading.Thread(target=self._free, args=(taken, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _free(self, taken: Callable[[], int], ended: threading.Event) -> None:
        first = taken()
        at = 0
        while at < self._size:
            wanted = min(self._size, taken() - first + AHEAD_BYTES)
            length = (wanted - at) // _HUGE * _HUGE
            if length > 0:
                self._map.madvise(mmap.MADV_DONTNEED, at, length)
                at += length
            if ended.wait(STEP_SECONDS):
                return
