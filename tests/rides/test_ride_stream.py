import hashlib

import numpy as np
import pyarrow as pa
import pytest

from respool.rides.event_maker import LATE_MS_MIN, TRAVEL_MS_MAX
from respool.rides.event_table import EventTable, Field, is_duplicate, is_late
from respool.rides.outcomes import EventType
from respool.rides.ride_plan import DAY_MS, HOUR_MS, RidePlan
from respool.rides.ride_stream import RideStream
from rides.making import UNTIL_MS, all_events, plan, records


def bytes_of(plan: RidePlan, table: EventTable) -> bytes:
    batch = records(plan, table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def test_the_same_seed_gives_the_same_bytes() -> None:
    once, again = plan(count=3_000), plan(count=3_000)
    assert bytes_of(once, all_events(once)) == bytes_of(again, all_events(again))


def test_these_bytes_are_the_same_on_every_machine_and_in_every_version() -> None:
    """Who changes this number on purpose says so in the changelog: everyone's seeds give other rides then."""
    small = plan(count=2_000)
    values = records(small, all_events(small))["value"].to_pylist()
    digest = hashlib.sha256(b"\n".join(values)).hexdigest()
    assert digest[:16] == "3f563579ffd14fed"


def test_another_seed_gives_other_rides() -> None:
    one, other = plan(count=500), plan(count=500, seed=8)
    assert not set(all_events(one)[Field.RIDE_ID]) & set(all_events(other)[Field.RIDE_ID])


@pytest.mark.parametrize("bucket_rides", [1, 300, 10**9])
@pytest.mark.parametrize("rows_max", [1_000, 65_536])
def test_how_it_is_cut_into_pieces_changes_nothing(bucket_rides: int, rows_max: int) -> None:
    wanted = plan(count=20_000)
    cut = all_events(wanted, rows_max=rows_max, bucket_rides=bucket_rides)
    np.testing.assert_array_equal(cut, all_events(wanted))


def test_a_stream_that_is_asked_again_and_again_gives_what_one_question_gives() -> None:
    wanted = plan(rate=0.2, days=1)
    stream, found = RideStream(wanted), []
    for before_ms in range(wanted.start_ms, wanted.until_ms + 1, 7 * 60_000 + 11):
        while (table := stream.take(before_ms, rows_max=100)) is not None:
            assert table[Field.ARRIVED_MS].max() < before_ms
            found.append(table)
    while (table := stream.take(wanted.until_ms)) is not None:
        found.append(table)
    np.testing.assert_array_equal(np.concatenate(found, axis=1), all_events(wanted))


def test_after_the_history_it_goes_on_where_it_ended() -> None:
    wanted = plan(rate=0.5)
    stream = RideStream(wanted)
    before = np.concatenate(list(stream.history()), axis=1)
    after = []
    while (table := stream.take(UNTIL_MS + 3 * HOUR_MS)) is not None:
        after.append(table)
    live = np.concatenate(after, axis=1)
    assert before[Field.ARRIVED_MS].max() < UNTIL_MS <= live[Field.ARRIVED_MS].min()
    # Rides that were under way come to their end.
    under_way = set(before[Field.RIDE_ID].tolist()) & set(live[Field.RIDE_ID].tolist())
    assert under_way
    assert 0.2 < live.shape[1] / (3 * 3600) / 0.5 < 3


def test_a_count_is_exact_and_a_rate_nearly_so() -> None:
    assert [all_events(plan(count=n, days=2)).shape[1] for n in (1, 10, 777, 10_000)] == [
        1,
        10,
        777,
        10_000,
    ]
    assert all_events(plan(rate=1.0)).shape[1] == pytest.approx(86_400, rel=0.01)
    assert all_events(plan(count=500, days=1 / 24)).shape[1] == 500


def test_a_count_is_spread_over_the_whole_time() -> None:
    wanted = plan(count=10_000, days=2)
    times = all_events(wanted)[Field.ARRIVED_MS]
    assert times[0] < wanted.start_ms + HOUR_MS
    assert UNTIL_MS - 4 * HOUR_MS < times[-1] < UNTIL_MS


def test_events_come_in_the_order_of_their_arrival(day: EventTable) -> None:
    assert (np.diff(day[Field.ARRIVED_MS]) >= 0).all()
    assert (day[Field.ARRIVED_MS] >= day[Field.EVENT_MS]).all()
    assert (day[Field.ARRIVED_MS] < UNTIL_MS).all()
    assert (day[Field.EVENT_MS] >= UNTIL_MS - DAY_MS).all()


def test_the_events_of_a_ride_come_in_the_order_in_which_they_happened(day: EventTable) -> None:
    first_ones = day[:, ~is_duplicate(day)]
    by_ride = first_ones[:, np.argsort(first_ones[Field.RIDE_ID], kind="stable")]
    same_ride = np.diff(by_ride[Field.RIDE_ID]) == 0
    assert (np.diff(by_ride[Field.EVENT_MS])[same_ride] > 0).all()
    assert (np.diff(by_ride[Field.ARRIVED_MS])[same_ride] > 0).all()
    # requested < assigned < started < finished < paid; and cancelled is the largest.
    assert (np.diff(by_ride[Field.TYPE])[same_ride] > 0).all()


def test_a_ride_is_told_from_its_start_on(day: EventTable) -> None:
    is_request = day[Field.TYPE] == EventType.REQUESTED
    assert set(day[Field.RIDE_ID].tolist()) == set(day[Field.RIDE_ID, is_request].tolist())


def test_what_is_late_is_late_and_nothing_else_is(day: EventTable) -> None:
    once = day[:, ~is_duplicate(day)]
    delay_ms = once[Field.ARRIVED_MS] - once[Field.EVENT_MS]
    late = is_late(once)
    assert delay_ms[late].min() >= LATE_MS_MIN
    # Later events may have to wait for the one before, by milliseconds.
    assert delay_ms[~late].max() <= TRAVEL_MS_MAX + 10
    assert np.median(delay_ms[late]) < 2 * HOUR_MS


def test_a_few_are_more_than_a_day_late() -> None:
    events = all_events(plan(rate=0.2, days=3, late_share=0.2))
    late = events[:, is_late(events)]
    beyond = (late[Field.ARRIVED_MS] - late[Field.EVENT_MS]) > DAY_MS
    assert 0.005 < beyond.mean() < 0.06


def test_what_is_sent_twice_is_the_same_event_again(day: EventTable) -> None:
    again = day[:, is_duplicate(day)]
    first = {one[Field.EVENT_ID]: one for one in day[:, ~is_duplicate(day)].T.tolist()}
    assert len(first) == day.shape[1] - again.shape[1]
    for one in again.T.tolist():
        before = first[one[Field.EVENT_ID]]
        assert one[Field.ARRIVED_MS] > before[Field.ARRIVED_MS]
        assert one[Field.EVENT_MS : Field.MARKS] == before[Field.EVENT_MS : Field.MARKS]
