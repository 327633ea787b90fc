"""A fetcher with real followers behind it: it goes on whatever happens to one of them, and asks no more than needed."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.replica_bench import ME, TWO, Bench, batch_at, image_of, play
from respool.broker.partitions.partition import Partition
from respool.broker.replication.replica_fetcher import WAIT_FOR_COMMIT_MS, WAIT_MS, ReplicaFetcher
from respool.broker.replication.replica_requests import FetchReply, ReplicaRequests
from respool.broker.replication.replication_throttle import ReplicationThrottle
from respool.model.errors import DiskFailed
from respool.model.ids import LeaderEpoch, Offset
from respool.ports.peers import PeerUnreachable
from respool.replication.follower import BACKOFF_MS, Fetched, FetchFrom
from respool.sim.runtime.simulated_sources import NodeClock

OUT_OF_RANGE = 1


class Leader:
    """Has what the test gives it, by partition; waits as long as it is asked to where it has nothing."""

    def __init__(self) -> None:
        self.is_reachable = True
        self.answers: dict[Partition, list[tuple[bytes, dict[str, Any]]]] = {}
        self.leaves_out: set[Partition] = set()
        self.range: tuple[int, int] | Exception = (0, 0)
        self.high_watermark = 0
        self.asked: list[dict[Partition, FetchFrom]] = []
        self.waits: list[int] = []
        self.on_range_asked: Callable[[], None] = lambda: None

    async def fetch(
        self, asked: dict[Partition, FetchFrom], *, wait_ms: int, **_: Any
    ) -> list[FetchReply]:
        self.asked.append(dict(asked))
        self.waits.append(wait_ms)
        if not self.is_reachable:
            raise PeerUnreachable("it does not answer")
        if not any(self.answers.get(one) for one in asked):
            await asyncio.sleep(wait_ms / 1000)
        return [self._answer(one, asked[one]) for one in asked if one not in self.leaves_out]

    def _answer(self, partition: Partition, asked: FetchFrom) -> FetchReply:
        waiting = self.answers.get(partition)
        records, more = waiting.pop(0) if waiting else (b"", {})
        fields: dict[str, Any] = {"high_watermark": Offset(self.high_watermark), **more}
        fetched = Fetched(has_records=bool(records), log_start=Offset(0), **fields)
        return FetchReply(
            partition=partition, asked=asked, fetched=fetched, records=memoryview(records)
        )

    async def log_range(
        self, partition: Partition, leader_epoch: LeaderEpoch, **_: Any
    ) -> tuple[Offset, Offset]:
        assert partition.follower is not None
        assert leader_epoch == partition.follower.image.leader_epoch
        await asyncio.sleep(0.001)
        self.on_range_asked()
        if isinstance(self.range, Exception):
            raise self.range
        start, end = self.range
        return Offset(start), Offset(end)


# More than comes at once here.
FETCH_AHEAD_BYTES = 256 * 1024


class Throttle:
    """Everybody's, unless the test says otherwise."""

    def __init__(self) -> None:
        self.waits: dict[Partition, int | None] = {}
        self.copied: list[int] = []

    def wait_ms(self, partition: Partition) -> int | None:
        return self.waits.get(partition, 0)

    def on_copied(self, _: Partition, byte_count: int) -> None:
        self.copied.append(byte_count)


class World:
    def __init__(self, bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        self.bench = bench
        self.leader = Leader()
        self.throttle = Throttle()
        self.broker_epoch: int | None = 10
        self.fetcher = ReplicaFetcher(
            leader=TWO,
            requests=cast("ReplicaRequests", self.leader),
            work=bench.work,
            throttle=cast("ReplicationThrottle", self.throttle),
            clock=NodeClock(loop),
            fetch_ahead_bytes=FETCH_AHEAD_BYTES,
            broker_epoch=lambda: self.broker_epoch,
            spawn=loop.create_task,
        )
        self.running = loop.create_task(self.fetcher.run())

    def follower(self, number: int = 0, **config: Any) -> Partition:
        partition = self.bench.partition(number, **config)
        self.bench.follow(partition)
        self.fetcher.add(partition)
        return partition

    def give(self, partition: Partition, records: bytes = b"", **more: Any) -> None:
        self.leader.answers.setdefault(partition, []).append((records, more))

    async def pass_ms(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
        if self.running.done():
            self.running.result()


def test_a_follower_takes_what_its_leader_has_and_asks_for_more() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.follower()
        world.give(rides, batch_at(0))
        world.give(rides, batch_at(1))
        await world.pass_ms(WAIT_MS)
        assert rides.log.log_end == 2
        assert [one[rides].offset for one in world.leader.asked[:3]] == [0, 1, 2]
        assert world.throttle.copied[:2] == [len(batch_at(0))] * 2

    play(story)


def test_the_leader_keeps_requests_for_a_moment_only_while_a_commit_is_to_be_heard_of() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.follower()
        world.give(rides, batch_at(0))
        await world.pass_ms(WAIT_MS)
        assert world.leader.waits[0] == WAIT_MS
        # Twice as long each time.
        first = WAIT_FOR_COMMIT_MS
        assert world.leader.waits[1:5] == [first, 2 * first, 4 * first, 8 * first]
        world.leader.high_watermark = 1
        await world.pass_ms(WAIT_MS)
        assert rides.high_watermark == 1
        assert world.leader.waits[-1] == WAIT_MS

    play(story)


def test_a_leader_that_does_not_answer_is_asked_again_after_a_while_and_not_before() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.leader.is_reachable = False
        rides = world.follower()
        world.give(rides, batch_at(0))
        await world.pass_ms(10 * BACKOFF_MS)
        assert 5 <= len(world.leader.asked) <= 11
        world.leader.is_reachable = True
        await world.pass_ms(2 * BACKOFF_MS)
        assert rides.log.log_end == 1

    play(story)


def test_a_partition_that_a_reply_leaves_out_is_asked_for_again_after_a_while() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides, fares = world.follower(0), world.follower(1)
        world.leader.leaves_out.add(fares)
        await world.pass_ms(WAIT_MS + 10 * BACKOFF_MS)
        assert sum(fares in one for one in world.leader.asked) <= 12
        world.leader.leaves_out.clear()
        world.give(rides)
        world.give(fares, batch_at(0))
        await world.pass_ms(WAIT_MS)
        assert fares.log.log_end == 1

    play(story)


def test_before_the_broker_is_registered_nothing_is_asked() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.broker_epoch = None
        world.follower()
        await world.pass_ms(10 * BACKOFF_MS)
        assert world.leader.asked == []
        world.broker_epoch = 11
        await world.pass_ms(2 * BACKOFF_MS)
        assert world.leader.asked

    play(story)


def test_a_copy_that_waits_for_its_turn_is_not_asked_for() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.bench.partition()
        world.throttle.waits[rides] = None
        bench.follow(rides)
        world.fetcher.add(rides)
        await world.pass_ms(10 * BACKOFF_MS)
        assert world.leader.asked == []
        world.throttle.waits.clear()
        world.fetcher.wake()
        await world.pass_ms(1)
        assert len(world.leader.asked) == 1

    play(story)


def test_a_copy_that_is_too_fast_is_put_off_for_so_long() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.bench.partition()
        world.throttle.waits[rides] = 700
        bench.follow(rides)
        world.fetcher.add(rides)
        await world.pass_ms(1)
        world.throttle.waits.clear()
        await world.pass_ms(690)
        assert world.leader.asked == []
        await world.pass_ms(2 * BACKOFF_MS)
        assert world.leader.asked

    play(story)


# -- one of several --------------------------------------------------------------------------------------------------


def goes_offline(partition: Partition) -> None:
    partition.go_offline(DiskFailed("gone"))


def is_elected(partition: Partition) -> None:
    partition.role.on_image(ME, image_of(leader=ME, leader_epoch=2, revision=6))


def is_removed(partition: Partition) -> None:
    partition.detach()


@pytest.mark.parametrize("ends", [goes_offline, is_elected, is_removed])
def test_the_others_are_fetched_for_when_one_ends_that_waits_for_its_disk(
    ends: Callable[[Partition], None],
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides, fares = world.follower(0, respool_flush="always"), world.follower(1)
        await world.pass_ms(WAIT_MS)
        bench.offload.hold()
        world.give(rides, batch_at(0))
        await world.pass_ms(2 * WAIT_MS)
        assert rides.log.log_end == 1
        rounds = len(world.leader.asked)
        await world.pass_ms(5 * WAIT_MS)
        assert len(world.leader.asked) == rounds
        ends(rides)
        world.give(fares, batch_at(0))
        await world.pass_ms(WAIT_MS)
        assert fares.log.log_end == 1
        bench.offload.release()

    play(story)


@pytest.mark.parametrize("ends", [goes_offline, is_elected, is_removed])
def test_a_follower_that_ends_while_its_leaders_range_is_asked_for_costs_nobody_else(
    ends: Callable[[Partition], None],
) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides, fares = world.follower(0), world.follower(1)
        world.leader.range = (50, 60)
        world.leader.on_range_asked = lambda: ends(rides)
        world.give(rides, error=OUT_OF_RANGE)
        world.give(fares)
        await world.pass_ms(WAIT_MS)
        world.give(fares, batch_at(0))
        await world.pass_ms(2 * WAIT_MS)
        assert fares.log.log_end == 1

    play(story)


def test_a_follower_out_of_range_starts_where_its_leader_does() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.follower()
        world.leader.range = (50, 60)
        world.give(rides, error=OUT_OF_RANGE)
        await world.pass_ms(WAIT_MS)
        assert (rides.log.log_start, rides.log.log_end) == (50, 50)
        world.give(rides, batch_at(50))
        await world.pass_ms(WAIT_MS)
        assert rides.log.log_end == 51

    play(story)


def test_a_range_that_the_leader_does_not_tell_is_asked_for_again() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.follower()
        world.leader.range = PeerUnreachable("it does not answer")
        for _ in range(2):
            world.give(rides, error=OUT_OF_RANGE)
        await world.pass_ms(BACKOFF_MS // 2)
        assert len(world.leader.asked) == 1
        world.leader.range = (50, 60)
        await world.pass_ms(2 * BACKOFF_MS)
        assert rides.log.log_start == 50

    play(story)


def test_a_reply_of_the_leaders_last_epoch_is_dropped_and_asked_for_anew() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides = world.follower()
        await world.pass_ms(1)
        world.give(rides, batch_at(0))
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        await world.pass_ms(WAIT_MS)
        first, second = (one[rides] for one in world.leader.asked[:2])
        assert (first.leader_epoch, second.leader_epoch) == (1, 2)
        assert rides.log.log_end == 0

    play(story)


def test_one_that_was_removed_is_not_asked_for_any_more() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        rides, fares = world.follower(0), world.follower(1)
        await world.pass_ms(WAIT_MS)
        world.fetcher.remove(rides)
        rounds = len(world.leader.asked)
        await world.pass_ms(5 * WAIT_MS)
        assert all(rides not in one for one in world.leader.asked[rounds + 1 :])
        assert all(fares in one for one in world.leader.asked)

    play(story)
