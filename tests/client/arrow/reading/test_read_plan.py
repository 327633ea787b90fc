"""Which offsets a read takes: checked against a log that is looked through message by message."""

import pickle
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.arrow.errors import OffsetBeyondEnd, OutsideRetention
from respool.client.arrow.reading.read_bounds import PartitionOffsets, Point
from respool.client.arrow.reading.read_plan import (
    Facts,
    Found,
    PartitionRange,
    ReadPlan,
    ReadRequest,
    Retention,
    chosen_partitions,
    plan_range,
)
from respool.client.kafka.errors import BadArgument
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest

NOW_MS = 1_000_000
KEPT_FOR_EVER = Retention(ms=-1, bytes=-1)


def wish(since: Point = Earliest(), until: Point = Latest(), **fields: Any) -> ReadRequest:  # noqa: B008
    settings = {"topic": "rides", "follow": False, "missing": "error", "now_ms": NOW_MS, **fields}
    return ReadRequest(since=since, until=until, **settings)


@dataclass
class Log:
    """Times of messages by offset; those before `start` were deleted, those from `end` on cannot be read yet."""

    times: list[int]
    start: int = 0

    def first_at(self, ms: int) -> Found | None:
        for offset in range(self.start, len(self.times)):
            if self.times[offset] >= ms:
                return Found(offset=offset, timestamp_ms=self.times[offset])
        return None

    def facts(self, asked: ReadRequest, *, lateness_ms: int | None = None) -> Facts:
        end = len(self.times)
        until_at = None
        if isinstance(asked.until, AtTime) and lateness_ms is not None:
            until_at = self.first_at(asked.until.ms + lateness_ms)
        return Facts(
            partition=0,
            log_start=self.start,
            end=end,
            high_watermark=end,
            first=self.first_at(0),
            since_at=self.first_at(asked.since.ms) if isinstance(asked.since, AtTime) else None,
            until_at=until_at,
        )


def in_range(one: PartitionRange, offset: int) -> bool:
    return one.begin <= offset and (one.end is None or offset < one.end)


times = st.lists(st.integers(0, 100), max_size=30)


@given(times=times, since=st.integers(0, 110), length=st.integers(0, 110))
def test_no_message_of_the_times_asked_for_lies_outside_the_range(
    times: list[int], since: int, length: int
) -> None:
    log, asked = Log(times), wish(AtTime(since), AtTime(since + length))
    found = plan_range(asked, log.facts(asked), KEPT_FOR_EVER)
    for offset, ms in enumerate(times):
        if since <= ms < since + length:
            assert in_range(found, offset)
    # And nothing is fetched that lies before all of them.
    assert all(not since <= ms for ms in times[: found.begin])


@given(
    data=st.data(), since=st.integers(0, 110), length=st.integers(0, 50), late=st.integers(0, 20)
)
def test_with_a_promised_lateness_the_range_ends_early_and_still_holds_every_message(
    data: st.DataObject, since: int, length: int, late: int
) -> None:
    times: list[int] = []
    for _ in range(data.draw(st.integers(0, 30))):
        newest = max(times, default=0)
        times.append(data.draw(st.integers(max(0, newest - late), newest + 10)))
    log, asked = Log(times), wish(AtTime(since), AtTime(since + length))
    found = plan_range(asked, log.facts(asked, lateness_ms=late), KEPT_FOR_EVER)
    for offset, ms in enumerate(times):
        if since <= ms < since + length:
            assert in_range(found, offset)
    assert found.end is not None
    assert all(ms < since + length + late for ms in times[: found.end])


def test_a_late_message_behind_the_first_later_one_is_in_the_range() -> None:
    log, asked = Log([10, 50, 20, 60]), wish(AtTime(0), AtTime(30))
    assert plan_range(asked, log.facts(asked), None) == PartitionRange(partition=0, begin=0, end=4)


def test_a_time_before_the_first_message_is_fine_while_nothing_was_deleted() -> None:
    log, asked = Log([500, 600]), wish(AtTime(0))
    assert plan_range(asked, log.facts(asked), Retention(ms=1, bytes=1)).begin == 0


def test_a_time_from_which_messages_may_have_been_deleted_is_refused_with_what_there_is() -> None:
    log, asked = Log([500, 600, 700], start=1), wish(AtTime(550))
    with pytest.raises(
        OutsideRetention, match=r"offset 1 .* or DeleteRecords; the first"
    ) as caught:
        plan_range(asked, log.facts(asked), Retention(ms=NOW_MS - 560, bytes=-1))
    assert (caught.value.first_offset, caught.value.first_time_ms) == (1, 600)
    # What it names can be asked for.
    again = wish(AtTime(600))
    assert plan_range(again, log.facts(again), Retention(ms=NOW_MS - 560, bytes=-1)).begin == 1


def test_a_quiet_partition_whose_old_messages_went_by_age_is_not_refused() -> None:
    log, asked = Log([100, 600], start=1), wish(AtTime(500))
    assert plan_range(asked, log.facts(asked), Retention(ms=NOW_MS - 400, bytes=-1)).begin == 1


def test_a_partition_of_which_nothing_is_left_is_refused_only_for_times_it_may_have_had() -> None:
    log, asked = Log([100, 600], start=2), wish(AtTime(500))
    assert plan_range(asked, log.facts(asked), Retention(ms=NOW_MS - 400, bytes=-1)).is_empty
    with pytest.raises(OutsideRetention, match="no message is left"):
        plan_range(asked, log.facts(asked), Retention(ms=NOW_MS - 550, bytes=-1))


@pytest.mark.parametrize("retention", [None, Retention(ms=-1, bytes=1_000)])
def test_where_age_does_not_say_what_was_deleted_the_doubt_is_told(
    retention: Retention | None,
) -> None:
    log, asked = Log([100, 600], start=1), wish(AtTime(500))
    with pytest.raises(OutsideRetention):
        plan_range(asked, log.facts(asked), retention)


def test_a_time_that_the_log_reaches_back_to_is_fine_whatever_was_deleted() -> None:
    log, asked = Log([100, 400, 600], start=1), wish(AtTime(500))
    assert plan_range(asked, log.facts(asked), None).begin == 2


def test_what_is_available_is_taken_where_the_caller_says_so() -> None:
    log = Log([100, 600], start=1)
    for since in (AtTime(500), AtOffset(0)):
        asked = wish(since, missing="available")
        assert plan_range(asked, log.facts(asked), None).begin == 1


def test_a_deleted_offset_is_refused_with_the_first_there_is() -> None:
    log, asked = Log([1, 2, 3], start=2), wish(AtOffset(1))
    with pytest.raises(OutsideRetention, match="begins at 2") as caught:
        plan_range(asked, log.facts(asked), None)
    assert (caught.value.offset, caught.value.first_offset) == (1, 2)


def test_an_offset_beyond_the_end_is_refused_and_the_end_itself_is_not() -> None:
    log, asked = Log([1, 2, 3]), wish(AtOffset(3))
    assert plan_range(asked, log.facts(asked), None).is_empty
    beyond = wish(AtOffset(4))
    with pytest.raises(OffsetBeyondEnd, match="0 to 3"):
        plan_range(beyond, log.facts(beyond), None)


def test_an_end_beyond_the_log_gives_what_there_is_or_is_waited_for() -> None:
    log, asked = Log([1, 2, 3]), wish(until=AtOffset(10))
    assert plan_range(asked, log.facts(asked), None).end == 3
    followed = wish(until=AtOffset(10), follow=True)
    assert plan_range(followed, log.facts(followed), None).end == 10
    for_ever = wish(follow=True)
    assert plan_range(for_ever, log.facts(for_ever), None).end is None


@pytest.mark.parametrize(
    ("since", "until"),
    [(AtTime(2), AtTime(1)), (AtOffset(2), AtOffset(1)), (Earliest(), Earliest())],
)
def test_a_range_that_ends_before_it_begins_is_refused(since: Point, until: Point) -> None:
    with pytest.raises(BadArgument):
        wish(since, until)


def test_a_followed_log_cannot_end_at_a_time() -> None:
    with pytest.raises(BadArgument, match="follow=False"):
        wish(until=AtTime(1), follow=True)


def test_partitions_are_those_asked_for_else_those_named_else_all() -> None:
    named = wish(PartitionOffsets({2: 5, 1: 0}))
    assert chosen_partitions(wish(), None, range(3)) == [0, 1, 2]
    assert chosen_partitions(wish(), [2, 0, 2], range(3)) == [0, 2]
    assert chosen_partitions(named, None, range(3)) == [1, 2]
    assert chosen_partitions(named, [1], range(3)) == [1]


def test_a_partition_without_an_offset_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"\[0\]"):
        chosen_partitions(wish(PartitionOffsets({1: 0})), [0, 1], range(3))
    with pytest.raises(BadArgument, match=r"\[1\]"):
        chosen_partitions(wish(PartitionOffsets({1: 0}), PartitionOffsets({0: 5})), None, range(3))


@pytest.mark.parametrize("partitions", [1, ["0"], "01", [0.5]])
def test_partitions_that_are_no_numbers_are_refused(partitions: Any) -> None:
    with pytest.raises(BadArgument, match="a list of whole numbers"):
        chosen_partitions(wish(), partitions, range(3))


def test_a_plan_can_be_sent_to_another_process() -> None:
    plan = ReadPlan(
        topic="rides",
        topic_id=uuid4(),
        ranges=(PartitionRange(partition=1, begin=2, end=3),),
        since_ms=5,
    )
    assert pickle.loads(pickle.dumps(plan)) == plan
