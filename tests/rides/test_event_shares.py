"""Shares and shapes. Seeds are fixed, so nothing here is left to chance; bounds are five standard deviations."""

import math

import numpy as np
import pytest

from respool.rides.event_table import EventTable, Field, fraud_of, is_duplicate, is_late
from respool.rides.outcomes import CANCELLED_AFTER, CANCELLED_BEFORE, EventType, Fraud, Malformed
from respool.rides.ride_maker import FARE_BASE, FARE_KM, FARE_MINUTE
from respool.rides.ride_plan import HOUR_MS
from respool.rides.ride_stream import RideStream
from respool.rides.truth import RideTally
from rides.making import all_events, plan


def within(count: int, of: int, share: float, *, together: float = 1) -> bool:
    """`together`: how many of them come in one, so that fewer throws decide."""
    return abs(count - of * share) <= 5 * math.sqrt(of * share * (1 - share) * together) + 1


def rides_of(table: EventTable) -> EventTable:
    """The last event of each ride that was paid."""
    return table[:, (table[Field.TYPE] == EventType.PAID) & ~is_duplicate(table)]


def test_shares_of_events_are_as_planned(day: EventTable) -> None:
    once = day[:, ~is_duplicate(day)]
    total = once.shape[1]
    assert within(int((once[Field.MALFORMED] > 0).sum()), total, 0.01)
    assert within(int(is_duplicate(day).sum()), total, 0.01 * 0.99)
    # Late ones come in threes, and those of the last hours are not there yet.
    late = int(is_late(once).sum())
    assert total * 0.02 * 0.85 < late < total * 0.02 * 1.05


def test_every_kind_of_malformed_event_comes_as_often_as_the_others(day: EventTable) -> None:
    counts = np.bincount(day[Field.MALFORMED], minlength=len(Malformed))[1:]
    assert all(within(int(count), int(counts.sum()), 1 / 8) for count in counts)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3])
def test_the_share_of_fraud_is_of_rides_and_of_all_patterns_alike(share: float) -> None:
    events = all_events(plan(count=60_000, fraud_share=share, duplicate_share=0.0))
    patterns = fraud_of(events)[events[Field.TYPE] == EventType.REQUESTED]
    counts = np.bincount(patterns, minlength=len(Fraud))
    for pattern in Fraud:
        expected = 1 - share if pattern is Fraud.NONE else share / 4
        assert within(int(counts[pattern]), len(patterns), expected)


def test_no_share_means_none() -> None:
    events = all_events(
        plan(count=20_000, fraud_share=0, late_share=0, malformed_share=0, duplicate_share=0)
    )
    assert not events[Field.MARKS].any()
    assert not events[Field.MALFORMED].any()


def test_rides_end_as_they_should(day: EventTable) -> None:
    """Of those that were asked for in the first half, which have all ended, if they are not late."""
    half = all_events(plan(rate=2.0, late_share=0, fraud_share=0, duplicate_share=0))
    first = np.median(half[Field.EVENT_MS])
    asked = half[:, (half[Field.TYPE] == EventType.REQUESTED) & (half[Field.EVENT_MS] < first)]
    mine = half[:, np.isin(half[Field.RIDE_ID], asked[Field.RIDE_ID])]
    counts = np.bincount(mine[Field.TYPE], minlength=len(EventType))
    rides = asked.shape[1]
    assert counts[EventType.PAID] + counts[EventType.CANCELLED] == rides
    assert within(int(counts[EventType.CANCELLED]), rides, CANCELLED_BEFORE + CANCELLED_AFTER)
    assert within(int(rides - counts[EventType.ASSIGNED]), rides, CANCELLED_BEFORE)


def test_demand_follows_the_hour_of_the_city_and_its_size() -> None:
    wanted = plan(count=150_000, days=7)
    events = all_events(wanted)
    asked = events[:, events[Field.TYPE] == EventType.REQUESTED]
    by_city = np.bincount(asked[Field.CITY], minlength=12)
    sizes = np.array([city.size for city in wanted.cities])
    np.testing.assert_allclose(by_city / by_city.sum(), sizes / sizes.sum(), rtol=0.15)
    local = (
        asked[Field.EVENT_MS]
        + 60_000 * np.array([c.utc_minutes for c in wanted.cities])[asked[Field.CITY]]
    )
    day_of_week = (local // (24 * HOUR_MS) + 3) % 7
    hours = local // HOUR_MS % 24
    workday = np.bincount(hours[day_of_week < 4], minlength=24)
    assert workday[18] > 5 * workday[3]
    assert workday[8] > 1.3 * workday[11]
    assert (hours[day_of_week == 5] >= 22).mean() > 1.5 * (hours[day_of_week == 1] >= 22).mean()


def test_surge_comes_when_drivers_are_few(day: EventTable) -> None:
    surge = day[Field.SURGE]
    assert surge.min() == 10
    assert 0.02 < (surge > 10).mean() < 0.5
    fewer = all_events(plan(rate=2.0, drivers=400))
    many = all_events(plan(rate=2.0, drivers=400_000))
    assert fewer[Field.SURGE].mean() > surge.mean() + 3
    assert (many[Field.SURGE] == 10).all()


def test_some_riders_and_drivers_are_much_more_frequent_than_others(day: EventTable) -> None:
    rides = rides_of(day)
    for field, tenth in ((Field.RIDER, 0.25), (Field.DRIVER, 0.2)):
        counts = np.sort(np.bincount(rides[field] % 10_000_000))[::-1]
        counts = counts[counts > 0]
        assert counts[: len(counts) // 10].sum() > tenth * counts.sum()
        assert counts[0] > 4 * counts.mean()


def test_hardly_any_driver_has_two_rides_at_once(day: EventTable) -> None:
    honest = rides_of(day)
    honest = honest[:, fraud_of(honest) == Fraud.NONE]
    end = honest[Field.EVENT_MS]
    begin = end - honest[Field.DURATION] * 1000
    order = np.lexsort([begin, honest[Field.DRIVER]])
    driver, begin, end = honest[Field.DRIVER][order], begin[order], end[order]
    overlaps = (driver[1:] == driver[:-1]) & (begin[1:] < end[:-1])
    assert overlaps.mean() < 0.1


def test_fake_gps_is_faster_than_anyone_drives() -> None:
    rides = rides_of(all_events(plan(count=60_000, fraud_share=0.1)))
    speed = rides[Field.DISTANCE] / 100 / (rides[Field.DURATION] / 3600)
    is_fake = fraud_of(rides) == Fraud.FAKE_GPS
    assert speed[is_fake].min() > 150
    assert speed[~is_fake].max() < 70


def test_inflated_fares_are_far_above_the_price_list() -> None:
    wanted = plan(count=60_000, fraud_share=0.1)
    rides = rides_of(all_events(wanted))
    price = np.array([city.price_percent for city in wanted.cities])[rides[Field.CITY]] / 100
    listed = FARE_BASE + FARE_KM * rides[Field.DISTANCE] / 100
    listed = (listed + FARE_MINUTE * rides[Field.DURATION] / 60) * rides[Field.SURGE] / 10 * price
    over = rides[Field.FARE] / listed
    is_inflated = fraud_of(rides) == Fraud.FARE_INFLATION
    assert over[is_inflated].min() > 1.5
    assert over[~is_inflated].max() < 1.1


def test_colluding_pairs_make_many_short_rides() -> None:
    rides = rides_of(all_events(plan(count=200_000, fraud_share=0.04)))
    pairs = rides[Field.RIDER] * 10_000_000 + rides[Field.DRIVER]
    colluding = fraud_of(rides) == Fraud.COLLUSION
    mine = np.unique(pairs[colluding], return_counts=True)[1]
    others = np.unique(pairs[~colluding], return_counts=True)[1]
    assert np.median(mine) >= 5
    assert np.mean(others) < 1.2
    assert rides[Field.DISTANCE][colluding].max() <= 140


def test_stolen_payments_are_bursts_of_new_riders_by_card() -> None:
    wanted = plan(count=200_000, fraud_share=0.04)
    riders = RideStream(wanted).demand.riders
    rides = rides_of(all_events(wanted))
    stolen = rides[:, fraud_of(rides) == Fraud.STOLEN_PAYMENT]
    assert (stolen[Field.RIDER] >= riders).all()
    assert (stolen[Field.PAYMENT] == 0).all()
    assert stolen[Field.DISTANCE].min() >= 1_600
    assert np.median(np.unique(stolen[Field.RIDER], return_counts=True)[1]) >= 3
    # A new rider is no proof: there are honest ones, more of them.
    honest = rides[:, fraud_of(rides) == Fraud.NONE]
    assert (honest[Field.RIDER] >= riders).sum() > stolen.shape[1]


def test_a_tally_counts_what_is_there(day: EventTable) -> None:
    tally = RideTally()
    for begin in range(0, day.shape[1], 50_000):
        tally.add(day[:, begin : begin + 50_000])
    tally.add(day[:, :0])
    found = tally.document()
    types = np.bincount(day[Field.TYPE], minlength=len(EventType)).tolist()
    assert found["events"] == day.shape[1]
    assert found["types"] == {one.name.lower(): types[one] for one in EventType}
    assert found["rides"] == len(set(day[Field.RIDE_ID].tolist()))
    assert found["late"] == int(is_late(day).sum())
    assert found["duplicates"] == int(is_duplicate(day).sum())
    assert tally.malformed[1:].sum() == (day[Field.MALFORMED] > 0).sum()
    assert (tally.first_ms, tally.last_ms) == (day[Field.ARRIVED_MS, 0], day[Field.ARRIVED_MS, -1])
