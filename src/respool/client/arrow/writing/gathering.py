"""Small writes wait a moment for others, so that they share record batches; large ones go on at once.

Rows leave in the order in which they came. What waits is bounded by the size from which rows go alone.
"""

import time
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.client.arrow.writing.home_lock import ProcessLock


class Routed(NamedTuple):
    """Rows, and where each goes."""

    topic: str
    records: pa.RecordBatch
    partitions: NDArray[np.int32]
    sizes: NDArray[np.int64]
    # The time of rows that have none.
    now_ms: int


class Gathering:
    def __init__(
        self, linger_ms: int, writing: ProcessLock, pack: Callable[[Routed], None]
    ) -> None:
        """`pack` is called with `writing` held."""
        self._linger_s = linger_ms / 1000
        self._writing = writing
        self._pack = pack
        self._waiting: list[Routed] = []
        self._waiting_bytes = 0
        # What went wrong while nobody was looking; told at the next call.
        self._trouble: Exception | None = None
        self._due = Condition(Lock())
        self._due_at: float | None = None
        self._is_stopping = False
        self._thread: Thread | None = None

    def add(self, routed: Routed, *, alone_from: int) -> None:
        """With `writing` held, as all but the thread itself."""
        self._tell_trouble()
        size = int(routed.sizes.sum())
        if self._waiting and not _fit_together(self._waiting[-1], routed):
            self.drain()
        if not self._waiting and (size >= alone_from or not self._linger_s):
            self._pack(routed)
            return
        self._waiting.append(routed)
        self._waiting_bytes += size
        if self._waiting_bytes >= alone_from:
            self.drain()
        elif len(self._waiting) == 1:
            self._wake_at(time.monotonic() + self._linger_s)

    def drain(self) -> None:
        """Let go what waits."""
        self._tell_trouble()
        waiting = self._waiting
        self.forget()
        if waiting:
            self._pack(_together(waiting))

    def forget(self) -> None:
        """Drop what waits, and what went wrong with what waited before."""
        self._waiting, self._waiting_bytes = [], 0
        self._trouble = None

    def stop(self) -> None:
        with self._due:
            self._is_stopping = True
            self._due.notify()
        # It may be waiting for `writing`, which the caller holds; it finds nothing then, and ends.

    def _tell_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _wake_at(self, moment: float) -> None:
        with self._due:
            self._due_at = moment
            if self._thread is None:
                self._thread = Thread(target=self._run, name="respool-linger", daemon=True)
                self._thread.start()
            self._due.notify()

    def _run(self) -> None:
        while self._wait_until_due():
            with self._writing:
                if self._is_stopping or self._trouble is not None:
                    continue
                try:
                    self.drain()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next caller must hear of it.
                    self._trouble = error

    def _wait_until_due(self) -> bool:
        with self._due:
            while not self._is_stopping:
                if self._due_at is None:
                    self._due.wait()
                    continue
                left = self._due_at - time.monotonic()
                if left <= 0:
                    self._due_at = None
                    return True
                self._due.wait(left)
        return False


def _fit_together(one: Routed, other: Routed) -> bool:
    return one.topic == other.topic and one.records.schema.equals(other.records.schema)


def _together(waiting: list[Routed]) -> Routed:
    if len(waiting) == 1:
        return waiting[0]
    return Routed(
        topic=waiting[0].topic,
        records=pa.concat_batches([one.records for one in waiting]),
        partitions=np.concatenate([one.partitions for one in waiting]),
        sizes=np.concatenate([one.sizes for one in waiting]),
        now_ms=waiting[0].now_ms,
    )
