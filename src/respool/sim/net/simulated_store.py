"""A metadata store in memory, behind a network that delays, cuts and loses replies: `ports.metadata_store`.

    store = SimStore(clock=clock)
    client = store.client(rng)            # one for each broker process, with its own conditions
    client.conditions.is_disconnected = True           # the client is disconnected, and its watches lag

The store itself never fails halfway, as etcd does not for its clients; an outage disconnects all clients. A transaction
whose reply is lost may have been applied or not: its caller gets StoreUnavailable and must read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from respool.drivers.change_history import ChangeHistory
from respool.drivers.lease_table import LeaseTable
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
from respool.sim.runtime.simulated_sources import rng_of

T = TypeVar("T")


@dataclass(slots=True)
class StoreConditions:
    """How one client's connection to the store behaves at present. It may change during a run."""

    latency_ms_max: float = 0.0
    # How far a watch may lag behind, at most.
    watch_lag_ms_max: float = 0.0
    # Nothing gets through in either direction.
    is_disconnected: bool = False
    # The odds that a call is lost before it takes effect, and that its reply is lost afterwards.
    lost_call_odds: float = 0.0
    lost_answer_odds: float = 0.0
    # How long a client waits for a reply.
    timeout_ms: float = 3_000.0


class SimStore:
    """The state that all clients share."""

    def __init__(self, *, clock: Clock, history_changes_max: int = 10_000) -> None:
        self._values: dict[str, StoredValue] = {}
        self._leases = LeaseTable(clock, last=0)
        self._history = ChangeHistory(
            revision=1, changes_max=history_changes_max, bytes_max=64 * 1024 * 1024
        )
        self._watchers: dict[asyncio.Event, None] = {}
        # Called with each write when it happens.
        self.listeners: list[Callable[[Sequence[KeyChanged]], None]] = []
        # Called before each write; raising StoreUnavailable prevents it.
        self.screens: list[Callable[[Mapping[str, bytes]], None]] = []

    def client(self, rng: Random | None = None) -> "SimStoreClient":
        return SimStoreClient(self, rng or rng_of("store", 0))

    # -- operations, each atomic -------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        self.expire_leases()
        return self._history.revision

    def get(self, key: str) -> StoredValue | None:
        self.expire_leases()
        return self._values.get(key)

    def snapshot(self, prefix: str) -> Snapshot:
        self.expire_leases()
        keys = sorted(key for key in self._values if key.startswith(prefix))
        return Snapshot(
            revision=self._history.revision, values={key: self._values[key] for key in keys}
        )

    def transact(
        self,
        guards: Sequence[Guard],
        puts: Mapping[str, bytes],
        deletes: Sequence[str],
        lease: int | None,
    ) -> int:
        self.expire_leases()
        for guard in guards:
            stored = self._values.get(guard.key)
            revision = stored.revision if stored else 0
            if revision != guard.revision:
                raise GuardFailed(
                    f"{guard.key!r} is at revision {revision}, expected {guard.revision}"
                )
        if lease is not None and lease not in self._leases:
            raise LeaseExpired(f"there is no lease {lease}")
        present = [key for key in dict.fromkeys(deletes) if key in self._values]
        if puts or present:
            for screen in self.screens:
                screen(puts)
            self._write(puts, present, lease)
        return self._history.revision

    def grant_lease(self, ttl_ms: int) -> int:
        self.expire_leases()
        lease = self._leases.last + 1
        self._leases.grant(lease, ttl_ms)
        return lease

    def keep_alive(self, lease: int) -> bool:
        self.expire_leases()
        if lease not in self._leases:
            return False
        self._leases.renew(lease)
        return True

    def revoke_lease(self, lease: int) -> None:
        self.expire_leases()
        self._end_lease(lease)

    def changes_at(self, revision: int) -> Sequence[KeyChanged]:
        return self._history.at(revision)

    def expire_leases(self) -> None:
        """Delete the keys of expired leases before every operation."""
        for lease in self._leases.due():
            self._end_lease(lease)

    def next_expiry_in_ms(self) -> int | None:
        return self._leases.next_due_in_ms()

    def compact(self) -> None:
        """Forget all changes so far, as an etcd compaction does. The values stay."""
        self._history.forget_up_to(self._history.revision)

    def add_watcher(self, news: asyncio.Event) -> None:
        self._watchers[news] = None

    def remove_watcher(self, news: asyncio.Event) -> None:
        self._watchers.pop(news, None)

    def _end_lease(self, lease: int) -> None:
        keys = self._leases.keys_of(lease)
        if keys:
            self._write({}, keys, None)
        self._leases.end(lease)

    def _write(self, puts: Mapping[str, bytes], deletes: Sequence[str], lease: int | None) -> None:
        revision = self._history.revision + 1
        for key in deletes:
            del self._values[key]
            self._leases.attach(key, None)
        for key, value in puts.items():
            self._values[key] = StoredValue(value=value, revision=revision)
            self._leases.attach(key, lease)
        gone = [KeyChanged(key=key, value=None, revision=revision) for key in deletes]
        new = [KeyChanged(key=key, value=value, revision=revision) for key, value in puts.items()]
        self._history.add(gone + new)
        for listener in self.listeners:
            listener(gone + new)
        for news in self._watchers:
            news.set()


class SimStoreClient:
    """A `MetadataStore`: one broker's connection to the store."""

    def __init__(self, store: SimStore, rng: Random) -> None:
        self.conditions = StoreConditions()
        self._store = store
        self._rng = rng
        self._is_closed = False
        self._closing = asyncio.Event()

    async def get(self, key: str) -> StoredValue | None:
        return await self._call(lambda: self._store.get(key))

    async def snapshot(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._store.snapshot(prefix))

    async def transact(
        self,
        *,
        guards: Sequence[Guard] = (),
        puts: Mapping[str, bytes] | None = None,
        deletes: Sequence[str] = (),
        lease: int | None = None,
    ) -> int:
        wanted = checked_puts(puts, deletes)
        held, gone = tuple(guards), tuple(deletes)
        return await self._call(lambda: self._store.transact(held, wanted, gone, lease))

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        """Yield changes late, but without gaps or repetitions. A cut ends the watch after a while."""
        revision = after_revision
        news = asyncio.Event()
        self._store.add_watcher(news)
        try:
            while True:
                self._check_open()
                if revision >= self._store.revision:
                    news.clear()
                    await self._wait_for(news)
                    continue
                if lag_ms := self.conditions.watch_lag_ms_max:
                    await asyncio.sleep(lag_ms * self._rng.random() / 1000)
                if self.conditions.is_disconnected:
                    await self._time_out()
                self._check_open()
                revision += 1
                for change in self._store.changes_at(revision):
                    if change.key.startswith(prefix):
                        yield change
        finally:
            self._store.remove_watcher(news)

    async def grant_lease(self, ttl_ms: int) -> int:
        assert ttl_ms > 0
        return await self._call(lambda: self._store.grant_lease(ttl_ms))

    async def keep_alive(self, lease: int) -> bool:
        return await self._call(lambda: self._store.keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._call(lambda: self._store.revoke_lease(lease))

    async def close(self) -> None:
        self._is_closed = True
        self._closing.set()

    async def _call(self, step: Callable[[], T]) -> T:
        """Run `step` in the store, with the latency of both directions. It takes effect in an instant, or never."""
        self._check_open()
        conditions = self.conditions
        await self._travel()
        if conditions.is_disconnected or self._rng.random() < conditions.lost_call_odds:
            await self._time_out()
        self._check_open()
        result = step()
        await self._travel()
        if conditions.is_disconnected or self._rng.random() < conditions.lost_answer_odds:
            await self._time_out()
        return result

    async def _travel(self) -> None:
        if self.conditions.latency_ms_max:
            await asyncio.sleep(self.conditions.latency_ms_max * self._rng.random() / 1000)

    async def _time_out(self) -> None:
        await asyncio.sleep(self.conditions.timeout_ms / 1000)
        raise StoreUnavailable(f"no answer within {self.conditions.timeout_ms:.0f} ms")

    async def _wait_for(self, news: asyncio.Event) -> None:
        """Wait until there is a change, the client is closed, or a lease expires, which causes a change."""
        waits = [asyncio.ensure_future(one.wait()) for one in (news, self._closing)]
        in_ms = self._store.next_expiry_in_ms()
        timeout_s = None if in_ms is None else max(in_ms, 1) / 1000
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
