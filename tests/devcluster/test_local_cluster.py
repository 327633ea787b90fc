"""A cluster on this machine, as far as it is seen without its brokers."""

import asyncio
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from respool.devcluster import etcd_server
from respool.devcluster.cluster_plan import ClusterPlan, plan_cluster
from respool.devcluster.local_cluster import ETCD_STARTS_MAX, ClusterEvents, LocalCluster
from respool.model.operator_errors import OperatorError


class NoBrokers(LocalCluster):
    """Starts etcd only."""

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan, cast("ClusterEvents", None), starts_etcd=True)
        self.addresses: list[str] = []

    def _start_etcd(self, *, before: str = "") -> None:
        super()._start_etcd(before=before)
        assert self._etcd is not None
        self.addresses.append(self._etcd.address)

    async def _start_all(self) -> None:
        store = await self._connect()
        await store.close()


async def start(cluster: NoBrokers) -> None:
    try:
        await cluster._start()
    finally:
        if cluster._etcd is not None:
            cluster._etcd.kill()
            assert await cluster._etcd.wait_for_end(60)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another process has, and on which it does not listen yet."""
    with socket.socket() as other:
        other.bind((etcd_server.HOST, 0))
        yield other.getsockname()[1]


@pytest.fixture
def plan(tmp_path: Path) -> ClusterPlan:
    return plan_cluster(broker_count=1, folder=tmp_path, listen="127.0.0.1:0", etcd=None, given={})


def test_an_etcd_whose_port_was_taken_before_it_listened_is_started_on_another(
    plan: ClusterPlan, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cluster up` ended with "address already in use": the port was free when it was chosen."""
    free_ports = etcd_server.free_ports
    chosen = iter([taken])
    monkeypatch.setattr(
        etcd_server, "free_ports", lambda count: [*chosen, *free_ports(count)][:count]
    )
    cluster = NoBrokers(plan)
    asyncio.run(start(cluster))
    first, last = cluster.addresses
    assert first == f"{etcd_server.HOST}:{taken}"
    assert last != first
    assert tomllib.loads(plan.file.read_text())["etcd"] == last


def test_an_etcd_that_never_gets_a_port_is_reported(
    plan: ClusterPlan, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_server, "free_ports", lambda _: [taken, taken])
    cluster = NoBrokers(plan)
    with pytest.raises(OperatorError, match=r"etcd did not start.*address already in use"):
        asyncio.run(start(cluster))
    assert len(cluster.addresses) == ETCD_STARTS_MAX
