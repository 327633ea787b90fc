"""A partition that is offline here, and those it is left to."""

import asyncio
from dataclasses import replace

import pytest

from broker.catalog_fake import FakeCatalog, Spawned
from broker.replica_bench import ME, THREE, TWO, Bench, brokers_of, image_of, play, turns
from respool.broker.membership.offline_replicas import LOOK_EVERY_S, OfflineReplicas
from respool.broker.partitions.partition import Partition
from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.errors import DiskFailed, DiskFull
from respool.ports.metadata_store import Guard, GuardFailed, StoreUnavailable

REGISTERED = Guard(key=keys.broker_key(ME), revision=3)


class World:
    def __init__(self, bench: Bench, image: PartitionImage) -> None:
        self.catalog = FakeCatalog(image)
        self.spawned = Spawned()
        self.registration: Guard | None = REGISTERED
        self.offline_replicas = OfflineReplicas(
            me=ME,
            catalog=self.catalog.as_catalog,
            registration=lambda: self.registration,
            spawn=self.spawned,
        )
        self.rides = bench.partition()

    def fail(self) -> Partition:
        self.rides.go_offline(DiskFailed("gone"))
        self.offline_replicas.report(self.rides)
        return self.rides


def test_it_is_led_by_nobody_until_the_controller_elects_one_in_sync() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader_epoch=4))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        (written,) = world.catalog.written()
        assert (written.leader, written.leader_epoch) == (None, 5)
        assert set(written.isr) == {TWO, THREE}

    play(story)


def test_a_follower_leaves_the_isr_and_the_leader_stays() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader=TWO, leader_epoch=4))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        (written,) = world.catalog.written()
        assert (written.leader, written.leader_epoch) == (TWO, 4)
        assert set(written.isr) == {TWO, THREE}

    play(story)


def test_who_has_the_only_copy_says_that_it_is_offline() -> None:
    """It keeps its place in the ISR, for nobody else has everything. Once: what the store knows is not told again."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME, leader_epoch=4))
        world.fail()
        await asyncio.sleep(10 * LOOK_EVERY_S)
        (written,) = world.catalog.written()
        assert written == replace(image_of(ME, leader_epoch=4, revision=0), offline=(ME,))

    play(story)


def test_a_follower_that_is_not_in_sync_says_so_too() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(TWO, leader=TWO))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        (written,) = world.catalog.written()
        assert (written.leader, written.isr, written.offline) == (TWO, (TWO,), (ME,))

    play(story)


def test_a_trouble_that_passes_is_not_told() -> None:
    """Nobody is elected in its place then, by a topic that allows unclean elections."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME))
        world.rides.abandon_log(DiskFull("for a while"))
        world.offline_replicas.report(world.rides)
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert world.catalog.writes == []

    play(story)


def test_only_the_run_that_is_registered_says_what_is_offline() -> None:
    """Another one under the same number may have another disk."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME, revision=5))
        world.registration = None
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert world.catalog.writes == []
        world.registration = REGISTERED
        await asyncio.sleep(2 * LOOK_EVERY_S)
        (write,) = world.catalog.writes
        assert REGISTERED in write.guards
        assert 5 in [one.revision for one in write.guards]

    play(story)


@pytest.mark.parametrize("error", [GuardFailed("first"), StoreUnavailable("away")])
def test_a_log_that_is_in_order_again_is_taken_back_until_the_store_has_heard_of_it(
    error: Exception,
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, replace(image_of(ME, revision=5), offline=(TWO, ME)))
        world.catalog.failures = [error]
        world.offline_replicas.clear(world.rides)
        world.offline_replicas.clear(world.rides)
        await world.spawned.join()
        assert [one.offline for one in world.catalog.written()] == [(TWO,), (TWO,)]
        assert all(REGISTERED in one.guards for one in world.catalog.writes)

    play(story)


def test_a_log_that_fails_while_it_is_taken_back_stays_offline() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, replace(image_of(ME), offline=(ME,)))
        world.catalog.failures = [StoreUnavailable("away")]
        world.offline_replicas.clear(world.rides)
        await turns()
        world.rides.go_offline(DiskFailed("gone"))
        await world.spawned.join()
        assert len(world.catalog.writes) == 1

    play(story)


def test_it_is_left_to_one_that_is_eligible_where_nobody_else_is_in_sync() -> None:
    """1. Both are eligible, and the one that is offline is elected.   2. The other one has everything as well."""

    async def story(bench: Bench) -> None:
        world = World(bench, replace(image_of(ME, leader_epoch=4), elr=(TWO,)))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        (written,) = world.catalog.written()
        assert (written.leader, written.leader_epoch) == (None, 5)
        assert (written.isr, written.elr) == ((), (TWO,))

    play(story)


def test_an_heir_that_is_away_for_a_moment_is_waited_for() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME, TWO))
        world.catalog.show_brokers(brokers_of(ME, THREE))
        world.fail()
        await asyncio.sleep(10 * LOOK_EVERY_S)
        assert [one.isr for one in world.catalog.written()] == [(ME, TWO)]
        world.catalog.show_brokers(brokers_of(ME, TWO))
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert world.catalog.written()[1].isr == (TWO,)

    play(story)


@pytest.mark.parametrize("error", [GuardFailed("first"), StoreUnavailable("away")])
def test_a_write_that_fails_is_tried_again_on_what_is_true_then(error: Exception) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(revision=5))
        world.catalog.failures = [error]
        world.fail()
        await turns()
        world.catalog.show(image_of(ME, THREE, revision=7))
        await asyncio.sleep(2 * LOOK_EVERY_S)
        first, second = world.catalog.writes
        assert [one.revision for one in first.guards] == [5, REGISTERED.revision]
        assert [one.revision for one in second.guards] == [7, REGISTERED.revision]

    play(story)


def test_it_is_given_up_again_when_a_late_fetch_has_brought_it_back_into_the_isr() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader=TWO))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        world.catalog.show(image_of(leader=ME, leader_epoch=7, revision=120))
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert [one.leader for one in world.catalog.written()] == [TWO, None]

    play(story)


def test_a_partition_that_was_moved_away_is_looked_after_no_more() -> None:
    """It may be back, sound, under the same name and id."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME))
        world.fail()
        await turns()
        world.rides.detach()
        world.catalog.show(image_of(ME, revision=120))
        await world.spawned.join()
        assert len(world.catalog.writes) == 1

    play(story)


def test_a_topic_that_is_gone_is_nobodys() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        world.catalog.failures = [StoreUnavailable("away")]
        world.fail()
        await turns()
        world.catalog.delete_topic()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert len(world.catalog.writes) == 1

    play(story)
