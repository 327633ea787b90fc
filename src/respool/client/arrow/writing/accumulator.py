"""Small writes wait for `linger_ms`, so that they share record batches; large ones are encoded at once.

Rows keep their order. The bytes that wait stay below the size from which a write is encoded alone.
"""

import os
import time
from collections.abc import Callable
from threading import Condition, Lock, RLock, Thread
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.client.kafka.errors import ClientClosed


class ProcessLock:
    """A re-entrant lock, as a context manager, that only the process that created it can acquire.

    A fork has none of the worker threads, and its copy of a lock may be held forever by one of them.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._pid = os.getpid()

    @property
    def is_owner(self) -> bool:
        return os.getpid() == self._pid

    def __enter__(self) -> None:
        """
        Raises:
            ClientClosed: this is another process, a fork.
        """
        if not self.is_owner:
            raise ClientClosed(
                f"the producer was made in process {self._pid}; a fork has none of its threads: make another one here"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Routed(NamedTuple):
    """Rows, with the partition of each."""

    topic: str
    records: pa.RecordBatch
    partitions: NDArray[np.int32]
    sizes: NDArray[np.int64]
    # The timestamp of rows without one.
    now_ms: int


class Accumulator:
    def __init__(
        self, linger_ms: int, writing: ProcessLock, encode: Callable[[Routed], None]
    ) -> None:
        """`encode` is called with `writing` held."""
        self._linger_s = linger_ms / 1000
        self._writing = writing
        self._encode = encode
        self._waiting: list[Routed] = []
        self._waiting_bytes = 0
        # An error of the linger thread, raised by the next call.
        self._error: Exception | None = None
        self._due = Condition(Lock())
        self._due_at: float | None = None
        self._is_stopping = False
        self._thread: Thread | None = None

    def add(self, routed: Routed, *, alone_from: int) -> None:
        """Add rows. Called with `writing` held, like all methods but `stop`."""
        self._raise_error()
        size = int(routed.sizes.sum())
        if self._waiting and not _can_share(self._waiting[-1], routed):
            self.drain()
        if not self._waiting and (size >= alone_from or not self._linger_s):
            self._encode(routed)
            return
        self._waiting.append(routed)
        self._waiting_bytes += size
        if self._waiting_bytes >= alone_from:
            self.drain()
        elif len(self._waiting) == 1:
            self._wake_at(time.monotonic() + self._linger_s)

    def drain(self) -> None:
        """Encode the waiting rows now."""
        self._raise_error()
        waiting = self._waiting
        self.forget()
        if waiting:
            self._encode(_concatenated(waiting))

    def forget(self) -> None:
        """Drop the waiting rows and the error."""
        self._waiting, self._waiting_bytes = [], 0
        self._error = None

    def stop(self) -> None:
        with self._due:
            self._is_stopping = True
            self._due.notify()
        # The thread may be waiting for `writing`, which the caller holds; it then finds nothing to do, and ends.

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _wake_at(self, due_at: float) -> None:
        with self._due:
            self._due_at = due_at
            if self._thread is None:
                self._thread = Thread(target=self._run, name="respool-linger", daemon=True)
                self._thread.start()
            self._due.notify()

    def _run(self) -> None:
        while self._wait_until_due():
            with self._writing:
                if self._is_stopping or self._error is not None:
                    continue
                try:
                    self.drain()
                except Exception as error:  # noqa: BLE001 - the next caller raises it
                    self._error = error

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


def _can_share(one: Routed, other: Routed) -> bool:
    return one.topic == other.topic and one.records.schema.equals(other.records.schema)


def _concatenated(waiting: list[Routed]) -> Routed:
    if len(waiting) == 1:
        return waiting[0]
    return Routed(
        topic=waiting[0].topic,
        records=pa.concat_batches([one.records for one in waiting]),
        partitions=np.concatenate([one.partitions for one in waiting]),
        sizes=np.concatenate([one.sizes for one in waiting]),
        now_ms=waiting[0].now_ms,
    )
