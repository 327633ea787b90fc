"""Demand for rides by time and city, the drivers online, and the resulting surge.

Time is divided into slots of one minute, beginning at the plan's start. A cell is a city in a slot. Its weight depends
on the city's size, the hour of the week and the weather. Rides are numbered cell by cell, in proportion to the weights:

    rides before a cell = floor(the weights before it x rides per weight)

so the numbers need no counter, and the total is exact. Weights are integers.
"""

import math
from functools import lru_cache

import numpy as np

from respool.rides.counter_rng import CounterRng, Numbers, Purpose
from respool.rides.outcomes import events_per_ride
from respool.rides.ride_plan import DAY_MS, PEOPLE_MAX, RidePlan

MINUTE_MS = 60_000
SLOTS_PER_PAGE = 1_440
SLOTS_PER_WEEK = 7 * 1_440
# Surge follows the demand of this many slots.
SURGE_SLOTS = 5
# How long a ride occupies a driver, on average.
BUSY_MINUTES = 24.0
# Surge begins at this utilization of the online drivers, and rises with this slope. Slope and bounds are in tenths.
SURGE_FROM = 0.8
SURGE_STEEPNESS = 20.0
SURGE_MIN, SURGE_MAX = 10, 35
# Average utilization of the online drivers; the default of --drivers is derived from it.
USUAL_USE = 0.55
DRIVERS_PER_CITY_MIN = 5
RIDES_PER_RIDER_AND_DAY = 0.6
RIDERS_PER_CITY_MIN = 30

# Demand by hour, in thousandths of the maximum: Monday to Thursday, Friday, Saturday, Sunday.
_WORKDAY = (
    130, 80, 50, 40, 60, 150, 350, 640, 780, 560, 420, 430,
    480, 470, 460, 500, 620, 800, 820, 680, 560, 480, 400, 240,
)  # fmt: skip
_FRIDAY = (*_WORKDAY[:17], 840, 900, 860, 800, 820, 880, 900)
_SATURDAY = (
    860, 800, 640, 420, 240, 160, 160, 210, 280, 360, 440, 500,
    540, 540, 540, 560, 600, 660, 740, 800, 840, 900, 980, 1000,
)  # fmt: skip
_SUNDAY = (
    960, 880, 700, 480, 280, 170, 140, 160, 210, 290, 370, 430,
    460, 460, 460, 470, 500, 520, 520, 470, 410, 340, 260, 180,
)  # fmt: skip
# 1 January 1970 was a Thursday.
_EPOCH_MINUTE_OF_WEEK = 3 * 1_440

# The share of a ride's records that has arrived this many minutes after its request. It determines how many rides are
# needed for a number of records before the end; an error of 1 % does no harm.
_ARRIVED = ([0.0, 1.0, 8.0, 40.0], [0.0, 0.35, 0.6, 1.0])
_LATE_MINUTES = 400.0
# Extra records, in square roots of the count, so that every seed reaches the count before the end.
_COUNT_MARGIN = 3.0


def _week() -> Numbers:
    """Demand for each minute of the week, beginning on Monday."""
    hours = (*_WORKDAY * 4, *_FRIDAY, *_SATURDAY, *_SUNDAY)
    minutes = np.arange(SLOTS_PER_WEEK)
    at, part = minutes // 60, minutes % 60
    these = np.array(hours, dtype=np.int64)
    return (these[at] * (60 - part) + these[(at + 1) % len(hours)] * part) // 60


_WEEK = _week()
# Supply follows demand, but is too low at peak hours and more than enough at quiet ones.
_SUPPLY = 0.4 + 0.6 * _WEEK / 1000.0


class Demand:
    """The demand of one plan. Pages (one day each) are computed on demand and depend on the plan alone."""

    def __init__(self, plan: RidePlan, rng: CounterRng) -> None:
        self._plan = plan
        self._rng = rng
        self._sizes = np.array([city.size for city in plan.cities], dtype=np.int64)
        self._utc_minutes = np.array([city.utc_minutes for city in plan.cities], dtype=np.int64)
        # The sum of weights before each page computed so far.
        self._before = [0]
        self.rides_per_weight = self._solve()
        rides_per_day = self._rides_in_history() * DAY_MS / plan.span_ms
        cities = len(plan.cities)
        busy = rides_per_day * BUSY_MINUTES / 1_440
        # A driver is online 22 % of the time: 31 % by average diligence, times a supply of about 70 % at a usual hour.
        drivers = max(DRIVERS_PER_CITY_MIN * cities, round(busy / USUAL_USE / 0.22))
        riders = max(RIDERS_PER_CITY_MIN * cities, round(rides_per_day / RIDES_PER_RIDER_AND_DAY))
        self.drivers = plan.drivers or min(drivers, PEOPLE_MAX)
        self.riders = plan.riders or min(riders, PEOPLE_MAX)
        self.driver_firsts = self._first_ids(self.drivers)
        self.rider_firsts = self._first_ids(self.riders)
        self.rides_per_day = rides_per_day
        self.page = lru_cache(maxsize=3)(self._page)
        self.online = lru_cache(maxsize=2 * cities)(self._online)

    # -- rides ---------------------------------------------------------------------------------------------------------

    def _page(self, number: int) -> "DemandPage":
        while len(self._before) <= number:
            self._before.append(
                self._before[-1] + int(self._weights(len(self._before) - 1).sum(dtype=np.int64))
            )
        weights = self._weights(number)
        before = np.empty(weights.size + 1, dtype=np.int64)
        before[0] = self._before[number]
        np.cumsum(weights.reshape(-1), out=before[1:])
        before[1:] += before[0]
        return DemandPage(
            ride_firsts=np.floor(before * self.rides_per_weight).astype(np.int64),
            weights=weights,
            cities=len(self._plan.cities),
        )

    def _weights(self, page: int) -> Numbers:
        """The weights, for each slot of the page and each city."""
        slots = np.arange(page * SLOTS_PER_PAGE, (page + 1) * SLOTS_PER_PAGE, dtype=np.int64)
        week = _WEEK[self._minutes_of_week(slots)]
        cities = len(self._plan.cities)
        things = (slots[:, None] // 60) * cities + np.arange(cities)
        weather = 75 + self._rng.below(things, Purpose.WEATHER, 51)
        # The end of a match or concert: everyone wants to go home at once.
        weather[self._rng.uniform(things, Purpose.CONCERT) < 0.015] = 230
        return self._sizes * week * weather

    def _minutes_of_week(self, slots: Numbers) -> Numbers:
        minutes = self._plan.start_ms // MINUTE_MS + slots[:, None] + self._utc_minutes
        return (minutes + _EPOCH_MINUTE_OF_WEEK) % SLOTS_PER_WEEK

    def _solve(self) -> float:
        """Return rides per weight so that the requested number of records arrives before the end."""
        plan = self._plan
        wanted = float(plan.count or 0)
        if plan.count is not None:
            wanted += _COUNT_MARGIN * math.sqrt(wanted) + 10
        elif plan.rate is not None:
            wanted = plan.rate * plan.span_ms / 1000
        records_per_ride = events_per_ride(plan.fraud_share) * (
            1 + plan.duplicate_share * (1 - plan.malformed_share)
        )
        arrived = 0.0
        for page in range(self._pages):
            weights = self._weights(page).sum(axis=1)
            slots = np.arange(page * SLOTS_PER_PAGE, (page + 1) * SLOTS_PER_PAGE)
            age = plan.span_ms / MINUTE_MS - slots - 0.5
            part = np.interp(age, *_ARRIVED)
            part = part * (1 - plan.late_share * (1 - np.clip(age / _LATE_MINUTES, 0, 1)))
            arrived += float(np.cumsum(weights * np.where(age > 0, part, 0.0))[-1])
        return wanted / records_per_ride / arrived

    @property
    def _pages(self) -> int:
        """The number of pages of the history; the last one may be partial."""
        return -(-self._plan.span_ms // (SLOTS_PER_PAGE * MINUTE_MS))

    def _rides_in_history(self) -> float:
        slots = self._plan.span_ms // MINUTE_MS
        weights = 0
        for page in range(self._pages):
            weights += int(self._weights(page)[: slots - page * SLOTS_PER_PAGE].sum())
        return weights * self.rides_per_weight

    # -- drivers -------------------------------------------------------------------------------------------------------

    def _first_ids(self, people: int) -> Numbers:
        """The first id of each city, and the end of the last range. Ranges follow city size, with at least one id."""
        spare = people - len(self._sizes)
        before = np.concatenate([[0], np.cumsum(self._sizes)])
        firsts: Numbers = before * spare // before[-1] + np.arange(len(before))
        return firsts

    def _online(self, hour: int, city: int) -> Numbers:
        """Return the drivers online in that hour, in the order in which they get rides; at least one."""
        drivers = np.arange(self.driver_firsts[city], self.driver_firsts[city + 1], dtype=np.int64)
        supply = _SUPPLY[self._minutes_of_week(np.array([hour * 60 + 30]))[0, city]]
        diligence = self._rng.uniform(drivers, Purpose.DRIVER_DILIGENCE)
        # A few drivers are nearly always online, many rarely: so some drivers' ids are much more frequent than others'.
        chance = (0.08 + 0.92 * diligence * diligence * diligence) * supply
        drawn = self._rng.uniform(hour * self.drivers + drivers, Purpose.DRIVER_ONLINE)
        found = drivers[drawn < chance]
        if not len(found):
            found = drivers[:1]
        order = np.argsort(self._rng.words(found, Purpose.DRIVER_ORDER), kind="stable")
        in_turn: Numbers = found[order]
        return in_turn

    def surge(self, first_slot: int, last_slot: int) -> Numbers:
        """Return surge in tenths for each slot in [first_slot, last_slot) and each city; the slots are in one page."""
        hours = range(first_slot // 60, (last_slot - 1) // 60 + 1)
        found = np.concatenate([self._surge_of_hour(hour) for hour in hours])
        return found[first_slot - hours[0] * 60 : last_slot - hours[0] * 60]

    def _surge_of_hour(self, hour: int) -> Numbers:
        # The drivers are cached by hour, not by page: with millions of drivers, computing them takes most of the time.
        cities = len(self._plan.cities)
        page, begin = divmod(hour * 60, SLOTS_PER_PAGE)
        weights = self.page(page).weights[begin : begin + 60]
        online = np.array([len(self.online(hour, city)) for city in range(cities)])
        summed = weights.reshape(-1, SURGE_SLOTS, cities).sum(axis=1)
        asked = np.repeat(summed, SURGE_SLOTS, axis=0) * (self.rides_per_weight / SURGE_SLOTS)
        use = asked * BUSY_MINUTES / online
        tenths = np.floor(SURGE_MIN + SURGE_STEEPNESS * (use - SURGE_FROM) + 0.5)
        surge: Numbers = np.clip(tenths, SURGE_MIN, SURGE_MAX).astype(np.int64)
        return surge


class DemandPage:
    """The cells of a day, ordered by slot and then by city."""

    def __init__(self, *, ride_firsts: Numbers, weights: Numbers, cities: int) -> None:
        # The number of each cell's first ride, followed by that of the next page's first ride.
        self.ride_firsts = ride_firsts
        self.weights = weights
        counts = np.diff(ride_firsts).reshape(-1, cities)
        # How many rides the cell's city had in earlier slots of this page.
        self.city_firsts = np.cumsum(counts, axis=0) - counts
