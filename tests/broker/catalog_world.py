"""Several brokers on one metadata store, as far as they change topics and partitions: no partition is behind them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.partition_changes import PartitionChanges
from respool.broker.metadata.topic_changes import NewTopic, TopicChanges
from respool.cluster import keys
from respool.drivers.sqlite_store import SqliteStore
from respool.model.cluster import BrokerEndpoint, RegistryEntry, TopicImage
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.sim.runtime.simulated_sources import SimRandomSource
from support.sim_clock import SimClock

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


class Node:
    """As much of a broker as changes topics. It hears of others only when it reads everything anew."""

    def __init__(self, store: SqliteStore, broker: BrokerId, **settings: Any) -> None:
        self.endpoint = BrokerEndpoint(id=broker, host=f"host-{broker}", port=9092)
        self.catalog = Catalog(
            store=store,
            settings=Settings.from_flat(broker_id=broker, **settings),
            rng=SimRandomSource(broker),
        )
        self.writes = TopicChanges(self.catalog)
        self.partition_writes = PartitionChanges(self.catalog)

    async def create(
        self, name: str = "rides", *, validate_only: bool = False, **more: Any
    ) -> TopicImage:
        wish = {"partition_count": 1, "replication_factor": -1, "overrides": {}, **more}
        return await self.writes.create(NewTopic(name=name, **wish), validate_only=validate_only)

    def topic(self, name: str = "rides") -> TopicImage:
        return self.catalog.topic(name)


class World:
    def __init__(self, path: Path) -> None:
        self.clock = SimClock()
        self.store = SqliteStore(str(path / "store"), clock=self.clock)

    async def start(self, *brokers: BrokerId, **settings: Any) -> list[Node]:
        nodes = [Node(self.store, one, **settings) for one in brokers]
        for node in nodes:
            registration = keys.BrokerRegistration(
                endpoint=node.endpoint, incarnation=UUID(int=node.endpoint.id)
            )
            await self.store.transact(
                puts={
                    keys.broker_key(node.endpoint.id): keys.encode_broker(registration),
                    keys.registry_key(node.endpoint.id): keys.encode_registry(RegistryEntry()),
                }
            )
        for node in nodes:
            await node.catalog.load(cluster_id="c", me=node.endpoint)
        return nodes

    async def die(self, broker: BrokerId) -> None:
        await self.store.transact(deletes=[keys.broker_key(broker)])

    async def partition_keys(self) -> list[str]:
        return list((await self.store.snapshot(keys.PARTITIONS)).values)


def play(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World(path)
        await asyncio.wait_for(story(world), 20)
        await world.store.close()

    asyncio.run(run())
