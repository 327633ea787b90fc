"""Generates the events of rides: when each happened, when it arrived, and which defects it has.

```
  requested ──► assigned ──► started ──► finished ──► paid
      └────────────┴───────► cancelled
```
Events of a ride arrive in the order in which they happened. A phone that loses its network delays that event and all
later ones of the ride, so they are late together and still in order. Only the second copy of a duplicate may arrive
after a later event.
"""

import numpy as np
from numpy.typing import NDArray

from respool.rides.counter_rng import CounterRng, Floats, Numbers, Purpose, spread
from respool.rides.event_table import NOTHING, EventTable, Field, marks
from respool.rides.outcomes import (
    STAGES,
    STAGES_MAX,
    EventType,
    Malformed,
    RideOutcome,
    events_per_ride,
    late_events_per_late_ride,
)
from respool.rides.ride_maker import CASH, Rides
from respool.rides.ride_plan import RidePlan

# Network delay of a record, in ms; late events are delayed by at least LATE_MS_MIN.
TRAVEL_MS_MAX = 2_000
LATE_MS_MIN = 5 * 60_000
LATE_MS_MAX = 40 * 3_600_000
DUPLICATE_MS_MIN, DUPLICATE_MS_MAX = 200, 120_000
# Upper bound on the number of stages, for numbering draws.
_STAGE_NUMBERS = 8

# The event type by outcome and stage.
_TYPES = np.array(
    [
        [
            EventType.REQUESTED,
            EventType.ASSIGNED,
            EventType.STARTED,
            EventType.FINISHED,
            EventType.PAID,
        ],
        [EventType.REQUESTED, EventType.CANCELLED, NOTHING, NOTHING, NOTHING],
        [EventType.REQUESTED, EventType.ASSIGNED, EventType.CANCELLED, NOTHING, NOTHING],
    ],
    dtype=np.int64,
)
_STAGES = np.array([STAGES[outcome] for outcome in RideOutcome], dtype=np.int64)


class EventMaker:
    def __init__(self, plan: RidePlan, rng: CounterRng) -> None:
        self._plan = plan
        self._rng = rng
        late_events = late_events_per_late_ride(plan.fraud_share)
        self._late_rides = plan.late_share * events_per_ride(plan.fraud_share) / late_events

    def make(self, rides: Rides) -> EventTable:
        """Return the events, ordered by ride, by stage within a ride, and by copy of an event."""
        stages = np.arange(STAGES_MAX)
        happened = self._happened(rides)
        is_there = stages < _STAGES[rides.outcome][:, None]
        is_late, lag_ms = self._lateness(rides)
        things = rides.number[:, None] * _STAGE_NUMBERS + stages
        arrived = happened + lag_ms + self._travel_ms(things)
        # An event never arrives before an earlier one of its ride: the broker stores them in this order.
        for stage in range(1, STAGES_MAX):
            np.maximum(arrived[:, stage], arrived[:, stage - 1] + 1, out=arrived[:, stage])
        malformed = self._malformed(things)
        is_twice = (malformed == Malformed.NONE) & (
            self._rng.uniform(things, Purpose.DUPLICATE) < self._plan.duplicate_share
        )
        # Each event, followed by its second copy if it is a duplicate.
        wanted = np.stack([is_there, is_there & is_twice], axis=2).reshape(-1)
        found = np.flatnonzero(wanted)
        event, copy = found // 2, found % 2
        again_ms = self._duplicate_lags(things.reshape(-1)[event]) * copy
        table: EventTable = np.empty((len(Field), len(found)), dtype=np.int64)
        table[Field.ARRIVED_MS] = arrived.reshape(-1)[event] + again_ms
        table[Field.EVENT_MS] = happened.reshape(-1)[event]
        table[Field.MALFORMED] = malformed.reshape(-1)[event]
        ids = self._rng.words(things.reshape(-1)[event], Purpose.EVENT_ID)
        table[Field.EVENT_ID] = ids.view(np.int64)
        row = event // STAGES_MAX
        table[Field.MARKS] = marks(
            is_late=is_late.reshape(-1)[event], is_duplicate=copy == 1, fraud=rides.fraud[row]
        )
        _fill_in(table, rides, row, _TYPES[rides.outcome[row], event % STAGES_MAX])
        return table

    def _happened(self, rides: Rides) -> Numbers:
        rng, number = self._rng, rides.number
        happened: Numbers = np.empty((len(rides), STAGES_MAX), dtype=np.int64)
        wait = spread(rng.uniform(number, Purpose.ASSIGNED), (0, 4_000), (0.7, 35_000), (1, 95_000))
        pickup = spread(
            rng.uniform(number, Purpose.STARTED), (0, 60_000), (0.5, 300_000), (1, 900_000)
        )
        patience = spread(
            rng.uniform(number, Purpose.CANCELLED), (0, 15_000), (0.6, 120_000), (1, 420_000)
        )
        # Payment in cash takes time; a card is charged at once.
        paying = spread(rng.uniform(number, Purpose.PAID), (0, 800), (0.9, 6_000), (1, 45_000))
        paying = paying + np.where(rides.payment == CASH, 20_000, 0)
        happened[:, 0] = rides.requested_ms
        happened[:, 1] = happened[:, 0] + np.where(
            rides.outcome == RideOutcome.CANCELLED_BEFORE_DRIVER, _ms(patience), _ms(wait)
        )
        happened[:, 2] = happened[:, 1] + np.where(
            rides.outcome == RideOutcome.CANCELLED_AFTER_DRIVER, _ms(patience), _ms(pickup)
        )
        happened[:, 3] = happened[:, 2] + rides.duration_s * 1000
        happened[:, 4] = happened[:, 3] + _ms(paying)
        return happened

    def _lateness(self, rides: Rides) -> tuple[NDArray[np.bool_], Numbers]:
        """Return, for each ride and stage, whether the event is late and by how many milliseconds."""
        rng, number = self._rng, rides.number
        is_offline = rng.uniform(number, Purpose.OFFLINE) < self._late_rides
        from_stage = np.floor(
            rng.uniform(number, Purpose.OFFLINE_STAGE) * _STAGES[rides.outcome]
        ).astype(np.int64)
        is_late = is_offline[:, None] & (np.arange(STAGES_MAX) >= from_stage[:, None])
        minute, hour = 60_000.0, 3_600_000.0
        lag = spread(
            rng.uniform(number, Purpose.OFFLINE_LAG),
            (0, LATE_MS_MIN),
            (0.6, 30 * minute),
            (0.85, 2 * hour),
            (0.95, 7 * hour),
            (0.96, 24 * hour),
            (1, LATE_MS_MAX),
        )
        return is_late, is_late * _ms(lag)[:, None]

    def _travel_ms(self, things: Numbers) -> Numbers:
        chance = self._rng.uniform(things, Purpose.TRAVEL)
        return _ms(spread(chance, (0, 30), (0.8, 150), (0.98, 600), (1, TRAVEL_MS_MAX)))

    def _malformed(self, things: Numbers) -> Numbers:
        is_malformed = self._rng.uniform(things, Purpose.MALFORMED) < self._plan.malformed_share
        kind = 1 + self._rng.below(things, Purpose.MALFORMED_KIND, len(Malformed) - 1)
        return np.where(is_malformed, kind, int(Malformed.NONE))

    def _duplicate_lags(self, things: Numbers) -> Numbers:
        chance = self._rng.uniform(things, Purpose.DUPLICATE_LAG)
        return _ms(spread(chance, (0, DUPLICATE_MS_MIN), (0.8, 5_000), (1, DUPLICATE_MS_MAX)))


def _ms(amounts: Floats) -> Numbers:
    return amounts.astype(np.int64)


def _fill_in(table: EventTable, rides: Rides, row: Numbers, types: Numbers) -> None:
    """Fill the fields that are known at the time of each event."""
    is_cancelled = types == EventType.CANCELLED
    is_over = (types == EventType.FINISHED) | (types == EventType.PAID)
    has_driver = types != EventType.REQUESTED
    has_driver &= rides.outcome[row] != RideOutcome.CANCELLED_BEFORE_DRIVER
    table[Field.TYPE] = types
    table[Field.RIDE_ID] = rides.ride_id[row].view(np.int64)
    table[Field.CITY] = rides.city[row]
    table[Field.RIDER] = rides.rider[row]
    table[Field.DRIVER] = np.where(has_driver, rides.driver[row], NOTHING)
    table[Field.LAT] = np.where(is_over, rides.to_lat[row], rides.from_lat[row])
    table[Field.LON] = np.where(is_over, rides.to_lon[row], rides.from_lon[row])
    fee = np.where(is_cancelled & has_driver, rides.fee_cents[row], NOTHING)
    table[Field.FARE] = np.where(is_over, rides.fare_cents[row], fee)
    table[Field.DISTANCE] = np.where(is_over, rides.distance_10m[row], NOTHING)
    table[Field.DURATION] = np.where(is_over, rides.duration_s[row], NOTHING)
    table[Field.SURGE] = rides.surge_tenths[row]
    table[Field.PAYMENT] = rides.payment[row]
    table[Field.DEVICE] = rides.device[row]
