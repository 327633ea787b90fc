"""Who leads and who follows: roles begin and end as the image says, whatever happens on the way."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.catalog_fake import FakeCatalog, Spawned
from broker.replica_bench import (
    LAG_MS,
    ME,
    TWO,
    Bench,
    Told,
    batch_at,
    brokers_of,
    image_of,
    play,
    raising,
    turns,
)
from respool.broker.partitions.partition import Partition
from respool.broker.replication.roles import RETRY_DELAY_S, Roles
from respool.model.cluster import PartitionImage
from respool.model.errors import DiskFailed, DiskFull, HandlesExhausted
from respool.model.ids import TopicId


class World:
    def __init__(self, bench: Bench, image: PartitionImage) -> None:
        self.catalog = FakeCatalog(image)
        self.spawned = Spawned()
        self.fetched_for: list[Partition] = []
        self.changed: list[bool] = []
        self.roles = Roles(
            me=ME,
            catalog=self.catalog.as_catalog,
            offload=bench.offload,
            clock=bench.clock,
            lag_ms_max=LAG_MS,
            spawn=self.spawned,
            following=self,
        )
        self.roles.are_taken = True
        self.roles.on_changed = lambda one: self.changed.append(one.is_leading)
        self.rides = bench.partition()

    def add(self, partition: Partition) -> None:
        assert partition.follower is not None
        self.fetched_for.append(partition)

    def remove(self, partition: Partition) -> None:
        if partition in self.fetched_for:
            self.fetched_for.remove(partition)

    async def show(self, image: PartitionImage) -> None:
        self.catalog.show(image)
        self.roles.end_stale_role(self.rides)
        await self.roles.take_role(self.rides)


def test_a_follower_that_is_elected_enters_its_epoch_and_leads() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader=TWO))
        await world.roles.take_role(world.rides)
        assert world.fetched_for == [world.rides]
        await world.show(image_of(leader_epoch=2, revision=6))
        assert world.rides.is_leading
        # Durably, and though there is no record in it yet: TRAPS rule 5.
        assert world.rides.log.latest_epoch == 2
        assert world.fetched_for == []
        assert world.changed == [True]

    play(story)


def test_a_new_leader_keeps_the_high_watermark_it_had() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader=TWO))
        await world.roles.take_role(world.rides)
        assert world.rides.follower is not None
        world.rides.log.append_fetched(batch_at(0) + batch_at(1), now_ms=0)
        await world.show(image_of(leader_epoch=2, revision=6))
        leader = world.rides.leader
        assert leader is not None
        assert (world.rides.high_watermark, leader.is_end_known) == (0, False)

    play(story)


def test_a_leader_that_is_deposed_follows() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        await world.show(image_of(leader=TWO, leader_epoch=2, revision=6))
        assert world.rides.follower is not None
        assert world.fetched_for == [world.rides]
        assert world.changed == [True, False]

    play(story)


def test_who_is_deposed_while_its_epoch_is_entered_never_leads() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        bench.offload.hold()
        settling = asyncio.create_task(world.roles.take_role(world.rides))
        await turns()
        world.catalog.show(image_of(leader=TWO, leader_epoch=2, revision=6))
        world.roles.end_stale_role(world.rides)
        bench.offload.release()
        await settling
        assert not world.rides.is_leading
        await world.roles.take_role(world.rides)
        assert world.rides.follower is not None

    play(story)


def test_who_goes_while_its_epoch_is_entered_takes_no_role() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        bench.offload.hold()
        settling = asyncio.create_task(world.roles.take_role(world.rides))
        await turns()
        world.roles.forget(world.rides)
        world.rides.detach()
        bench.offload.release()
        await settling
        assert not world.rides.is_leading
        assert world.changed == []

    play(story)


def test_a_new_leader_hears_who_came_and_went_while_its_epoch_was_entered() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of(ME))
        world.catalog.show_brokers(brokers_of(ME))
        bench.offload.hold()
        settling = asyncio.create_task(world.roles.take_role(world.rides))
        await turns()
        world.catalog.show_brokers(brokers_of())
        world.roles.on_brokers([world.rides])
        bench.offload.release()
        await settling
        bench.hear(world.rides, TWO, 0)
        assert [one.joiners for one in bench.proposals] == [((TWO, 20),)]

    play(story)


def test_an_epoch_that_was_led_before_is_not_led_again() -> None:
    """TRAPS, KAFKA-7415: a broker that crashed may have lost what it wrote in that epoch."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(leader_epoch=3))
        world.rides.log.on_leader_epoch(image_of(leader_epoch=3).leader_epoch)
        await world.roles.take_role(world.rides)
        assert not world.rides.is_leading

    play(story)


def test_before_the_broker_is_registered_no_role_is_taken() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        world.roles.are_taken = False
        await world.roles.take_role(world.rides)
        assert not world.rides.is_leading

    play(story)


@pytest.mark.parametrize("error", [DiskFull("full"), HandlesExhausted("none left")])
def test_an_epoch_that_cannot_be_entered_now_is_tried_again_and_by_one_only(
    monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        with monkeypatch.context() as trouble:
            trouble.setattr(world.rides.log, "on_leader_epoch", raising(error))
            for _ in range(5):
                await world.roles.take_role(world.rides)
            await asyncio.sleep(10.5 * RETRY_DELAY_S)
            assert world.spawned.under_way == 1
            assert not world.rides.is_leading
            assert world.rides.is_online
        await asyncio.sleep(RETRY_DELAY_S)
        assert world.rides.is_leading
        assert world.spawned.under_way == 0

    play(story)


def test_a_log_that_fails_while_an_epoch_is_entered_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        monkeypatch.setattr(world.rides.log, "on_leader_epoch", raising(DiskFailed("gone")))
        await world.roles.take_role(world.rides)
        assert bench.offline == [world.rides]
        assert world.changed == []

    play(story)


def test_whoever_cares_hears_also_of_a_role_that_a_reading_of_the_store_ends() -> None:
    """A leader reads its key after a refused write, perhaps before the image has it: its coordinator must hear."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        world.roles.end_stale_role(world.rides, image_of(leader=TWO, leader_epoch=2, revision=6))
        assert not world.rides.is_leading
        assert world.changed == [True, False]
        await world.show(image_of(leader=TWO, leader_epoch=2, revision=6))
        assert world.rides.follower is not None
        assert world.changed == [True, False]

    play(story)


def test_a_partition_of_a_topic_that_was_made_anew_is_led_no_more() -> None:
    """Whoever leads the new one, and in which epoch: that says nothing about the old one."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        told = Told()
        assert world.rides.waiters.wait_for_commit(bench.append(world.rides), told)
        world.rides.topic_id = TopicId(UUID(int=77))
        await world.show(image_of())
        assert not world.rides.is_leading
        assert world.rides.follower is None
        assert world.changed == [True, False]
        assert told.error is not None

    play(story)


@pytest.mark.parametrize("last_epoch", [3, 4, 5])
def test_a_leader_goes_on_over_epochs_that_come_while_it_enters_the_first(last_epoch: int) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        told = Told()
        assert world.rides.waiters.wait_for_commit(bench.append(world.rides), told)
        bench.offload.hold()
        settling = []
        for epoch in range(2, last_epoch + 1):
            world.catalog.show(image_of(leader_epoch=epoch, revision=4 + epoch))
            world.roles.end_stale_role(world.rides)
            settling.append(asyncio.ensure_future(world.roles.take_role(world.rides)))
            await turns()
        assert not world.rides.is_leading
        bench.offload.release()
        await asyncio.gather(*settling)
        assert (world.rides.is_leading, world.rides.leader_epoch) == (True, last_epoch)
        assert world.rides.log.latest_epoch == last_epoch
        assert told.error is None
        assert world.changed == [True, False, True]

    play(story)


def test_a_leader_that_cannot_enter_its_next_epoch_sends_those_away_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        told = Told()
        assert world.rides.waiters.wait_for_commit(bench.append(world.rides), told)
        monkeypatch.setattr(world.rides.log, "on_leader_epoch", raising(DiskFull("full")))
        await world.show(image_of(leader_epoch=2, revision=6))
        assert not world.rides.is_leading
        assert told.error is not None

    play(story)


def test_a_leader_that_heard_of_its_next_epoch_before_the_image_waits_for_that() -> None:
    """Its key was read after a refused write; some other change lets all of the topic be settled meanwhile."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of())
        await world.roles.take_role(world.rides)
        told = Told()
        assert world.rides.waiters.wait_for_commit(bench.append(world.rides), told)
        world.roles.end_stale_role(world.rides, image_of(leader_epoch=2, revision=6))
        await world.roles.take_role(world.rides)
        assert world.rides.role.epoch_transition is not None
        assert told.error is None
        await world.show(image_of(leader_epoch=2, revision=6))
        assert (world.rides.is_leading, world.rides.leader_epoch) == (True, 2)
        assert told.error is None

    play(story)
