"""Cluster metadata of a single node: `ports.metadata_store` on one SQLite file, without a server.

All content is in memory too, since it is small: reads and watches use memory, and only writes go to the file, one after
another, on another thread. Memory changes after the commit, so nothing is visible that a power cut could undo.

The latest changes are kept for watchers, in memory only: after a restart a watch starts with a new snapshot.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from respool.drivers.change_history import ChangeHistory
from respool.drivers.lease_table import LeaseTable
from respool.drivers.sqlite_file import SqliteFile
from respool.drivers.thread_offload import ThreadOffload
from respool.ports.clock import Clock
from respool.ports.metadata_store import (
    Guard,
    GuardFailed,
    KeyChanged,
    LeaseExpired,
    Snapshot,
    StoredValue,
    StoreUnavailable,
    checked_puts,
)
from respool.ports.offload import Offload

T = TypeVar("T")

EXPIRY_PAUSE_MS = 50


class SqliteStore:
    """The store of one process. Opening blocks, once at startup.

    Raises:
        StorageError: the file is in use, damaged, or not a metadata store.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        offload: Offload | None = None,
        history_changes_max: int = 10_000,
        history_bytes_max: int = 16 * 1024 * 1024,
    ) -> None:
        self._path = path
        self._file = SqliteFile(path)
        content = self._file.load()
        self._values = content.values
        self._leases = LeaseTable(clock, last=content.lease)
        self._history = ChangeHistory(
            revision=content.revision,
            changes_max=history_changes_max,
            bytes_max=history_bytes_max,
        )
        self._own_threads: ThreadOffload | None = None
        if offload is None:
            offload = self._own_threads = ThreadOffload(1)
        self._offload = offload
        self._writing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._expiry_timer: asyncio.TimerHandle | None = None
        # Set and replaced with each change, and when the store ends.
        self._changed = asyncio.Event()
        # Why the store has ended.
        self._ended = ""
        self._closed = False

    async def get(self, key: str) -> StoredValue | None:
        await self._expire_leases()
        return self._values.get(key)

    async def snapshot(self, prefix: str) -> Snapshot:
        await self._expire_leases()
        keys = sorted(key for key in self._values if key.startswith(prefix))
        return Snapshot(
            revision=self._history.revision, values={key: self._values[key] for key in keys}
        )

    async def transact(
        self,
        *,
        guards: Sequence[Guard] = (),
        puts: Mapping[str, bytes] | None = None,
        deletes: Sequence[str] = (),
        lease: int | None = None,
    ) -> int:
        puts = checked_puts(puts, deletes)

        async def write() -> int:
            for guard in guards:
                self._check_guard(guard)
            if lease is not None and lease not in self._leases:
                raise LeaseExpired(f"there is no lease {lease}")
            present = [key for key in dict.fromkeys(deletes) if key in self._values]
            if puts or present:
                await self._write(puts=puts, deletes=present, lease=lease)
            return self._history.revision

        return await self._in_turn(write)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        revision = after_revision
        while True:
            self._check_open()
            if revision >= self._history.revision:
                await self._changed.wait()
                continue
            revision += 1
            for change in self._history.at(revision):
                if change.key.startswith(prefix):
                    yield change

    async def grant_lease(self, ttl_ms: int) -> int:
        assert ttl_ms > 0

        async def grant() -> int:
            lease = self._leases.last + 1
            await self._store(lambda: self._file.write_lease(lease))
            self._leases.grant(lease, ttl_ms)
            self._set_expiry_timer()
            return lease

        return await self._in_turn(grant)

    async def keep_alive(self, lease: int) -> bool:
        await self._expire_leases()
        if lease not in self._leases:
            return False
        self._leases.renew(lease)
        return True

    async def revoke_lease(self, lease: int) -> None:
        await self._in_turn(lambda: self._end_lease(lease))

    async def close(self) -> None:
        """Close after pending writes. Watches and later calls raise StoreUnavailable."""
        await self._run_uncancelled(self._close)
        if self._own_threads is not None:
            self._own_threads.close()
            self._own_threads = None

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _in_turn(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one step after all earlier ones."""

        async def turn() -> T:
            async with self._writing:
                self._check_open()
                for lease in self._leases.due():
                    await self._end_lease(lease)
                return await step()

        return await self._run_uncancelled(turn)

    async def _run_uncancelled(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Complete it even if the caller is cancelled.

        A write in the other thread cannot be cancelled, so its outcome must be applied.
        """
        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _write(
        self, *, puts: Mapping[str, bytes], deletes: Iterable[str], lease: int | None = None
    ) -> None:
        revision = self._history.revision + 1
        await self._store(
            lambda: self._file.write(revision=revision, puts=puts, deletes=deletes, lease=lease)
        )
        for key in deletes:
            del self._values[key]
            self._leases.attach(key, None)
        for key, value in puts.items():
            self._values[key] = StoredValue(value=value, revision=revision)
            self._leases.attach(key, lease)
        self._history.add(
            [
                *(KeyChanged(key=key, value=None, revision=revision) for key in deletes),
                *(
                    KeyChanged(key=key, value=value, revision=revision)
                    for key, value in puts.items()
                ),
            ]
        )
        self._wake_watchers()

    async def _store(self, work: Callable[[], None]) -> None:
        """Write to the file on another thread.

        If the disk is full, the write is certainly rolled back. After any other error it may be in the file or not, and
        a retry proves nothing: the store ends, and the next start reads the truth.
        """
        try:
            await self._offload.run(work)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
                self._end(f"an earlier write failed: {error}")
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except BaseException:
            self._end("a write was interrupted")
            raise

    def _check_guard(self, guard: Guard) -> None:
        stored = self._values.get(guard.key)
        revision = stored.revision if stored else 0
        if revision != guard.revision:
            raise GuardFailed(f"{guard.key!r} is at revision {revision}, expected {guard.revision}")

    # -- leases ------------------------------------------------------------------------------------------------------

    async def _end_lease(self, lease: int) -> None:
        keys = self._leases.keys_of(lease)
        if keys:
            await self._write(puts={}, deletes=keys)
        self._leases.end(lease)

    async def _expire_leases(self) -> None:
        """Delete keys of expired leases before they are read, even if the timer is late."""
        self._check_open()
        if self._leases.due():
            await self._in_turn(_nothing)

    def _set_expiry_timer(self) -> None:
        """Wake up at the next expiry, for watchers. If the lease was renewed, nothing happens."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        in_ms = self._leases.next_due_in_ms()
        if in_ms is not None and not self._ended:
            loop = asyncio.get_running_loop()
            # With a minimum delay: a lease that cannot be ended on a full disk is retried repeatedly.
            wait_ms = max(in_ms, EXPIRY_PAUSE_MS)
            self._expiry_timer = loop.call_later(wait_ms / 1000, self._on_expiry_timer)

    def _on_expiry_timer(self) -> None:
        async def expire() -> None:
            with suppress(StoreUnavailable):
                await self._expire_leases()
            self._set_expiry_timer()

        task = asyncio.create_task(expire())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    # -- closing -----------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        async with self._writing:
            if not self._closed:
                self._closed = True
                self._end("the store is closed")
                await self._offload.run(self._file.close)

    def _check_open(self) -> None:
        if self._ended:
            raise StoreUnavailable(f"{self._path}: {self._ended}")

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._wake_watchers()

    def _wake_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _nothing() -> None:
    pass
