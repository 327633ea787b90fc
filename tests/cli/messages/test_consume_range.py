from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.messages.consume_range import (
    RangeProgress,
    Until,
    first_offset,
    is_empty,
    parse_start,
    parse_until,
    stop_offset,
)
from respool.model.operator_errors import UsageError
from respool.model.seek_target import AtOffset, AtTime, Earliest, Last, Latest, SeekTarget

NOW = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def start_of(
    *,
    from_beginning: bool = False,
    offset: str | None = None,
    since: str | None = None,
    follow: bool = False,
) -> SeekTarget:
    return parse_start(
        from_beginning=from_beginning, offset=offset, since=since, follow=follow, now=NOW
    )


def test_without_a_start_everything_is_read_and_followed_topics_only_from_now_on() -> None:
    assert start_of() == Earliest()
    assert start_of(follow=True) == Latest()
    assert start_of(follow=True, from_beginning=True) == Earliest()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Earliest()),
        ("Latest", Latest()),
        ("0", AtOffset(0)),
        ("17", AtOffset(17)),
        ("-5", Last(5)),
    ],
)
def test_an_offset_is_a_number_a_name_or_a_count_from_the_end(text: str, meant: SeekTarget) -> None:
    assert start_of(offset=text) == meant


@pytest.mark.parametrize("text", ["", "first", "1.5", "--5", "-", "0x10"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an offset"):
        start_of(offset=text)


def test_two_starts_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="only one of"):
        start_of(from_beginning=True, since="1h")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, None),
        ("500", AtOffset(500)),
        ("@1763107200", AtTime(1_763_107_200_000)),
        ("1h", AtTime(NOW_MS - 3_600_000)),
    ],
)
def test_until_takes_a_plain_number_for_an_offset_and_all_else_for_a_time(
    text: str | None, meant: Until
) -> None:
    assert parse_until(text, now=NOW) == meant


def test_until_refuses_what_is_neither() -> None:
    with pytest.raises(UsageError, match="--until"):
        parse_until("later", now=NOW)


@pytest.mark.parametrize(
    ("start", "at_time", "first"),
    [
        (Earliest(), None, 100),
        (Latest(), None, 200),
        (AtOffset(150), None, 150),
        # Deleted already, or not written yet: what is nearest to it.
        (AtOffset(5), None, 100),
        (AtOffset(900), None, 200),
        (Last(10), None, 190),
        (Last(1000), None, 100),
        (AtTime(1), 120, 120),
        # Nothing is that new.
        (AtTime(1), None, 200),
    ],
)
def test_reading_begins_inside_what_the_partition_holds(
    start: SeekTarget, at_time: int | None, first: int
) -> None:
    assert first_offset(start, low=100, high=200, at_time=at_time) == first


@pytest.mark.parametrize(
    ("until", "follow", "at_time", "stop"),
    [
        (None, False, None, 200),
        (None, True, None, None),
        (AtOffset(150), False, None, 150),
        (AtOffset(250), False, None, 200),
        (AtOffset(250), True, None, 250),
        (AtTime(1), False, 120, 120),
        (AtTime(1), True, 120, 120),
        (AtTime(1), False, None, 200),
        (AtTime(1), True, None, None),
    ],
)
def test_reading_stops_at_the_end_seen_at_the_start_unless_followed(
    until: Until, follow: bool, at_time: int | None, stop: int | None
) -> None:
    assert stop_offset(until, high=200, follow=follow, at_time=at_time) == stop


@pytest.mark.parametrize(
    ("start", "until", "empty"),
    [
        (AtTime(5), AtTime(4), True),
        (AtTime(5), AtTime(5), True),
        (AtTime(5), AtTime(6), False),
        (AtOffset(5), AtOffset(5), True),
        (AtOffset(5), AtOffset(6), False),
        # Only the topic knows.
        (AtOffset(5), AtTime(4), False),
        (Latest(), AtTime(4), False),
        (AtTime(5), None, False),
    ],
)
def test_a_range_that_ends_before_it_begins_is_empty(
    start: SeekTarget, until: Until, empty: bool
) -> None:
    assert is_empty(start, until) is empty


def test_a_cursor_shows_offsets_up_to_its_stop_and_is_then_done() -> None:
    cursor = RangeProgress(position=3, stop=5, until_ms=None)
    # A batch is delivered whole, so offsets before the position come too.
    assert not cursor.on_message(2, 0)
    assert cursor.on_message(3, 0)
    assert not cursor.is_done
    assert cursor.on_message(4, 0)
    assert cursor.is_done
    assert not cursor.on_message(5, 0)
    assert cursor.position == 5


def test_a_cursor_with_nothing_to_read_is_done_from_the_start() -> None:
    assert RangeProgress(position=5, stop=5, until_ms=None).is_done
    assert not RangeProgress(position=5, stop=None, until_ms=None).is_done


def test_a_stop_that_falls_on_a_transaction_marker_is_reached_by_the_partition_s_end() -> None:
    cursor = RangeProgress(position=0, stop=3, until_ms=None)
    assert cursor.on_message(0, 0)
    assert cursor.on_message(1, 0)
    # Offset 2 is a marker: no message comes for it.
    assert not cursor.is_done
    cursor.on_end(3)
    assert cursor.is_done


def test_a_stop_inside_a_gap_is_reached_by_the_next_message() -> None:
    cursor = RangeProgress(position=0, stop=3, until_ms=None)
    assert not cursor.on_message(7, 0)
    assert cursor.is_done


def test_following_until_a_time_ends_with_the_first_message_of_that_time() -> None:
    cursor = RangeProgress(position=0, stop=None, until_ms=1_000)
    assert cursor.on_message(0, 999)
    assert not cursor.on_message(1, 1_000)
    assert cursor.is_done


def test_following_until_a_time_ends_when_the_clock_has_passed_it_and_all_is_read() -> None:
    cursor = RangeProgress(position=0, stop=None, until_ms=1_000)
    cursor.on_tick(2_000)
    assert not cursor.is_done, "nobody said yet that all is read"
    cursor.on_end(0)
    cursor.on_tick(999)
    assert not cursor.is_done, "it is too early"
    assert cursor.on_message(0, 500)
    cursor.on_tick(1_000)
    assert not cursor.is_done, "there may be more behind this message"
    cursor.on_end(1)
    cursor.on_tick(1_000)
    assert cursor.is_done


def test_following_without_an_end_is_never_done() -> None:
    cursor = RangeProgress(position=0, stop=None, until_ms=None)
    cursor.on_end(0)
    cursor.on_tick(10**15)
    assert cursor.on_message(0, 0)
    assert not cursor.is_done


@given(
    offsets=st.lists(st.integers(0, 60), unique=True).map(sorted),
    start=st.integers(0, 60),
    stop=st.integers(0, 60),
)
def test_a_cursor_shows_exactly_what_lies_between_start_and_stop(
    offsets: list[int], start: int, stop: int
) -> None:
    cursor = RangeProgress(position=start, stop=stop, until_ms=None)
    shown = [offset for offset in offsets if cursor.on_message(offset, 0)]
    cursor.on_end(61)
    assert shown == [offset for offset in offsets if start <= offset < stop]
    assert cursor.is_done
