"""A partition's role: what its machine decides is carried out, and ends when the role does."""

import asyncio
from dataclasses import replace

import pytest

from broker.replica_bench import (
    LAG_MS,
    ME,
    THREE,
    TWO,
    Bench,
    Told,
    brokers_of,
    image_of,
    play,
    turns,
)
from respool.broker.partitions.commit_waiters import FetchWaiter, when_committed
from respool.broker.partitions.watermarks import ReadTo
from respool.model.cluster import PartitionImage
from respool.model.errors import DiskFailed, NotEnoughReplicas, NotLeader, StorageFailed
from respool.model.ids import LeaderEpoch, Offset


def test_a_record_is_committed_when_every_replica_in_sync_has_it() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        told = Told()
        end = bench.append(rides)
        assert rides.waiters.wait_for_commit(end, told)
        bench.hear(rides, TWO, 1)
        assert (rides.high_watermark, told.done) == (0, 0)
        bench.hear(rides, THREE, 1)
        assert (rides.high_watermark, told.done) == (1, 1)

    play(story)


def test_a_leader_that_is_deposed_fails_all_who_wait() -> None:
    """TRAPS rule 23: acks=all, acks=1, the disk, a deletion, and fetches."""

    async def story(bench: Bench) -> None:
        rides = bench.partition(respool_flush="always")
        bench.offload.hold()
        bench.lead(rides)
        end = bench.append(rides)
        for_commit, for_leader, for_disk, for_deletion = Told(), Told(), Told(), Told()
        fetch = FetchWaiter(bytes_wanted=1 << 20)
        assert rides.waiters.wait_for_commit(end, for_commit)
        assert rides.waiters.wait_for_leader(end, for_leader)
        assert rides.waiters.wait_for_disk(end, for_disk)
        assert rides.waiters.wait_for_deletion(Offset(0), for_deletion)
        rides.add_fetch_waiter(fetch)
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        assert not rides.is_leading
        for told in (for_commit, for_leader, for_disk, for_deletion):
            assert isinstance(told.error, NotLeader)
        assert fetch.ready.done()
        with pytest.raises(NotLeader):
            bench.append(rides)
        assert rides.log.log_end == 1

    play(story)


def test_a_leader_s_own_disk_is_all_that_acks_1_waits_for() -> None:
    async def story(bench: Bench) -> None:
        rides, told = bench.partition(respool_flush="always"), Told()
        bench.offload.hold()
        bench.lead(rides)
        end = bench.append(rides)
        assert not rides.waiters.is_durable_here(end)
        assert rides.waiters.wait_for_leader(end, told)
        # Followers may have it earlier, which says nothing about the leader.
        bench.hear(rides, TWO, 1)
        bench.hear(rides, THREE, 1)
        assert told.done == 0
        bench.offload.release()
        await turns()
        assert (told.done, rides.high_watermark) == (1, 1)
        assert rides.waiters.is_durable_here(end)
        assert not rides.waiters.wait_for_leader(end, told)

    play(story)


def test_what_is_synced_during_an_epoch_transition_is_told_in_the_next_epoch() -> None:
    async def story(bench: Bench) -> None:
        rides, told = bench.partition(respool_flush="always"), Told()
        bench.offload.hold()
        bench.lead(rides)
        assert rides.waiters.wait_for_leader(bench.append(rides), told)
        rides.role.on_image(ME, image_of(leader_epoch=2, revision=6))
        bench.offload.release()
        await turns()
        # It is not sure yet that this broker leads on.
        assert (told.done, told.error, rides.log.synced_end) == (0, None, 1)
        bench.lead(rides, image_of(leader_epoch=2, revision=6))
        assert (told.done, told.error) == (1, None)

    play(story)


def test_an_image_that_is_older_than_what_is_led_deposes_nobody() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides, image_of(leader_epoch=3, revision=9))
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=8))
        assert rides.is_leading
        assert rides.leader_epoch == 3

    play(story)


def test_a_follower_that_is_to_lead_ends_at_once() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.follow(rides)
        rides.role.on_image(ME, image_of(leader=ME, leader_epoch=2, revision=6))
        assert rides.follower is None
        assert not rides.is_leading
        with pytest.raises(NotLeader):
            rides.role.leading()

    play(story)


def test_a_leader_without_followers_hears_who_comes_and_takes_them_in_later() -> None:
    """Found by seed 1001393: who had come since this leader began never got into the ISR."""

    async def story(bench: Bench) -> None:
        rides = bench.partition()
        alone = replace(image_of(ME), replicas=(ME,))
        bench.lead(rides, alone, brokers=[ME])
        rides.role.on_brokers(brokers_of(ME, TWO))
        rides.role.on_image(ME, replace(alone, replicas=(ME, TWO), adding=(TWO,), revision=6))
        bench.hear(rides, TWO, 0)
        assert [one.image.isr for one in bench.proposals] == [(ME, TWO)]

    play(story)


def test_a_role_is_taken_only_where_there_is_none() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        follower = bench.follow(rides)
        with pytest.raises(AssertionError, match="follows"):
            bench.lead(rides)
        with pytest.raises(AssertionError, match="follows"):
            bench.follow(rides)
        assert rides.follower is follower

    play(story)


def test_a_fenced_broker_keeps_its_role_and_answers_nobody() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        waiting = asyncio.create_task(when_committed(rides.waiters, bench.append(rides)))
        await turns()
        rides.role.on_fenced()
        with pytest.raises(NotLeader):
            await waiting
        assert rides.is_leading

    play(story)


def test_a_follower_that_lags_is_to_leave_the_isr() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        bench.append(rides)
        bench.hear(rides, TWO, 1)
        bench.clock.advance(LAG_MS - 1)
        bench.hear(rides, TWO, 1)
        rides.role.on_tick(bench.clock.monotonic_ms())
        assert bench.proposals == []
        bench.clock.advance(2)
        rides.role.on_tick(bench.clock.monotonic_ms())
        assert [one.image.isr for one in bench.proposals] == [(ME, TWO)]
        # It counts until the store has it so.
        assert rides.high_watermark == 0
        rides.role.on_image(ME, image_of(ME, TWO, revision=6))
        assert rides.high_watermark == 1

    play(story)


def test_below_the_smallest_isr_nothing_is_committed_and_acks_all_is_refused() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        leader = bench.lead(rides, image_of(ME, TWO), min_isr=3)
        with pytest.raises(NotEnoughReplicas):
            leader.check_writable()
        bench.append(rides)
        bench.hear(rides, TWO, 1)
        assert rides.high_watermark == 0
        rides.role.on_settings(min_isr=2, lag_ms_max=LAG_MS)
        leader.check_writable()
        assert rides.high_watermark == 1

    play(story)


def test_a_follower_waits_for_what_is_not_committed_and_a_consumer_does_not_see_it() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        follower, consumer = FetchWaiter(bytes_wanted=1), FetchWaiter(bytes_wanted=1)
        rides.add_fetch_waiter(follower, ReadTo.END)
        rides.add_fetch_waiter(consumer, ReadTo.COMMITTED)
        bench.append(rides)
        assert follower.ready.done()
        assert not consumer.ready.done()
        bench.hear(rides, TWO, 1)
        bench.hear(rides, THREE, 1)
        assert consumer.ready.done()

    play(story)


# -- offline ---------------------------------------------------------------------------------------------------------


def test_a_leader_whose_partition_is_offline_commits_nothing() -> None:
    """Whatever it hears; and it must not fail by it, for then the whole broker would."""

    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        end = bench.append(rides)
        told = Told()
        assert rides.waiters.wait_for_commit(end, told)
        rides.go_offline(DiskFailed("gone"))
        assert isinstance(told.error, StorageFailed)
        bench.hear(rides, TWO, 1)
        bench.hear(rides, THREE, 1)
        rides.role.on_image(ME, image_of(ME, revision=6))
        rides.role.on_brokers(brokers_of(ME))
        rides.role.on_tick(10 * LAG_MS)
        assert rides.high_watermark == 0

    play(story)


def test_nobody_waits_for_anything_of_a_partition_that_is_offline() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        end = bench.append(rides)
        rides.go_offline(DiskFailed("gone"))
        for wait in (
            rides.waiters.wait_for_commit,
            rides.waiters.wait_for_disk,
            rides.waiters.wait_for_deletion,
        ):
            with pytest.raises(StorageFailed):
                wait(end, Told())

    play(story)


def test_a_leader_whose_partition_is_offline_takes_nobody_out_of_the_isr() -> None:
    """Its followers hear errors only, so they seem to lag; and they have what is lost here."""

    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        bench.append(rides)
        rides.go_offline(DiskFailed("gone"))
        bench.clock.advance(10 * LAG_MS)
        rides.role.on_tick(bench.clock.monotonic_ms())
        assert bench.proposals == []

    play(story)


def test_who_fetches_for_a_follower_hears_that_it_has_ended_or_is_offline() -> None:
    """It may be waiting for this one's disk, with all the others of the same leader."""

    async def story(bench: Bench) -> None:
        ended, offline, gone = (bench.partition(number) for number in range(3))
        woken = []
        for one in (ended, offline, gone):
            bench.follow(one)
            one.role.on_follower_ready = lambda one=one: woken.append(one)  # type: ignore[misc]
        ended.role.on_image(ME, image_of(leader=ME, leader_epoch=2, revision=6))
        offline.go_offline(DiskFailed("gone"))
        gone.detach()
        assert woken == [ended, offline, gone]

    play(story)


def test_who_leads_on_in_the_next_epoch_keeps_those_who_wait() -> None:
    async def story(bench: Bench) -> None:
        rides, told = bench.partition(), Told()
        bench.lead(rides)
        bench.append(rides)
        rides.waiters.wait_for_commit(Offset(1), told)
        rides.role.on_image(ME, image_of(leader_epoch=2, revision=6))
        epoch_transition = rides.role.epoch_transition
        assert epoch_transition is not None
        assert not rides.is_leading
        # And once more, before it was entered.
        rides.role.on_image(ME, image_of(leader_epoch=3, revision=7))
        bench.lead(rides, image_of(ME, leader_epoch=3, revision=7))
        assert epoch_transition.done()
        assert rides.role.epoch_transition is None
        await turns()
        assert (told.done, told.error) == (1, None)

    play(story)


@pytest.mark.parametrize(
    "image",
    [
        image_of(leader=TWO, leader_epoch=2, revision=6),
        # Somebody else may have led in between.
        image_of(leader=ME, leader_epoch=3, revision=6),
    ],
    ids=["another leads", "an epoch is missing"],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_who_does_not_lead_on_sends_those_away_who_wait(
    image: PartitionImage, goes_on: bool
) -> None:
    async def story(bench: Bench) -> None:
        rides, told = bench.partition(), Told()
        bench.lead(rides)
        bench.append(rides)
        rides.waiters.wait_for_commit(Offset(1), told)
        if goes_on:
            rides.role.on_image(ME, image_of(leader_epoch=2, revision=6))
            epoch_transition = rides.role.epoch_transition
            assert epoch_transition is not None
            rides.role.on_image(
                ME, replace(image, leader_epoch=LeaderEpoch(image.leader_epoch + 1))
            )
            assert epoch_transition.done()
        else:
            rides.role.on_image(ME, image)
        assert rides.role.epoch_transition is None
        assert isinstance(told.error, NotLeader)

    play(story)


def test_a_deletion_that_waited_for_a_replica_which_left_is_done_in_the_next_epoch() -> None:
    async def story(bench: Bench) -> None:
        rides, told = bench.partition(), Told()
        bench.lead(rides)
        assert rides.waiters.wait_for_deletion(Offset(0), told)
        alone = replace(image_of(ME, leader_epoch=2, revision=6), replicas=(ME,), isr=(ME,))
        rides.role.on_image(ME, alone)
        assert told.done == 0
        bench.lead(rides, alone)
        await turns()
        assert (told.done, told.error) == (1, None)

    play(story)
