"""Group commit, with the thread's work held back so that its order can be told."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from respool.broker.partitions.flusher import Flusher
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import PartitionLog
from respool.model.errors import HandlesExhausted, RequestError, StorageFailed
from respool.model.ids import Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.records.build import NewRecord, build_batch
from respool.records.validate import check_produced
from respool.sim.disk.simulated_disk import SimDisk
from support.inline_offload import InlineOffload
from support.lone_leader import lead_alone

DAY_MS = 86_400_000


class Told:
    """A producer that waits for its commit."""

    def __init__(self) -> None:
        self.committed = 0
        self.error: RequestError | None = None

    def on_committed(self) -> None:
        self.committed += 1

    def on_failed(self, error: RequestError) -> None:
        self.error = error


class Waiting:
    """A producer that goes on in the very turn in which it is told."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self._done = done

    def on_committed(self) -> None:
        self._done.set_result(None)

    def on_failed(self, error: RequestError) -> None:
        self._done.set_exception(error)


class Bench:
    """A flusher over a simulated disk, and partitions on it."""

    def __init__(self, *, workers_max: int = 1) -> None:
        self.disk = SimDisk(Random(3))
        self.offload = InlineOffload(hold=True)
        self.flusher = Flusher(self.offload, workers_max=workers_max)

    def partition(self, number: int = 0, **config: str) -> Partition:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.disk.make_folder(f"rides-{number}")
        log = PartitionLog.open(
            disk=self.disk,
            folder=f"rides-{number}",
            config=TopicConfig.parse(settings),
            now_ms=0,
            log_start=Offset(0),
            recovery_point=Offset(0),
            clean=False,
            producer_expiration_ms=DAY_MS,
        )
        partition = Partition(
            name=TopicPartition("rides", number),
            topic_id=TopicId(UUID(int=1)),
            log=log,
            syncs=self.flusher,
        )
        return lead_alone(partition)


def append(partition: Partition) -> Told:
    """Append one record; the answer is told when it is committed."""
    batch = check_produced(build_batch([NewRecord(value=b"v", timestamp_ms=0)]), bytes_max=10_000)
    appended = partition.append(batch, now_ms=0)
    told = Told()
    if not partition.waiters.wait_for_commit(Offset(appended.last_offset + 1), told):
        told.on_committed()
    return told


async def turn() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_sync_serves_all_who_came_while_the_one_before_ran() -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition()
        first = append(rides)
        await turn()
        assert bench.offload.held == 1

        late = [append(rides) for _ in range(10)]
        bench.offload.release(1)
        await turn()
        assert first.committed == 1
        assert [one.committed for one in late] == [0] * 10
        assert rides.high_watermark == 1

        bench.offload.release(1)
        await turn()
        assert [one.committed for one in late] == [1] * 10
        assert rides.high_watermark == 11
        assert bench.offload.held == 0

    asyncio.run(story())


def test_nobody_reads_or_is_answered_before_the_sync() -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition()
        told = append(rides)
        await turn()
        assert (told.committed, rides.high_watermark, rides.log.log_end) == (0, 0, 1)

    asyncio.run(story())


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_a_weaker_promise_commits_at_once(flush: str) -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition(respool_flush=flush)
        assert append(rides).committed == 1
        assert rides.high_watermark == 1
        bench.flusher.stop_timers()

    asyncio.run(story())


def test_with_an_interval_the_log_is_synced_when_the_time_has_come() -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition(respool_flush="interval", respool_flush_interval_ms="1")
        append(rides)
        append(rides)
        assert rides.log.synced_end == 0
        while not bench.offload.held:
            await asyncio.sleep(0.001)
        bench.offload.release()
        await bench.flusher.drain()
        assert rides.log.synced_end == 2

    asyncio.run(story())


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_a_shorter_interval_acts_at_once_and_on_what_was_appended_before(flush: str) -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition(respool_flush=flush, respool_flush_interval_ms="3600000")
        append(rides)
        rides.update_config(TopicConfig.parse({"flush.ms": "1"}))
        async with asyncio.timeout(60):
            while not bench.offload.held:
                await asyncio.sleep(0.001)
        bench.offload.release()
        await bench.flusher.drain()
        assert rides.log.synced_end == 1

    asyncio.run(story())


def test_partitions_are_synced_together_and_shared_among_the_workers() -> None:
    async def story() -> None:
        bench = Bench(workers_max=2)
        partitions = [bench.partition(number) for number in range(4)]
        told = [append(partition) for partition in partitions]
        await turn()
        assert bench.offload.held == 2
        bench.offload.release()
        await bench.flusher.drain()
        assert [one.committed for one in told] == [1, 1, 1, 1]

    asyncio.run(story())


def test_a_failed_sync_takes_its_partition_offline_and_no_other() -> None:
    async def story() -> None:
        bench = Bench()
        bad, good = bench.partition(0), bench.partition(1)
        bench.disk.faults.fail("sync", path="rides-0/*.log")
        told = append(bad), append(good)
        bench.offload.release()
        await bench.flusher.drain()
        assert isinstance(told[0].error, StorageFailed)
        assert (told[0].committed, told[1].committed) == (0, 1)
        assert not bad.is_online
        assert good.is_online
        with pytest.raises(StorageFailed):
            append(bad)

    asyncio.run(story())


def test_a_full_disk_refuses_the_append_and_works_again_when_there_is_room() -> None:
    async def story() -> None:
        bench = Bench()
        bench.offload.release()
        rides = bench.partition()
        append(rides)
        await bench.flusher.drain()
        bench.disk.faults.capacity_bytes = 0
        with pytest.raises(StorageFailed, match="full"):
            append(rides)
        assert rides.is_online
        assert rides.log.log_end == 1
        bench.disk.faults.heal()
        told = append(rides)
        await bench.flusher.drain()
        assert told.committed == 1

    asyncio.run(story())


def test_a_full_disk_is_told_once_each_time_it_fills_up_however_many_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        bench = Bench()
        bench.offload.release()
        rides = bench.partition()
        append(rides)
        for _ in range(2):
            bench.disk.faults.capacity_bytes = 0
            for _ in range(5):
                with pytest.raises(StorageFailed, match="full"):
                    append(rides)
            bench.disk.faults.heal()
            append(rides)
        await bench.flusher.drain()

    asyncio.run(story())
    assert caplog.text.count("the disk is full") == 2


def test_an_append_without_a_file_handle_is_refused_and_works_again_later() -> None:
    async def story() -> None:
        bench = Bench()
        bench.offload.release()
        rides = bench.partition()
        bench.disk.faults.fail("map", times=None, error=HandlesExhausted)
        with pytest.raises(StorageFailed, match="simulated"):
            append(rides)
        assert rides.is_online
        assert rides.log.log_end == 0
        bench.disk.faults.heal()
        told = append(rides)
        await bench.flusher.drain()
        assert told.committed == 1

    asyncio.run(story())


def test_a_sync_without_a_file_handle_is_done_later_and_nobody_is_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("respool.broker.partitions.flusher.RETRY_MS", 0)

    async def story() -> None:
        bench = Bench()
        rides = bench.partition()
        told = append(rides)
        # As if the folder had to be synced and could not be opened.
        rides.log._parts.ledger.on_names_changed()
        bench.disk.faults.fail("sync_folder", error=HandlesExhausted)
        bench.offload.release()
        async with asyncio.timeout(60):
            while not told.committed:
                await asyncio.sleep(0)
        assert "simulated" in caplog.text
        assert (rides.is_online, rides.high_watermark, told.error) == (True, 1, None)

    asyncio.run(story())


def test_switching_to_the_strong_promise_never_moves_the_high_watermark_back() -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition(respool_flush="os")
        append(rides)
        assert rides.high_watermark == 1
        rides.update_config(TopicConfig())
        assert rides.high_watermark == 1
        bench.offload.release()
        await bench.flusher.drain()
        assert rides.log.synced_end == 1

    asyncio.run(story())


def test_a_sync_asked_for_in_the_turn_in_which_the_last_worker_ends_is_not_forgotten() -> None:
    # The worker had looked for the last time, but its task still counted as one at work.
    async def story() -> None:
        bench = Bench()
        bench.offload.release()
        rides = bench.partition()
        for _ in range(3):
            committed = asyncio.get_running_loop().create_future()

            batch = check_produced(
                build_batch([NewRecord(value=b"v", timestamp_ms=0)]), bytes_max=999
            )
            appended = rides.append(batch, now_ms=0)
            assert rides.waiters.wait_for_commit(
                Offset(appended.last_offset + 1), Waiting(committed)
            )
            await committed

    asyncio.run(asyncio.wait_for(story(), 5))


def test_who_fails_to_hear_of_a_sync_costs_the_others_nothing() -> None:
    class Broken:
        def on_committed(self) -> None:
            raise KeyError("as the test wants it")

        def on_failed(self, error: RequestError) -> None:
            raise error

    async def story() -> None:
        failures: list[Exception] = []
        bench = Bench()
        bench.flusher = Flusher(bench.offload, workers_max=1, on_failure=failures.append)
        bad, good = bench.partition(0), bench.partition(1)
        batch = check_produced(build_batch([NewRecord(value=b"v", timestamp_ms=0)]), bytes_max=999)
        bad.append(batch, now_ms=0)
        bad.waiters.wait_for_commit(Offset(1), Broken())
        told = append(good)
        bench.offload.release()
        await bench.flusher.drain()
        assert told.committed == 1
        assert [type(one) for one in failures] == [KeyError]
        again = append(good)
        await bench.flusher.drain()
        assert again.committed == 1

    asyncio.run(story())


def test_who_waits_no_more_for_a_partition_to_settle_costs_others_nothing() -> None:
    async def story() -> None:
        bench = Bench()
        rides, fares = bench.partition(0), bench.partition(1)
        told = [append(one) for one in (rides, fares)]
        await turn()
        leaving, staying = (
            asyncio.ensure_future(bench.flusher.drain_partition(rides)) for _ in range(2)
        )
        await turn()
        # As when a follower's fetcher is cancelled while its log is about to be cut.
        leaving.cancel()
        bench.offload.release()
        await bench.flusher.drain()
        await staying
        assert leaving.cancelled()
        assert [one.committed for one in told] == [1, 1]

    asyncio.run(story())


def test_a_partition_settles_when_its_sync_is_done() -> None:
    async def story() -> None:
        bench = Bench()
        rides = bench.partition()
        append(rides)
        await turn()
        settling = asyncio.ensure_future(bench.flusher.drain_partition(rides))
        await turn()
        assert not settling.done()
        bench.offload.release()
        await settling
        await bench.flusher.drain_partition(rides)

    asyncio.run(story())


def test_each_trip_to_the_disk_is_timed() -> None:
    async def story() -> None:
        bench = Bench()
        now_s = 10.0
        took: list[float] = []
        bench.flusher = Flusher(
            bench.offload, workers_max=1, stopwatch=lambda: now_s, on_synced=took.append
        )
        append(bench.partition())
        await turn()
        now_s += 0.25
        bench.offload.release()
        await turn()
        assert took == [0.25]

    asyncio.run(story())
