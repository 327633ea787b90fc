from dataclasses import replace

import pytest

from replication.builders import EPOCH, ONE, THREE, TWO, image_of
from replication.sim_log import MemoryLog
from respool.model.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StorageFailed,
    UnknownLeaderEpoch,
)
from respool.model.ids import LeaderEpoch, Offset
from respool.replication.divergence import EndOfEpoch
from respool.replication.effects import (
    Append,
    AskLeaderRange,
    FollowerEffect,
    HighWatermarkMoved,
    LookUpLeader,
    RaiseLogStart,
    ResetLogTo,
    TruncateTo,
    WaitFor,
)
from respool.replication.follower import BACKOFF_MS, Fetched, FetchFrom, Follower

NEXT_EPOCH = LeaderEpoch(EPOCH + 1)
IMAGE = image_of(ONE, TWO, THREE)
NEXT_IMAGE = replace(IMAGE, leader=THREE, leader_epoch=NEXT_EPOCH, revision=11)


def log_of(*epochs: int, log_start: int = 0) -> MemoryLog:
    """A log with one record for each of these leader epochs, all of it durable."""
    log = MemoryLog()
    log.restart_at(Offset(log_start))
    log.append([(epoch, 0) for epoch in epochs])
    log.durable_end = log.log_end
    return log


def follower_of(log: MemoryLog, *, high_watermark: int = 0) -> Follower:
    return Follower(
        TWO,
        IMAGE,
        log_start=log.log_start,
        log_end=log.log_end,
        durable_end=log.durable_end,
        last_epoch=log.last_epoch,
        high_watermark=Offset(high_watermark),
        history=log,
    )


def asked_by(follower: Follower) -> FetchFrom:
    asked = follower.next_fetch()
    assert asked is not None
    return asked


def reply_to(follower: Follower, reply: Fetched) -> list[FollowerEffect]:
    return follower.on_fetched(asked_by(follower), reply)


def diverging(epoch: int, end: int, *, log_start: int = 0) -> Fetched:
    return Fetched(
        diverging=EndOfEpoch(epoch=LeaderEpoch(epoch), end=Offset(end)),
        high_watermark=Offset(0),
        log_start=Offset(log_start),
    )


def data(*, high_watermark: int = 0, log_start: int = 0) -> Fetched:
    return Fetched(
        has_records=True, high_watermark=Offset(high_watermark), log_start=Offset(log_start)
    )


def nothing(*, high_watermark: int = 0, log_start: int = 0) -> Fetched:
    return Fetched(high_watermark=Offset(high_watermark), log_start=Offset(log_start))


# -- asking


def test_a_fetch_says_where_the_log_ends_and_which_epoch_is_its_last() -> None:
    follower = follower_of(log_of(1, 1, 4, log_start=7))
    assert follower.next_fetch() == FetchFrom(
        leader=ONE,
        leader_epoch=EPOCH,
        offset=Offset(10),
        durable_end=Offset(10),
        last_fetched_epoch=LeaderEpoch(4),
        log_start=Offset(7),
    )


def test_an_empty_log_has_no_last_epoch() -> None:
    assert asked_by(follower_of(log_of())).last_fetched_epoch == -1


def test_one_fetch_is_under_way_at_a_time() -> None:
    follower = follower_of(log_of())
    asked = asked_by(follower)
    assert follower.next_fetch() is None
    follower.on_fetched(asked, nothing())
    assert follower.next_fetch() is not None


def test_nothing_is_asked_while_nobody_leads() -> None:
    follower = follower_of(log_of())
    follower.on_image(replace(NEXT_IMAGE, leader=None))
    assert follower.next_fetch() is None


def test_what_is_not_durable_is_not_reported() -> None:
    follower = follower_of(log_of(1))
    assert reply_to(follower, data()) == [Append()]
    assert follower.next_fetch() is None
    follower.on_appended(Offset(5), last_epoch=EPOCH)
    asked = asked_by(follower)
    # It goes on from its end, and says that not all before it is safe.
    assert (asked.offset, asked.durable_end) == (5, 1)
    follower.on_fetched(asked, nothing())
    follower.on_durable(Offset(4))
    asked = asked_by(follower)
    assert (asked.offset, asked.durable_end) == (5, 4)
    follower.on_fetched(asked, nothing())
    follower.on_durable(Offset(5))
    assert asked_by(follower).durable_end == 5


def test_in_a_new_epoch_all_there_is_gets_durable_before_anything_is_asked() -> None:
    """Else it would say less than it said before, and be taken for one that has lost something."""
    follower = follower_of(log_of(1))
    reply_to(follower, data())
    follower.on_appended(Offset(5), last_epoch=EPOCH)
    assert asked_by(follower).durable_end == 1
    follower.on_image(NEXT_IMAGE)
    assert follower.next_fetch() is None
    follower.on_durable(Offset(5))
    assert asked_by(follower).durable_end == 5


def test_what_is_cut_off_at_the_end_leaves_to_be_synced_what_was() -> None:
    follower = follower_of(log_of(1))
    reply_to(follower, data())
    follower.on_appended(Offset(5), last_epoch=EPOCH)
    assert reply_to(follower, diverging(2, 9)) == [TruncateTo(offset=Offset(5))]
    follower.on_truncated(
        log_start=Offset(0), log_end=Offset(5), durable_end=Offset(1), last_epoch=LeaderEpoch(1)
    )
    assert asked_by(follower).durable_end == 1


def test_a_follower_that_led_before_waits_until_its_own_records_are_durable() -> None:
    log = log_of(1, 1)
    log.durable_end = Offset(1)
    follower = follower_of(log)
    assert follower.next_fetch() is None
    follower.on_durable(Offset(2))
    assert follower.next_fetch() is not None


# -- replies


def test_after_an_append_the_last_epoch_is_that_of_the_last_record() -> None:
    follower = follower_of(log_of(1))
    reply_to(follower, data())
    follower.on_appended(Offset(3), last_epoch=EPOCH)
    follower.on_durable(Offset(3))
    assert asked_by(follower).last_fetched_epoch == EPOCH


def test_an_empty_reply_does_not_make_it_forget_its_last_epoch() -> None:
    follower = follower_of(log_of(1, 4))
    assert reply_to(follower, nothing()) == []
    assert asked_by(follower).last_fetched_epoch == 4


def test_the_high_watermark_is_at_most_the_own_end() -> None:
    follower = follower_of(log_of(1, 1))
    assert reply_to(follower, data(high_watermark=100)) == [Append()]
    assert follower.on_appended(Offset(5), last_epoch=EPOCH) == [
        HighWatermarkMoved(high_watermark=Offset(5))
    ]


def test_the_high_watermark_does_not_go_back_for_a_new_leader_that_is_behind() -> None:
    follower = follower_of(log_of(1, 1, 1), high_watermark=3)
    assert reply_to(follower, nothing(high_watermark=1)) == []
    assert follower.high_watermark == 3


def test_what_the_leader_has_deleted_is_deleted_before_more_can_be_read() -> None:
    follower = follower_of(log_of(1, 1, 1))
    assert reply_to(follower, nothing(high_watermark=3, log_start=2)) == [
        RaiseLogStart(log_start=Offset(2)),
        HighWatermarkMoved(high_watermark=Offset(3)),
    ]
    follower.on_log_start(Offset(2))
    assert asked_by(follower).log_start == 2


def test_a_reply_of_an_earlier_epoch_is_dropped() -> None:
    follower = follower_of(log_of(1))
    asked = asked_by(follower)
    follower.on_image(NEXT_IMAGE)
    assert follower.on_fetched(asked, data(high_watermark=1)) == []
    assert follower.high_watermark == 0
    assert asked_by(follower).leader == THREE


def test_a_reply_that_was_given_up_is_dropped() -> None:
    follower = follower_of(log_of(1))
    asked = asked_by(follower)
    assert follower.on_lost(asked) == [WaitFor(delay_ms=BACKOFF_MS)]
    asked_by(follower)
    assert follower.on_fetched(asked, data()) == []


def test_a_change_of_the_isr_does_not_disturb_a_fetch_under_way() -> None:
    follower = follower_of(log_of(1))
    asked = asked_by(follower)
    follower.on_image(replace(IMAGE, isr=(ONE,), revision=11))
    assert follower.on_fetched(asked, data()) == [Append()]


def test_an_older_image_is_ignored() -> None:
    follower = follower_of(log_of())
    follower.on_image(NEXT_IMAGE)
    follower.on_image(IMAGE)
    assert asked_by(follower).leader == THREE


# -- cutting off


def test_a_log_that_has_parted_is_cut_off_where_both_can_agree() -> None:
    # The leader wrote epoch 2 where we have 3; up to 5 both have 1.
    log = log_of(1, 1, 1, 1, 1, 3, 3, 3)
    follower = follower_of(log)
    assert reply_to(follower, diverging(2, 7)) == [TruncateTo(offset=Offset(5))]
    assert follower.next_fetch() is None
    log.truncate_to(Offset(5))
    follower.on_truncated(
        log_start=Offset(0), log_end=Offset(5), durable_end=Offset(5), last_epoch=log.last_epoch
    )
    asked = asked_by(follower)
    assert (asked.offset, asked.last_fetched_epoch) == (5, 1)


def test_what_could_not_be_cut_off_is_asked_for_again_from_the_same_place() -> None:
    log = log_of(1, 1, 1, 3, 3)
    follower = follower_of(log)
    before = asked_by(follower)
    assert follower.on_fetched(before, diverging(2, 9)) == [TruncateTo(offset=Offset(3))]
    follower.on_not_truncated()
    again = asked_by(follower)
    assert (again, again is before) == (before, False)
    assert follower.on_fetched(again, diverging(2, 9)) == [TruncateTo(offset=Offset(3))]


def test_only_a_truncation_under_way_can_come_to_nothing() -> None:
    follower = follower_of(log_of(1, 1))
    with pytest.raises(AssertionError, match="a truncation without an effect"):
        follower.on_not_truncated()


def test_cutting_off_is_repeated_until_the_leader_agrees() -> None:
    log = log_of(1, 1, 3, 3, 4, 4)
    follower = follower_of(log)
    ends = []
    for reply in (diverging(3, 3), diverging(1, 1)):
        (effect,) = reply_to(follower, reply)
        assert isinstance(effect, TruncateTo)
        ends.append(effect.offset)
        log.truncate_to(effect.offset)
        follower.on_truncated(
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=log.log_end,
            last_epoch=log.last_epoch,
        )
    assert ends == [3, 1]
    assert reply_to(follower, data()) == [Append()]


def test_an_epoch_without_records_is_cut_off_too() -> None:
    # This broker led in epoch 4, but nothing was written.
    log = log_of(1, 1)
    log.begin_epoch(LeaderEpoch(4))
    follower = follower_of(log)
    assert asked_by(follower).last_fetched_epoch == 4
    follower = follower_of(log)
    assert reply_to(follower, diverging(1, 2)) == [TruncateTo(offset=Offset(2))]


def test_the_logs_are_compared_again_in_every_epoch_also_with_the_same_leader() -> None:
    follower = follower_of(log_of(1, 4))
    reply_to(follower, nothing())
    follower.on_image(replace(IMAGE, leader_epoch=NEXT_EPOCH, revision=11))
    asked = asked_by(follower)
    assert (asked.leader, asked.leader_epoch, asked.last_fetched_epoch) == (ONE, NEXT_EPOCH, 4)


def test_an_unclean_leader_takes_the_high_watermark_back() -> None:
    log = log_of(1, 1, 1)
    follower = follower_of(log, high_watermark=3)
    assert reply_to(follower, diverging(1, 2)) == [TruncateTo(offset=Offset(2))]
    log.truncate_to(Offset(2))
    effects = follower.on_truncated(
        log_start=Offset(0), log_end=Offset(2), durable_end=Offset(2), last_epoch=LeaderEpoch(1)
    )
    assert effects == [HighWatermarkMoved(high_watermark=Offset(2))]


def test_what_lies_below_the_leaders_start_cannot_be_compared_and_goes() -> None:
    follower = follower_of(log_of(1, 1, 1, 1))
    assert reply_to(follower, diverging(1, 3, log_start=3)) == [ResetLogTo(offset=Offset(3))]
    effects = follower.on_truncated(
        log_start=Offset(3), log_end=Offset(3), durable_end=Offset(3), last_epoch=LeaderEpoch(-1)
    )
    assert effects == [HighWatermarkMoved(high_watermark=Offset(3))]


def test_a_log_that_has_parted_before_its_own_start_begins_again() -> None:
    follower = follower_of(log_of(2, 2, log_start=5))
    assert reply_to(follower, diverging(1, 4)) == [ResetLogTo(offset=Offset(4))]


# -- out of range


def out_of_range(follower: Follower) -> list[FollowerEffect]:
    return reply_to(follower, Fetched(error=OffsetOutOfRange.code))


def test_out_of_range_makes_it_ask_for_the_leaders_range() -> None:
    follower = follower_of(log_of(1, 1))
    assert out_of_range(follower) == [AskLeaderRange(leader=ONE, leader_epoch=EPOCH)]
    assert follower.next_fetch() is None


def test_a_follower_that_was_away_for_too_long_begins_at_the_leaders_start() -> None:
    follower = follower_of(log_of(1, 1))
    out_of_range(follower)
    effects = follower.on_leader_range(EPOCH, log_start=Offset(50), log_end=Offset(90))
    assert effects == [ResetLogTo(offset=Offset(50))]
    follower.on_truncated(
        log_start=Offset(50), log_end=Offset(50), durable_end=Offset(50), last_epoch=LeaderEpoch(-1)
    )
    asked = asked_by(follower)
    assert (asked.offset, asked.last_fetched_epoch, asked.log_start) == (50, -1, 50)


def test_a_follower_that_is_ahead_of_its_leader_is_cut_off() -> None:
    follower = follower_of(log_of(1, 1, 1))
    out_of_range(follower)
    effects = follower.on_leader_range(EPOCH, log_start=Offset(0), log_end=Offset(1))
    assert effects == [TruncateTo(offset=Offset(1))]


@pytest.mark.parametrize(("log_start", "log_end"), [(0, 9), (3, 9), (0, 3), (3, 3)])
def test_who_is_in_range_by_now_asks_again(log_start: int, log_end: int) -> None:
    follower = follower_of(log_of(1, 1, 1))
    out_of_range(follower)
    effects = follower.on_leader_range(EPOCH, log_start=Offset(log_start), log_end=Offset(log_end))
    assert effects == [WaitFor(delay_ms=BACKOFF_MS)]
    assert follower.next_fetch() is not None


def test_a_range_that_was_not_told_is_asked_for_again_with_the_next_fetch() -> None:
    follower = follower_of(log_of(1))
    out_of_range(follower)
    assert follower.on_range_lost(EPOCH) == [WaitFor(delay_ms=BACKOFF_MS)]
    assert out_of_range(follower) == [AskLeaderRange(leader=ONE, leader_epoch=EPOCH)]


def test_the_range_of_an_earlier_leader_is_dropped() -> None:
    follower = follower_of(log_of(1))
    out_of_range(follower)
    follower.on_image(NEXT_IMAGE)
    assert follower.on_leader_range(EPOCH, log_start=Offset(50), log_end=Offset(90)) == []
    assert follower.next_fetch() is not None


def test_a_leader_that_does_not_know_the_epoch_is_asked_for_its_range() -> None:
    follower = follower_of(log_of(4))
    assert reply_to(follower, diverging(-1, -1)) == [AskLeaderRange(leader=ONE, leader_epoch=EPOCH)]


# -- errors


@pytest.mark.parametrize("error", [FencedLeaderEpoch, NotLeader])
def test_who_is_behind_looks_up_the_leader(error: type[FencedLeaderEpoch | NotLeader]) -> None:
    follower = follower_of(log_of())
    assert reply_to(follower, Fetched(error=error.code)) == [
        LookUpLeader(),
        WaitFor(delay_ms=BACKOFF_MS),
    ]
    assert follower.next_fetch() is not None


@pytest.mark.parametrize("error", [UnknownLeaderEpoch, StorageFailed])
def test_other_errors_are_waited_out(error: type[UnknownLeaderEpoch | StorageFailed]) -> None:
    follower = follower_of(log_of())
    assert reply_to(follower, Fetched(error=error.code)) == [WaitFor(delay_ms=BACKOFF_MS)]
    assert follower.next_fetch() is not None


# -- readers


def test_consumers_read_from_a_follower_up_to_its_high_watermark() -> None:
    follower = follower_of(log_of(1, 1, 1, 1, log_start=10), high_watermark=12)
    for offset in (10, 11, 12):
        follower.check_readable(Offset(offset))
    for offset in (13, 14):
        with pytest.raises(OffsetNotAvailable):
            follower.check_readable(Offset(offset))
    for offset in (9, 15):
        with pytest.raises(OffsetOutOfRange):
            follower.check_readable(Offset(offset))
