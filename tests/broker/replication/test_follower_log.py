"""What a follower does to its log, and what it does when something else happened to the log meanwhile."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.replica_bench import (
    ME,
    TWO,
    Bench,
    batch_at,
    image_of,
    play,
    raising,
    turns,
)
from respool.broker.partitions.partition import Partition
from respool.broker.replication.follower_log import RETRY_DELAY_MS
from respool.broker.replication.replica_requests import FetchReply
from respool.log.partition_log import ReadSpec
from respool.model.errors import (
    DiskFailed,
    DiskFull,
    HandlesExhausted,
    NothingTruncated,
    StorageError,
)
from respool.model.ids import LeaderEpoch, Offset
from respool.replication.divergence import EndOfEpoch
from respool.replication.effects import AskLeaderRange, ResetLogTo, TruncateTo, WaitFor
from respool.replication.follower import Fetched

OUT_OF_RANGE = 1


def reply_to(
    partition: Partition,
    records: bytes = b"",
    *,
    error: int = 0,
    diverging: EndOfEpoch | None = None,
    high_watermark: int = 0,
    log_start: int = 0,
) -> FetchReply:
    """The answer to the follower's next fetch."""
    assert partition.follower is not None
    asked = partition.follower.next_fetch()
    assert asked is not None
    return FetchReply(
        partition=partition,
        asked=asked,
        fetched=Fetched(
            error=error,
            has_records=bool(records),
            diverging=diverging,
            high_watermark=Offset(high_watermark),
            log_start=Offset(log_start),
        ),
        records=memoryview(records),
    )


async def follower_with(bench: Bench, *batches: bytes, **config: Any) -> Partition:
    """A follower in epoch 1 that has taken these batches."""
    rides = bench.partition(**config)
    bench.follow(rides)
    for batch in batches:
        assert await bench.work.take(reply_to(rides, batch)) == []
        await turns()
    return rides


def diverging_at(epoch: int, end: int) -> EndOfEpoch:
    return EndOfEpoch(epoch=LeaderEpoch(epoch), end=Offset(end))


def test_what_the_leader_sent_is_appended_as_it_is() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench)
        sent = batch_at(0, b"a", b"b") + batch_at(2, b"c")
        assert await bench.work.take(reply_to(rides, sent, high_watermark=2)) == []
        log = rides.log
        read = log.read(ReadSpec(Offset(0), max_offset=log.log_end, bytes_max=1 << 20))
        assert bytes(read) == sent
        assert rides.high_watermark == 2

    play(story)


def test_a_follower_says_only_of_what_is_on_the_disk_that_it_has_it() -> None:
    """TRAPS rule 20."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, respool_flush="always")
        follower = rides.follower
        assert follower is not None
        bench.offload.hold()
        await bench.work.take(reply_to(rides, batch_at(0)))
        await turns()
        assert follower.awaits_disk
        fetch = follower.next_fetch()
        assert fetch is not None
        assert (fetch.offset, fetch.durable_end) == (1, 0)
        follower.on_lost(fetch)
        bench.offload.release()
        await turns()
        fetch = follower.next_fetch()
        assert fetch is not None
        assert (fetch.offset, fetch.durable_end) == (1, 1)

    play(story)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda _: batch_at(0),
        lambda data: data[:40],
    ],
    ids=["damaged", "here already", "cut off"],
)
def test_what_does_not_fit_is_not_taken_and_asked_for_again(
    damage: Callable[[bytes], bytes],
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        left = await bench.work.take(reply_to(rides, damage(batch_at(1))))
        assert left == [WaitFor(delay_ms=RETRY_DELAY_MS)]
        assert rides.is_online
        assert rides.log.log_end == 1
        await turns()
        assert await bench.work.take(reply_to(rides, batch_at(1))) == []
        assert rides.log.log_end == 2

    play(story)


def test_a_full_disk_is_waited_for() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        bench.disk.faults.capacity_bytes = 0
        left = await bench.work.take(reply_to(rides, batch_at(1)))
        assert left == [WaitFor(delay_ms=RETRY_DELAY_MS)]
        assert rides.is_online
        bench.disk.faults.heal()
        await turns()
        await bench.work.take(reply_to(rides, batch_at(1)))
        assert rides.log.log_end == 2

    play(story)


def test_a_log_that_cannot_be_written_takes_the_partition_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        monkeypatch.setattr(rides.log, "append_fetched", raising(DiskFailed("gone")))
        assert await bench.work.take(reply_to(rides, batch_at(1))) == []
        assert bench.offline == [rides]

    play(story)


def test_the_reply_of_an_earlier_epoch_changes_nothing() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        late = reply_to(rides, batch_at(1), high_watermark=2)
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        assert await bench.work.take(late) == []
        assert (rides.log.log_end, rides.high_watermark) == (1, 0)

    play(story)


def test_a_reply_that_comes_after_the_role_has_ended_changes_nothing() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        late = reply_to(rides, batch_at(1))
        rides.role.resign("as the test wants it")
        assert await bench.work.take(late) == []
        assert rides.log.log_end == 1

    play(story)


# -- cutting ---------------------------------------------------------------------------------------------------------


def test_what_the_leader_does_not_have_is_cut_off() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        assert await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1))) == []
        assert rides.log.log_end == 1
        assert await bench.work.take(reply_to(rides, batch_at(1, leader_epoch=2))) == []
        assert rides.log.latest_epoch == 2

    play(story)


def test_only_what_is_cut_off_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A line `TruncateTo(offset=2), the log ends at 2` alarmed where nothing was cut."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        with caplog.at_level(logging.INFO, logger="respool.broker.replication.follower_log"):
            await bench.work.carry_out(rides, [TruncateTo(offset=Offset(2))])
            assert caplog.messages == []
            await bench.work.carry_out(rides, [TruncateTo(offset=Offset(1))])
            await bench.work.carry_out(rides, [ResetLogTo(offset=Offset(50))])
        assert caplog.messages == [
            f"{rides.name}: truncating records that the leader does not have, from 1 to 2",
            f"{rides.name}: discarding the log up to 1, continuing at 50",
        ]

    play(story)


def test_the_high_watermark_goes_back_with_a_log_that_is_cut_off_before_it() -> None:
    """Only after an unclean election."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench)
        await bench.work.take(reply_to(rides, batch_at(0) + batch_at(1), high_watermark=2))
        assert rides.high_watermark == 2
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        assert (rides.log.log_end, rides.high_watermark) == (1, 1)
        assert rides.last_stable_offset == 1

    play(story)


def test_a_follower_that_was_away_for_too_long_starts_anew_where_the_leader_does() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0))
        (wish,) = await bench.work.take(reply_to(rides, error=OUT_OF_RANGE))
        assert isinstance(wish, AskLeaderRange)
        assert rides.follower is not None
        effects = rides.follower.on_leader_range(
            wish.leader_epoch, log_start=Offset(50), log_end=Offset(60)
        )
        assert await bench.work.carry_out(rides, effects) == []
        assert (rides.log.log_start, rides.log.log_end, rides.high_watermark) == (50, 50, 50)
        await bench.work.take(reply_to(rides, batch_at(50), log_start=50, high_watermark=51))
        assert (rides.log.log_end, rides.high_watermark) == (51, 51)

    play(story)


def test_a_follower_deletes_what_its_leader_has_deleted() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        await bench.work.take(reply_to(rides, high_watermark=2, log_start=1))
        assert rides.log.log_start == 1
        assert rides.follower is not None
        fetch = rides.follower.next_fetch()
        assert fetch is not None
        assert fetch.log_start == 1

    play(story)


def end_role(partition: Partition) -> None:
    partition.role.resign("as the test wants it")


def remove(partition: Partition) -> None:
    partition.detach()


def fail(partition: Partition) -> None:
    partition.go_offline(DiskFailed("gone"))


meanwhile = pytest.mark.parametrize("happens", [end_role, remove, fail])


@meanwhile
def test_a_log_is_not_cut_when_its_role_ends_before_its_turn(
    happens: Callable[[Partition], None],
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        log = rides.log
        async with rides.changing:
            cutting = asyncio.create_task(
                bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
            )
            await turns()
            happens(rides)
        assert await cutting == []
        assert log.log_end == 2

    play(story)


@meanwhile
def test_a_log_is_not_cut_when_its_role_ends_while_a_sync_is_waited_for(
    happens: Callable[[Partition], None],
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        log = rides.log
        bench.offload.hold()
        bench.flusher.request_sync(rides)
        await turns()
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        happens(rides)
        bench.offload.release()
        assert await cutting == []
        assert log.log_end == 2

    play(story)


def test_what_was_to_be_synced_is_synced_although_the_role_ends_before_the_log_is_cut() -> None:
    """Whoever waits for a sync to end has taken the next one back. As a leader it would commit nothing of that."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), respool_flush="always")
        bench.offload.hold()
        await bench.work.take(reply_to(rides, batch_at(1)))
        await turns()
        await bench.work.take(reply_to(rides, batch_at(2)))
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        end_role(rides)
        bench.offload.release()
        assert await cutting == []
        await asyncio.sleep(1)
        assert rides.log.synced_end == rides.log.log_end == 3

    play(story)


def test_what_waits_for_its_time_to_be_synced_is_synced_although_nothing_was_cut_off() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(
            bench, batch_at(0), respool_flush="interval", respool_flush_interval_ms=500
        )
        assert rides.log.synced_end == 0
        # The leader has as much of this epoch as there is here.
        await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        await asyncio.sleep(1)
        assert rides.log.synced_end == rides.log.log_end == 1

    play(story)


@meanwhile
def test_a_role_that_ends_while_the_log_is_cut_hears_nothing_of_it(
    happens: Callable[[Partition], None],
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench)
        await bench.work.take(reply_to(rides, batch_at(0) + batch_at(1), high_watermark=2))
        log = rides.log
        bench.offload.hold()
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        happens(rides)
        bench.offload.release()
        assert await cutting == []
        assert log.log_end == 1

    play(story)


def test_whoever_leads_after_the_log_was_cut_knows_no_more_committed_than_there_is() -> None:
    """
    1. An unclean election makes another broker lead that has less.   2. While the log is cut off to what that has, it
       dies, and this broker is to lead.
    """

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench)
        await bench.work.take(reply_to(rides, batch_at(0) + batch_at(1), high_watermark=2))
        bench.offload.hold()
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        end_role(rides)
        bench.offload.release()
        await cutting
        assert (rides.log.log_end, rides.high_watermark) == (1, 1)
        leader = bench.lead(rides, image_of(leader=ME, leader_epoch=3, revision=7))
        assert leader.high_watermark == 1

    play(story)


def test_a_log_that_cannot_be_cut_for_want_of_room_is_whole_and_cut_later() -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench)
        await bench.work.take(reply_to(rides, batch_at(0) + batch_at(1), high_watermark=2))
        await turns()
        bench.folder.write_checkpoints({rides.name: rides.log}, {rides.name: Offset(2)})
        rides.role.on_image(ME, image_of(leader=TWO, leader_epoch=2, revision=6))
        bench.disk.faults.capacity_bytes = bench.disk.used_bytes
        left = await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        assert left == [WaitFor(delay_ms=RETRY_DELAY_MS)]
        assert rides.is_online
        assert (rides.log.log_end, rides.high_watermark) == (2, 2)
        bench.disk.faults.heal()
        assert await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1))) == []
        assert (rides.log.log_end, rides.high_watermark) == (1, 1)

    play(story)


@meanwhile
def test_a_role_that_ends_while_the_log_cannot_be_cut_hears_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Partition], None]
) -> None:
    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))

        def cut(*_: object) -> None:
            happens(rides)
            raise NothingTruncated("no room")

        monkeypatch.setattr(bench.folder, "truncate_partition", cut)
        assert await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1))) == []

    play(story)


@pytest.mark.parametrize("error", [DiskFailed("a"), DiskFull("b"), HandlesExhausted("c")])
def test_a_log_that_may_be_half_cut_is_offline(
    monkeypatch: pytest.MonkeyPatch, error: StorageError
) -> None:
    """Also for want of a file handle: else it would be neither fetched for nor given up, for ever."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        monkeypatch.setattr(bench.folder, "truncate_partition", raising(error))
        assert await bench.work.take(reply_to(rides, diverging=diverging_at(1, 1))) == []
        assert bench.offline == [rides]
        # A full disk gets room again, and then only a log that nobody uses can be opened.
        assert rides.awaits_opening == (not isinstance(error, DiskFailed))

    play(story)


def test_a_broker_that_stops_waits_for_the_log_that_is_being_cut() -> None:
    """Its thread goes on; the log must not be closed meanwhile."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        bench.offload.hold()
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        cutting.cancel()
        await turns()
        assert not cutting.done()
        bench.offload.release()
        with pytest.raises(asyncio.CancelledError):
            await cutting
        assert rides.log.log_end == 1

    play(story)


def test_a_log_is_not_synced_while_it_is_cut_but_soon_after() -> None:
    """For one, its topic may be set to be synced always just then."""

    async def story(bench: Bench) -> None:
        rides = await follower_with(bench, batch_at(0), batch_at(1))
        bench.offload.hold()
        cutting = asyncio.create_task(
            bench.work.take(reply_to(rides, diverging=diverging_at(1, 1)))
        )
        await turns()
        assert bench.offload.held == 1
        bench.flusher.request_sync(rides)
        await turns()
        assert bench.offload.held == 1
        bench.offload.release()
        await cutting
        await asyncio.sleep(1)
        assert rides.log.synced_end == rides.log.log_end == 1

    play(story)
