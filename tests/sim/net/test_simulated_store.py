"""The simulated store keeps the contract of real ones, and its troubles are those that a client must expect."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from drivers.store_contract import Stage, StoreContract, take
from respool.ports.metadata_store import CompactedRevision, MetadataStore, StoreUnavailable
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock
from support.sim_clock import SimClock


class TestContract(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncIterator[Stage]:
        clock = SimClock()
        store = SimStore(clock=clock)
        client = store.client()

        async def let_pass(ms: int) -> None:
            clock.advance(ms)

        self.compact = store.compact
        yield Stage(store=client, let_pass=let_pass)
        await client.close()

    async def forget_before(self, store: MetadataStore, revision: int) -> None:
        self.compact()


def test_a_lost_answer_leaves_the_transaction_done_and_its_caller_in_doubt() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        client = store.client()
        client.conditions.lost_answer_odds = 1.0
        with pytest.raises(StoreUnavailable):
            await client.transact(puts={"/a": b"1"})
        assert store.get("/a") is not None
        assert loop.time() * 1000 == client.conditions.timeout_ms

    loop.run(story)


def test_a_write_that_a_screen_prevents_does_not_happen() -> None:
    store = SimStore(clock=SimClock())

    store.transact((), {"/b": b"1"}, (), None)

    def screen(puts: Mapping[str, bytes]) -> None:
        if "/a" in puts:
            raise StoreUnavailable("not now")

    store.screens.append(screen)
    with pytest.raises(StoreUnavailable):
        store.transact((), {"/a": b"1", "/b": b"2"}, (), None)
    assert store.get("/a") is None
    assert store.snapshot("/").values["/b"].value == b"1"
    store.transact((), {"/b": b"3"}, (), None)
    assert store.snapshot("/").values["/b"].value == b"3"


def test_a_lost_call_changes_nothing() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        client = store.client()
        client.conditions.lost_call_odds = 1.0
        with pytest.raises(StoreUnavailable):
            await client.transact(puts={"/a": b"1"})
        assert store.get("/a") is None

    loop.run(story)


def test_a_cut_concerns_one_client() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        near, far = store.client(), store.client()
        far.conditions.is_disconnected = True
        revision = await near.transact(puts={"/a": b"1"})
        with pytest.raises(StoreUnavailable):
            await far.get("/a")
        watch = far.watch("", after_revision=revision - 1)
        with pytest.raises(StoreUnavailable):
            await anext(watch)
        far.conditions.is_disconnected = False
        assert await far.get("/a") == await near.get("/a")

    loop.run(story)


def test_a_watch_lags_and_keeps_the_order() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        writer, reader = store.client(), store.client(Random(3))
        reader.conditions.watch_lag_ms_max = 1_000
        waiting = asyncio.ensure_future(take(reader.watch("", after_revision=store.revision), 5))
        for number in range(5):
            await writer.transact(puts={"/n": b"%d" % number})
        assert not waiting.done()
        seen = await waiting
        assert [one.value for one in seen] == [b"0", b"1", b"2", b"3", b"4"]
        assert loop.time() > 0.1

    loop.run(story)


def test_a_lease_expires_on_simulated_time_and_watchers_hear_of_it() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        client = store.client()
        lease = await client.grant_lease(10_000)
        revision = await client.transact(puts={"/brokers/1": b"me"}, lease=lease)
        (gone,) = await take(client.watch("", after_revision=revision), 1)
        assert gone.value is None
        assert 10.0 <= loop.time() < 10.1

    loop.run(story)


def test_a_compacted_watch_says_so() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        client = store.client()
        revision = await client.transact(puts={"/a": b"1"})
        await client.transact(puts={"/a": b"2"})
        store.compact()
        with pytest.raises(CompactedRevision):
            await anext(client.watch("", after_revision=revision - 1))

    loop.run(story)
