"""A simulated operator that changes a running cluster: reassigns replicas, drains brokers, adds partitions, throttles
replication, and has internal topics compacted.

Some changes are requests to any broker; others are guarded writes to the metadata store, as the command line tools do
them. Refused changes are ignored.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from respool.cluster import broker_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.broker_config import BROKER_RULES
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, TopicPartition
from respool.model.internal_topics import INTERNAL_TOPICS
from respool.ports.metadata_store import GuardFailed
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.clients.sim_client import SimClient
from respool.sim.machine import Fault, Machine
from respool.sim.net.simulated_store import SimStore
from respool.wire.api_table import Api

# Guarded writes sometimes conflict with concurrent ones.
TRIES_MAX = 5
PARTITIONS_MAX = 4

Decide = Callable[[ClusterView], Sequence[GuardedWrite]]


class Operator:
    def __init__(self, *, store: SimStore, observer: ClusterObserver, rng: Random) -> None:
        # Sends its requests to brokers.
        self.client: SimClient | None = None
        self._store = store
        self._observer = observer
        self._rng = rng
        self.actions: Mapping[str, Fault] = {
            "reassignment": self._reassign,
            "reassignment cancelled": self._cancel,
            "preferred leaders": self._prefer,
            "broker drained": self._drain,
            "topic grown": self._grow,
            "copies throttled": self._throttle,
            "own topics compacted": self._compact,
        }

    async def finish(self) -> None:
        """End all drains and throttles."""
        for broker in sorted(self._observer.view().registry):
            await self._write(lambda view, one=broker: broker_requests.admit(view, one))  # type: ignore[misc]
        for name in sorted(self._observer.view().broker_overrides):
            await self._configure(name, {})
        if self.client is not None:
            await self.client.process.spawn(self.client.close())

    async def add_replicas(self, broker: BrokerId) -> None:
        """Add a second replica to partitions that only this broker holds, so that it can be restarted."""
        others = sorted(self._observer.view().candidates().keys() - {broker})
        for name, image in sorted(self._observer.partitions().items()):
            if others and image.target == (broker,) and image.leader == broker:
                await self._move(name, [broker, others[0]])

    async def _reassign(self, _machine: Machine) -> None:
        """Reassign a partition to as many replicas as it has, on other brokers or in another order."""
        partitions = self._observer.partitions()
        if not partitions:
            return
        name = self._rng.choice(sorted(partitions))
        takers = sorted(self._observer.view().candidates())
        count = min(len(takers), len(partitions[name].target))
        if count:
            await self._move(name, self._rng.sample(takers, count))

    async def _cancel(self, machine: Machine) -> None:
        """Cancel a reassignment; if there is none, start one."""
        moving = sorted(
            name for name, one in self._observer.partitions().items() if one.adding or one.removing
        )
        if moving:
            await self._move(self._rng.choice(moving), None)
        else:
            await self._reassign(machine)

    async def _move(self, name: TopicPartition, replicas: Sequence[int] | None) -> None:
        partition = {"partition_index": name.partition, "replicas": replicas}
        await self._ask(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            0,
            timeout=5_000,
            topics=[{"name": name.topic, "partitions": [partition]}],
        )

    async def _prefer(self, _machine: Machine) -> None:
        await self._ask(Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout=5_000)

    async def _grow(self, _machine: Machine) -> None:
        """Add a partition that no client uses, as exercise for the brokers."""
        topics = self._observer.view().topics
        names = sorted(
            name
            for name, one in topics.items()
            if len(one.partitions) < PARTITIONS_MAX and not name.startswith("__")
        )
        if names:
            name = self._rng.choice(names)
            count = len(topics[name].partitions) + 1
            await self._ask(
                Api.CREATE_PARTITIONS,
                3,
                topics=[{"name": name, "count": count, "assignments": None}],
                timeout=5_000,
                validate_only=False,
            )

    async def _drain(self, machine: Machine) -> None:
        """Drain the broker for a while; replicas that have moved by then stay where they are."""
        await self._write(lambda view: broker_requests.drain(view, machine.id))
        await asyncio.sleep(self._rng.choice((1.0, 5.0, 20.0)) * self._rng.random())
        await self._write(lambda view: broker_requests.admit(view, machine.id))

    async def _throttle(self, _machine: Machine) -> None:
        """Throttle followers that catch up, or lift the throttle."""
        view = self._observer.view()
        names = sorted(name for name in view.topics if not name.startswith("__"))
        if names:
            await self._list_as_throttled(self._rng.choice(names))
        rate = str(self._rng.choice((1, 1_000, 100_000)))
        settings = {name: rate for name in BROKER_RULES if self._rng.random() < 0.5}
        await self._configure(self._rng.choice(("", *map(str, sorted(view.registry)))), settings)

    async def _list_as_throttled(self, topic: str) -> None:
        lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
        await self._alter_topic(topic, dict.fromkeys(lists, "*"))

    async def _compact(self, _machine: Machine) -> None:
        """Have internal topics compacted continually; with the default configs they are too small for that here."""
        settings = {
            "segment.bytes": str(self._rng.choice((1_024, 5_000))),
            "min.cleanable.dirty.ratio": self._rng.choice(("0.01", "0.5")),
        }
        for name in INTERNAL_TOPICS:
            if name in self._observer.view().topics:
                await self._alter_topic(name, settings)

    async def _alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        configs = [
            {"name": name, "config_operation": 0, "value": value}
            for name, value in settings.items()
        ]
        await self._ask(
            Api.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[{"resource_type": 2, "resource_name": topic, "configs": configs}],
            validate_only=False,
        )

    async def _configure(self, name: str, settings: Mapping[str, str]) -> None:
        await self._write(lambda view: broker_requests.configure(view, name, lambda _: settings))

    async def _ask(self, api: Api, version: int, **fields: Any) -> None:
        client = self.client
        if client is None:
            return
        try:
            await client.process.spawn(client.ask(client.any_broker(), api, version, **fields))
        except PeerUnreachable:
            return

    async def _write(self, decide: Decide) -> None:
        for _ in range(TRIES_MAX):
            try:
                for write in decide(self._observer.view()):
                    self._store.transact(write.guards, write.puts, write.deletes, None)
            except GuardFailed:
                await asyncio.sleep(0.05)
                continue
            except RequestError:
                # Not possible in the present state of the cluster.
                return
            return
