"""Generates the rides requested in given slots: rider, driver, route, distance, fare.

Everything about a ride follows from its number, its cell and the plan. Amounts are integers: hundredths of the
currency, tens of metres, hundred-thousandths of a degree, tenths of surge; so they can be formatted without rounding.
"""

import math
from dataclasses import dataclass

import numpy as np

from respool.rides.counter_rng import (
    CounterRng,
    Floats,
    Numbers,
    Purpose,
    Words,
    below,
    mix,
    spread,
    uniform,
)
from respool.rides.demand import MINUTE_MS, SLOTS_PER_PAGE, Demand
from respool.rides.fraud_patterns import FraudRings
from respool.rides.outcomes import CANCELLED_AFTER, CANCELLED_BEFORE, Fraud, RideOutcome
from respool.rides.ride_plan import RidePlan

PAYMENT_METHODS = ("card", "wallet", "cash", "invoice")
DEVICES = ("ios", "android", "web")
CARD = PAYMENT_METHODS.index("card")
CASH = PAYMENT_METHODS.index("cash")

# Share of honest rides by new riders: without them, a new rider would always mean fraud.
NEWCOMER_SHARE = 0.02
NEWCOMER_NUMBERS = 9_000_000
# Payment methods of riders: 60, 25, 10 and 5 %. In one of ten rides, the rider uses a random method.
_PAYMENT_CHANCES = np.array([0.60, 0.85, 0.95])
_DEVICE_CHANCES = np.array([0.48, 0.95])
# A degree of latitude in tens of metres, and the ratio of straight-line distance to route length.
_DEGREE_10M = 11_120.0
_STRAIGHT = 0.75
_DIRECTIONS = np.array(
    [
        (round(math.sin(2 * math.pi * n / 64), 9), round(math.cos(2 * math.pi * n / 64), 9))
        for n in range(64)
    ]
)
# The price list, in euro cents: base fare, per kilometre, per minute.
FARE_BASE, FARE_KM, FARE_MINUTE = 250, 115, 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Rides:
    """Columns with one row for each ride, in the order of ride numbers."""

    number: Numbers
    ride_id: Words
    city: Numbers
    requested_ms: Numbers
    outcome: Numbers
    fraud: Numbers
    rider: Numbers
    driver: Numbers
    distance_10m: Numbers
    duration_s: Numbers
    fare_cents: Numbers
    # The cancellation fee after a driver was assigned.
    fee_cents: Numbers
    surge_tenths: Numbers
    payment: Numbers
    device: Numbers
    # Start and end, in hundred-thousandths of a degree.
    from_lat: Numbers
    from_lon: Numbers
    to_lat: Numbers
    to_lon: Numbers

    def __len__(self) -> int:
        return len(self.number)


class RideMaker:
    def __init__(self, plan: RidePlan, demand: Demand, rng: CounterRng) -> None:
        self._plan = plan
        self._demand = demand
        self._rng = rng
        self._rings = FraudRings(plan, demand, rng)
        cities = plan.cities
        self._price = np.array([city.price_percent for city in cities], dtype=np.float64) / 100
        self._lat = np.array([city.lat for city in cities])
        self._lon = np.array([city.lon for city in cities])
        self._lon_scale = np.array([city.lon_scale for city in cities])
        # A continuous distribution with density proportional to rank^(-2/3), sampled by its inverse, a cube.
        counts = np.diff(demand.rider_firsts)
        self._rider_root = np.array([round(count ** (1 / 3), 9) for count in counts.tolist()])
        self._rider_counts = counts

    def make(self, first_slot: int, last_slot: int) -> Rides:
        """Return the rides of the slots in [first_slot, last_slot), which must be in one page."""
        page_number = first_slot // SLOTS_PER_PAGE
        assert page_number == (last_slot - 1) // SLOTS_PER_PAGE, (first_slot, last_slot)
        page = self._demand.page(page_number)
        cities = len(self._plan.cities)
        first = (first_slot - page_number * SLOTS_PER_PAGE) * cities
        last = (last_slot - page_number * SLOTS_PER_PAGE) * cities
        firsts = page.ride_firsts[first : last + 1]
        cell = np.repeat(np.arange(first, last), np.diff(firsts))
        number = np.arange(firsts[0], firsts[-1], dtype=np.int64)
        slot_in_page, city = cell // cities, cell % cities
        slot = slot_in_page + page_number * SLOTS_PER_PAGE
        turn = page.city_firsts.reshape(-1)[cell] + number - page.ride_firsts[cell]
        surge = self._demand.surge(first_slot, last_slot).reshape(-1)[cell - first]
        return self._rides(number, slot, city, turn, surge)

    def _rides(
        self, number: Numbers, slot: Numbers, city: Numbers, turn: Numbers, surge: Numbers
    ) -> Rides:
        rng = self._rng
        fraud = self._rings.patterns(number)
        rider = self._riders(number, city)
        driver = self._drivers(slot, city, turn)
        self._rings.take_over(number, slot=slot, city=city, fraud=fraud, rider=rider, driver=driver)

        distance_km = self._distances(number, fraud)
        speed = self._speeds(number, fraud, surge)
        duration_s = np.floor(distance_km * 3600 / speed).astype(np.int64) + 60
        cheating = 1 + rng.uniform(number, Purpose.FRAUD_SIZE)
        # Fake GPS: the times are correct, the distance is false.
        is_fake = fraud == Fraud.FAKE_GPS
        distance_km = np.where(is_fake, duration_s * (200 * cheating) / 3600, distance_km)
        distance_10m = np.floor(distance_km * 100).astype(np.int64)

        price = self._price[city]
        fare = FARE_BASE + FARE_KM * distance_10m / 100 + FARE_MINUTE * duration_s / 60
        fare = fare * surge / 10 * price * (0.97 + 0.06 * rng.uniform(number, Purpose.FARE))
        fare = np.where(fraud == Fraud.FARE_INFLATION, fare * (0.9 + 0.9 * cheating), fare)
        payment, device = self._ways_to_pay(number, rider, fraud)
        places = self._places(number, city, distance_10m)
        return Rides(
            number=number,
            ride_id=rng.words(number, Purpose.RIDE_ID),
            city=city,
            requested_ms=self._plan.start_ms
            + slot * MINUTE_MS
            + rng.below(number, Purpose.REQUESTED, MINUTE_MS),
            outcome=self._outcomes(number, fraud),
            fraud=fraud,
            rider=rider,
            driver=driver,
            distance_10m=distance_10m,
            duration_s=duration_s,
            fare_cents=np.floor(fare).astype(np.int64),
            fee_cents=np.floor(350 * price).astype(np.int64),
            surge_tenths=surge,
            payment=payment,
            device=device,
            from_lat=places[0],
            from_lon=places[1],
            to_lat=places[2],
            to_lon=places[3],
        )

    def _riders(self, number: Numbers, city: Numbers) -> Numbers:
        chance = self._rng.uniform(number, Purpose.RIDER)
        root = chance * (self._rider_root[city] - 1) + 1
        counts = self._rider_counts[city]
        rank = np.minimum(np.floor(root * root * root).astype(np.int64) - 1, counts - 1)
        # Ranks are shuffled within the city, by a prime, so that the busiest riders do not have the lowest ids.
        known = self._demand.rider_firsts[city] + (rank * 2_147_483_647 + 12_345) % counts
        words = self._rng.words(number, Purpose.NEWCOMER)
        # One draw is used twice: its upper bits decide whether the rider is new, and, mixed again, it decides which
        # one.
        is_new = uniform(words) < NEWCOMER_SHARE
        return np.where(
            is_new, self._demand.riders + below(mix(words), np.int64(NEWCOMER_NUMBERS)), known
        )

    def _drivers(self, slot: Numbers, city: Numbers, turn: Numbers) -> Numbers:
        """Online drivers take rides in turn, so that two rides of a driver rarely overlap."""
        driver: Numbers = np.empty(len(slot), dtype=np.int64)
        cities = len(self._plan.cities)
        group = (slot // 60) * cities + city
        for one in np.unique(group).tolist():
            online = self._demand.online(one // cities, one % cities)
            here = group == one
            driver[here] = online[turn[here] % len(online)]
        return driver

    def _outcomes(self, number: Numbers, fraud: Numbers) -> Numbers:
        chance = self._rng.uniform(number, Purpose.OUTCOME)
        outcome = np.where(
            chance < CANCELLED_BEFORE,
            int(RideOutcome.CANCELLED_BEFORE_DRIVER),
            np.where(
                chance < CANCELLED_BEFORE + CANCELLED_AFTER,
                int(RideOutcome.CANCELLED_AFTER_DRIVER),
                int(RideOutcome.PAID),
            ),
        )
        outcome[fraud != Fraud.NONE] = RideOutcome.PAID
        return outcome

    def _distances(self, number: Numbers, fraud: Numbers) -> Floats:
        chance = self._rng.uniform(number, Purpose.DISTANCE)
        usual = spread(chance, (0, 0.6), (0.25, 2.4), (0.5, 4.6), (0.8, 10), (0.95, 21), (1, 42))
        short = 0.5 + 0.9 * chance
        long = 16 + 26 * chance
        return np.select(
            [fraud == Fraud.COLLUSION, fraud == Fraud.STOLEN_PAYMENT], [short, long], usual
        )

    def _speeds(self, number: Numbers, fraud: Numbers, surge: Numbers) -> Floats:
        """Kilometres per hour: slower when traffic is dense."""
        speed = spread(self._rng.uniform(number, Purpose.SPEED), (0, 14), (0.5, 27), (1, 52))
        speed = np.where(fraud == Fraud.STOLEN_PAYMENT, speed + 10, speed)
        slowed: Floats = speed / (0.7 + 0.03 * surge)
        return slowed

    def _ways_to_pay(
        self, number: Numbers, rider: Numbers, fraud: Numbers
    ) -> tuple[Numbers, Numbers]:
        rng = self._rng
        usual = np.searchsorted(_PAYMENT_CHANCES, rng.uniform(rider, Purpose.RIDER_PAYMENT))
        chance = rng.uniform(number, Purpose.PAYMENT)
        other = np.floor(chance * 40).astype(np.int64)
        payment = np.where(chance < 0.1, other, usual)
        # Stolen payments use cards.
        payment = np.where(fraud == Fraud.STOLEN_PAYMENT, CARD, payment)
        device = np.searchsorted(_DEVICE_CHANCES, rng.uniform(rider, Purpose.RIDER_DEVICE))
        return payment.astype(np.int64), device.astype(np.int64)

    def _places(
        self, number: Numbers, city: Numbers, distance_10m: Numbers
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        words = self._rng.words(number, Purpose.PLACE)
        # Two draws for each coordinate: more rides begin in the centre than at the edge.
        more = mix(words)
        north = (uniform(words) + uniform(mix(more)) - 1) * 0.11
        east = (uniform(more) + uniform(mix(words ^ more)) - 1) * 0.11 / self._lon_scale[city]
        lat, lon = self._lat[city] + north, self._lon[city] + east
        towards = _DIRECTIONS[self._rng.below(number, Purpose.DIRECTION, len(_DIRECTIONS))]
        degrees = distance_10m * (_STRAIGHT / _DEGREE_10M)
        to_lat = lat + degrees * towards[:, 0]
        to_lon = lon + degrees * towards[:, 1] / self._lon_scale[city]
        return _hundred_thousandths(lat, lon, to_lat, to_lon)


def _hundred_thousandths(*degrees: Floats) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    a, b, c, d = (np.floor(one * 100_000 + 0.5).astype(np.int64) for one in degrees)
    return a, b, c, d
