"""Who is the controller, and what it does: several brokers on one metadata store, without any partition behind them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from respool.broker.membership.broker_lifecycle import BrokerLifecycle
from respool.broker.membership.controller_election import ControllerElection
from respool.broker.metadata.catalog import Catalog
from respool.cluster import keys
from respool.cluster.session import Session, SessionSettings
from respool.cluster.view import ClusterView
from respool.drivers.sqlite_store import SqliteStore
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.settings import Settings
from respool.ports.metadata_store import GuardFailed, LeaseExpired
from respool.sim.runtime.simulated_sources import SimRandomSource
from support.sim_clock import SimClock

TTL_MS = 1_000
TOPIC = TopicId(UUID(int=77))
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


async def _note_nothing(run: UUID) -> None:
    del run


class Node:
    """As much of a broker as has to do with the store. It sees what others wrote when it looks."""

    def __init__(self, world: "World", broker: BrokerId) -> None:
        self.id = broker
        endpoint = BrokerEndpoint(id=broker, host=f"host-{broker}", port=9092)
        rng = SimRandomSource(broker)
        self.catalog = Catalog(
            store=world.store, settings=Settings.from_flat(broker_id=broker), rng=rng
        )
        self._loading = self.catalog.load(cluster_id="c", me=endpoint)
        self.lifecycle = BrokerLifecycle(
            me=broker,
            session=Session(
                endpoint, settings=SessionSettings(lease_ttl_ms=TTL_MS), clean_run=None
            ),
            store=world.store,
            catalog=self.catalog,
            clock=world.clock,
            rng=rng,
            on_stop_acting=lambda: None,
            note_run=_note_nothing,
        )
        self.election = ControllerElection(
            me=broker,
            catalog=self.catalog,
            lifecycle=self.lifecycle,
            clock=world.clock,
            settings=ControllerSettings(dead_after_ms=60_000),
        )

    async def join(self) -> None:
        await self._loading
        await self.lifecycle.join()

    async def look(self) -> int:
        await self.catalog.read_view()
        return await self.election.look()


class World:
    def __init__(self, path: Path) -> None:
        self.clock = SimClock()
        self.store = SqliteStore(str(path / "store"), clock=self.clock)

    async def start(self, *brokers: BrokerId) -> list[Node]:
        nodes = [Node(self, broker) for broker in brokers]
        for node in nodes:
            await node.join()
        return nodes

    async def pass_time(self, ms: int, *alive: Node) -> None:
        """Time passes; only these renew their leases."""
        while ms > 0:
            step = min(ms, TTL_MS // 4)
            self.clock.advance(step)
            ms -= step
            for node in alive:
                await node.lifecycle._renew()

    async def partition(self) -> PartitionImage:
        stored = await self.store.get(keys.partition_key(TOPIC, 0))
        assert stored is not None
        return keys.decode_partition(stored.value)

    async def add_topic(self, image: PartitionImage) -> None:
        record = keys.TopicRecord(id=TOPIC, overrides={}, partition_count=1)
        await self.store.transact(
            puts={
                keys.topic_key("rides"): keys.encode_topic(record),
                keys.partition_key(TOPIC, 0): keys.encode_partition(image),
            }
        )


def play(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World(path)
        await asyncio.wait_for(story(world), 20)
        await world.store.close()

    asyncio.run(run())


def image(*replicas: BrokerId, leader: BrokerId | None) -> PartitionImage:
    return PartitionImage(
        replicas=replicas, isr=replicas, leader=leader, leader_epoch=LeaderEpoch(3)
    )


def test_the_first_who_looks_is_the_controller_and_all_see_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        for node in (nodes[1], nodes[0], nodes[1]):
            await node.look()
        assert [node.lifecycle.may_control() for node in nodes] == [False, True]
        assert [node.catalog.image.controller for node in nodes] == [TWO, TWO]

    play(tmp_path, story)


def test_when_the_controller_dies_another_takes_the_seat(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        dead, lives = await world.start(ONE, TWO)
        await dead.look()
        await world.pass_time(2 * TTL_MS, lives)
        await lives.look()
        assert lives.lifecycle.may_control()
        assert not dead.lifecycle.may_control()

    play(tmp_path, story)


def test_a_leader_that_dies_is_replaced_from_the_isr_and_comes_back_as_a_follower(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO, THREE)
        await world.add_topic(image(ONE, TWO, THREE, leader=ONE))
        await nodes[1].look()
        assert (await world.partition()).leader == ONE

        await world.pass_time(2 * TTL_MS, *nodes[1:])
        assert await nodes[1].look() == 1

        after = await world.partition()
        assert after.leader in (TWO, THREE)
        assert after.leader_epoch == 4
        assert ONE not in after.isr
        # It has converged.
        assert await nodes[1].look() == 0

        await Node(world, ONE).join()
        await nodes[1].look()
        assert (await world.partition()).leader == after.leader

    play(tmp_path, story)


def test_a_controller_that_was_replaced_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        old, new = await world.start(ONE, TWO)
        await world.add_topic(image(TWO, THREE, leader=THREE))
        monkeypatch.setattr(old.lifecycle, "may_act", lambda: True)
        monkeypatch.setattr(old.lifecycle, "may_control", lambda: True)
        await old.lifecycle.win_election()
        await world.pass_time(2 * TTL_MS, new)
        # It does not know, and sees that the leader is gone.
        with pytest.raises(GuardFailed):
            await old.look()
        assert (await world.partition()).leader == THREE

        assert await new.look() == 1
        assert (await world.partition()).leader == TWO

    play(tmp_path, story)


def test_what_is_left_of_a_creation_is_collected_once_it_was_there_for_long(tmp_path: Path) -> None:
    """Another broker may still be at it: the controller cannot know."""

    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        stray = keys.partition_key(TopicId(UUID(int=5)), 0)
        await world.store.transact(puts={stray: keys.encode_partition(image(ONE, leader=ONE))})
        assert await node.look() == 0
        await world.pass_time(59_000, node)
        assert await node.look() == 0
        assert await world.store.get(stray) is not None

        await world.pass_time(1_000, node)
        assert await node.look() == 1
        assert await world.store.get(stray) is None

    play(tmp_path, story)


def test_a_controller_that_loses_its_seat_while_it_reads_the_store_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, and its broker with it."""

    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        stray = keys.partition_key(TopicId(UUID(int=5)), 0)
        await world.store.transact(puts={stray: keys.encode_partition(image(ONE, leader=ONE))})
        assert await node.look() == 0
        await world.pass_time(60_000, node)
        read_view = node.catalog.read_view

        async def read_slowly() -> ClusterView:
            await world.store.revoke_lease(node.lifecycle._lease)
            await node.lifecycle._renew()
            return await read_view()

        monkeypatch.setattr(node.catalog, "read_view", read_slowly)
        with pytest.raises(LeaseExpired):
            await node.election.look()
        assert await world.store.get(stray) is not None

    play(tmp_path, story)


def test_partitions_are_not_collected_whose_topic_was_just_not_heard_of_yet(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        await node.look()
        await world.add_topic(image(ONE, leader=ONE))
        # The changes of one write come one by one; this one is all that came.
        stored = await world.store.get(keys.partition_key(TOPIC, 0))
        assert stored is not None
        node.catalog._feed.values[keys.partition_key(TOPIC, 0)] = stored
        assert await node.election.look() == 0
        await world.pass_time(60_000, node)

        assert await node.election.look() == 0
        assert (await world.partition()).leader == ONE

    play(tmp_path, story)


def test_who_does_not_know_whether_its_lease_holds_does_not_run_for_controller(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        world.clock.advance(TTL_MS - 1)
        assert await node.look() == 0
        assert node.catalog.controller_key is None

    play(tmp_path, story)


def test_it_looks_by_itself_when_something_has_changed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        node.catalog.on_changed = node.election.wake
        tasks = [
            asyncio.ensure_future(node.election.run()),
            asyncio.ensure_future(node.catalog.follow()),
        ]
        await world.add_topic(image(ONE, leader=None))
        while (await world.partition()).leader is None:
            await asyncio.sleep(0)
        assert (await world.partition()).leader == ONE
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(tmp_path, story)
