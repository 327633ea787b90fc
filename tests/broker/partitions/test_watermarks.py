"""How far a partition may be read, and who is told when that is further."""

from dataclasses import replace

from broker.replica_bench import ME, THREE, TWO, Bench, batch_at, image_of, play
from respool.broker.partitions import watermarks
from respool.broker.partitions.commit_waiters import FetchWaiter
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.model.ids import Offset


def commit(bench: Bench, partition: Partition, end: int) -> None:
    for one in (TWO, THREE):
        bench.hear(partition, one, end)


def waiter(partition: Partition, read_to: ReadTo, bytes_wanted: int = 1) -> FetchWaiter:
    one = FetchWaiter(bytes_wanted=bytes_wanted)
    partition.add_fetch_waiter(one, read_to)
    return one


def test_a_fetch_waits_until_so_many_bytes_are_committed() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        size = len(batch_at(0))
        fetch = waiter(rides, ReadTo.COMMITTED, 2 * size)
        for _ in range(3):
            bench.append(rides)
        commit(bench, rides, 1)
        assert not fetch.ready.done()
        commit(bench, rides, 2)
        assert fetch.ready.done()

    play(story)


def test_who_waits_at_a_partition_that_was_restarted_is_told_of_what_was_there_before() -> None:
    async def story(bench: Bench) -> None:
        first = bench.partition()
        bench.lead(first)
        bench.append(first)
        bench.folder.close_log(first.name, first.log)
        rides = bench.partition()
        assert (rides.log.log_end, rides.high_watermark) == (1, 0)
        bench.lead(rides, image_of(leader_epoch=2))
        committed, stable = waiter(rides, ReadTo.COMMITTED), waiter(rides, ReadTo.STABLE)
        commit(bench, rides, 1)
        assert committed.ready.done()
        assert stable.ready.done()

    play(story)


def test_what_waits_for_followers_takes_no_more_memory_than_so_much() -> None:
    """Below the smallest ISR nothing is committed for hours perhaps, and acks=1 goes on."""

    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        marks = rides.watermarks
        for end in range(1, 3 * watermarks.ENDS_MAX):
            marks.on_appended(Offset(end), 100, awaits_followers=True)
        assert len(marks._ends) == watermarks.ENDS_MAX

    play(story)


def test_beyond_that_a_fetch_is_told_all_the_same() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides)
        for _ in range(6):
            bench.append(rides)
        ends = rides.watermarks._ends
        while len(ends) > 2:
            del ends[-2]
        fetch = waiter(rides, ReadTo.COMMITTED)
        commit(bench, rides, 1)
        assert fetch.ready.done()
        later = waiter(rides, ReadTo.COMMITTED)
        commit(bench, rides, 4)
        assert later.ready.done()
        all_of_it = waiter(rides, ReadTo.COMMITTED, 2 * len(batch_at(0)))
        commit(bench, rides, 6)
        assert all_of_it.ready.done()

    play(story)


def test_a_partition_that_gets_its_first_follower_goes_on_telling() -> None:
    async def story(bench: Bench) -> None:
        rides = bench.partition()
        bench.lead(rides, replace(image_of(ME, revision=5), replicas=(ME,)))
        bench.append(rides)
        assert rides.high_watermark == 1
        rides.role.on_image(ME, image_of(ME, TWO, revision=6))
        fetch = waiter(rides, ReadTo.COMMITTED)
        bench.append(rides)
        assert not fetch.ready.done()
        bench.hear(rides, TWO, 2)
        assert fetch.ready.done()

    play(story)
