"""The SQLite store against a dict: any order of writes, leases, time, restarts and kills gives the same answers."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from respool.drivers.sqlite_store import SqliteStore
from respool.ports.metadata_store import (
    Guard,
    GuardFailed,
    KeyChanged,
    LeaseExpired,
    StoredValue,
)
from support.inline_offload import InlineOffload
from support.model_runs import run_machine
from support.sim_clock import SimClock

T = TypeVar("T")

LONG = os.environ.get("RESPOOL_FUZZ") == "long"

KEYS = st.sampled_from(["/a/1", "/a/2", "/b/1", "/b", "/c"])
VALUES = st.binary(max_size=8)


class StoreMachine(RuleBasedStateMachine):
    leases: Bundle[int] = Bundle("leases")

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = SimClock()
        self.store = self._open()
        self.values: dict[str, StoredValue] = {}
        self.revision = 0
        self.lease_of: dict[str, int] = {}
        self.due_at_ms: dict[int, int] = {}
        self.ttl_ms: dict[int, int] = {}
        # What a watch since the opening must have seen, and from which revision on.
        self.changes: list[KeyChanged] = []
        self.opened_at = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(
        puts=st.dictionaries(KEYS, VALUES, max_size=3),
        deletes=st.lists(KEYS, max_size=3),
        guarded=st.lists(KEYS, max_size=2),
        off_by=st.sampled_from([0, 0, 0, 1, -1]),
        lease=st.none() | leases,
    )
    def transact(
        self,
        puts: dict[str, bytes],
        deletes: list[str],
        guarded: list[str],
        off_by: int,
        lease: int | None,
    ) -> None:
        deletes = [key for key in deletes if key not in puts]
        self._expire()
        guards = [
            Guard(
                key=key, revision=(self.values[key].revision if key in self.values else 0) + off_by
            )
            for key in guarded
        ]
        write = self.store.transact(guards=guards, puts=puts, deletes=deletes, lease=lease)
        if guards and off_by:
            with pytest.raises(GuardFailed):
                self._run(write)
        elif lease is not None and lease not in self.due_at_ms:
            with pytest.raises(LeaseExpired):
                self._run(write)
        else:
            revision = self._run(write)
            self._change(puts, deletes, lease)
            assert revision == self.revision

    @rule(target=leases, ttl_ms=st.integers(1, 1_000))
    def grant(self, ttl_ms: int) -> int:
        self._expire()
        lease = self._run(self.store.grant_lease(ttl_ms))
        assert lease not in self.ttl_ms
        self.ttl_ms[lease] = ttl_ms
        self.due_at_ms[lease] = self.clock.monotonic_ms() + ttl_ms
        return lease

    @rule(lease=leases)
    def keep_alive(self, lease: int) -> None:
        self._expire()
        assert self._run(self.store.keep_alive(lease)) == (lease in self.due_at_ms)
        if lease in self.due_at_ms:
            self.due_at_ms[lease] = self.clock.monotonic_ms() + self.ttl_ms[lease]

    @rule(lease=leases)
    def revoke(self, lease: int) -> None:
        self._expire()
        self._run(self.store.revoke_lease(lease))
        self._end_lease(lease)

    @rule(ms=st.integers(0, 800))
    def let_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        self._expire()
        self._run(self.store.get("/settle"))
        if killed:
            # What is on the disk at this moment, without the store's farewell.
            left = Path(tempfile.mkdtemp())
            for name in os.listdir(self.folder):
                shutil.copy(self.folder / name, left / name)
            self._run(self.store.close())
            shutil.rmtree(self.folder)
            self.folder = left
        else:
            self._run(self.store.close())
        self.store = self._open()
        self._change({}, [key for key in self.lease_of if key in self.values], None)
        self.due_at_ms.clear()
        self.changes.clear()
        self.opened_at = self.revision

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        self._expire()
        snapshot = self._run(self.store.snapshot(""))
        assert (snapshot.revision, snapshot.values) == (self.revision, self.values)
        under = self._run(self.store.snapshot("/b"))
        assert set(under.values) == {key for key in self.values if key.startswith("/b")}

    @invariant()
    def a_watch_has_seen_every_change(self) -> None:
        async def watch() -> list[KeyChanged]:
            changes = self.store.watch("/a", after_revision=self.opened_at)
            async with asyncio.timeout(10):
                return [await anext(changes) for _ in range(len(expected))]

        expected = [change for change in self.changes if change.key.startswith("/a")]
        seen = self._run(watch())
        assert [change.revision for change in seen] == [change.revision for change in expected]
        assert set(seen) == set(expected)

    def teardown(self) -> None:
        self._run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    # -- the model ---------------------------------------------------------------------------------------------------

    def _change(self, puts: dict[str, bytes], deletes: list[str], lease: int | None) -> None:
        present = [key for key in dict.fromkeys(deletes) if key in self.values]
        if not puts and not present:
            return
        self.revision += 1
        for key in present:
            del self.values[key]
            self.lease_of.pop(key, None)
            self.changes.append(KeyChanged(key=key, value=None, revision=self.revision))
        for key, value in puts.items():
            self.values[key] = StoredValue(value=value, revision=self.revision)
            self.lease_of.pop(key, None)
            if lease is not None:
                self.lease_of[key] = lease
            self.changes.append(KeyChanged(key=key, value=value, revision=self.revision))

    def _expire(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for lease in sorted(self.due_at_ms, key=lambda lease: (self.due_at_ms[lease], lease)):
            if self.due_at_ms[lease] <= now_ms:
                self._end_lease(lease)

    def _end_lease(self, lease: int) -> None:
        self._change({}, [key for key, its in self.lease_of.items() if its == lease], None)
        self.due_at_ms.pop(lease, None)

    def _open(self) -> SqliteStore:
        return SqliteStore(
            str(self.folder / "metadata.sqlite"), clock=self.clock, offload=InlineOffload()
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


@pytest.mark.long
def test_the_store_answers_as_a_dict_would() -> None:
    run_machine(StoreMachine, examples=300 if LONG else 60, steps=50 if LONG else 25)
