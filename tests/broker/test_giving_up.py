"""A partition that is offline here, and those it is left to."""

import asyncio
from dataclasses import replace

import pytest

from broker.catalog_fake import FakeCatalog, Spawned
from broker.replica_bench import ME, THREE, TWO, Bench, brokers_of, image_of, play, turns
from respool.broker.giving_up import LOOK_EVERY_S, GivingUp
from respool.broker.partition import Partition
from respool.model.cluster import PartitionImage
from respool.model.errors import DiskFailed
from respool.ports.metadata_store import GuardFailed, StoreUnavailable


class World:
    def __init__(self, bench: Bench, image: PartitionImage) -> None:
        self.catalog = FakeCatalog(image)
        self.spawned = Spawned()
        self.giving_up = GivingUp(me=ME, catalog=self.catalog.as_catalog, spawn=self.spawned)
        self.rides = bench.partition()

    def fail(self) -> Partition:
        self.rides.go_offline(DiskFailed("gone"))
        self.giving_up.give_up(self.rides)
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


def test_who_has_the_only_copy_that_is_in_sync_keeps_its_place() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME))
        world.fail()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert world.catalog.writes == []

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
        assert world.catalog.writes == []
        world.catalog.show_brokers(brokers_of(ME, TWO))
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert world.catalog.written()[0].isr == (TWO,)

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
        assert [one.revision for one in first.guards] == [5]
        assert [one.revision for one in second.guards] == [7]

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
        await world.spawned.join()
        assert world.catalog.writes == []

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
