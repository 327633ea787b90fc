"""`RideStream`: the events of a plan, in order of arrival.

Time is divided into buckets. The rides of a bucket are generated when it begins; their events are sorted into the
buckets in which they arrive, this one or later ones. No event arrives in a bucket before that of its ride. Thus:

```
  bucket      0          1          2          3
  rides made  ├──────────┤
  events        ▪▪▪▪▪▪▪▪▪▪ ▪▪▪▪▪▪     ▪          ▪    (on time, in transit, late)
```
a bucket is complete as soon as its own rides are generated. Events are ordered by arrival, then ride number, then
event time; this order does not depend on the length of buckets.
"""

from collections.abc import Iterator

import numpy as np

from respool.rides.counter_rng import CounterRng
from respool.rides.demand import MINUTE_MS, SLOTS_PER_PAGE, Demand
from respool.rides.event_maker import EventMaker
from respool.rides.event_table import EventTable, Field, empty_table
from respool.rides.ride_maker import RideMaker
from respool.rides.ride_plan import RidePlan

# The approximate number of rides per bucket, at which the overhead per bucket is negligible.
BUCKET_RIDES = 40_000
ROWS_MAX = 65_536
# Possible numbers of slots per bucket; each divides a page.
_BUCKET_SLOTS = (1_440, 720, 480, 240, 120, 60, 30, 15, 10, 5, 3, 2, 1)


class RideStream:
    """A stream is read once, from its start."""

    def __init__(self, plan: RidePlan, *, bucket_rides: int = BUCKET_RIDES) -> None:
        self.plan = plan
        rng = CounterRng(plan.seed)
        self.demand = Demand(plan, rng)
        self._rides = RideMaker(plan, self.demand, rng)
        self._events = EventMaker(plan, rng)
        wanted = bucket_rides / max(self.demand.rides_per_day / SLOTS_PER_PAGE, 1e-9)
        self._bucket_slots = next((slots for slots in _BUCKET_SLOTS if slots <= wanted), 1)
        # Bucket -> its events so far, ordered by ride.
        self._waiting: dict[int, list[EventTable]] = {}
        self._next_bucket = 0
        # The current bucket, and how many of its events were returned.
        self._open = empty_table()
        self._given = 0

    def history(self, *, rows_max: int = ROWS_MAX) -> Iterator[EventTable]:
        """Yield the events before the plan's end, or as many as its count, in tables of at most `rows_max`."""
        left = self.plan.count
        while left is None or left > 0:
            most = rows_max if left is None else min(rows_max, left)
            table = self.take(self.plan.until_ms, rows_max=most)
            if table is None:
                return
            if left is not None:
                left -= table.shape[1]
            yield table

    def take(self, before_ms: int, *, rows_max: int = ROWS_MAX) -> EventTable | None:
        """Return the next events that arrive before that time, or None if there are none."""
        while self._given == self._open.shape[1]:
            if self.plan.start_ms + self._next_bucket * self._bucket_ms >= before_ms:
                return None
            self._open, self._given = self._make_bucket(), 0
        end = int(np.searchsorted(self._open[Field.ARRIVED_MS], before_ms, side="left"))
        end = min(end, self._given + rows_max)
        if end <= self._given:
            return None
        table = self._open[:, self._given : end]
        self._given = end
        return np.ascontiguousarray(table)

    @property
    def _bucket_ms(self) -> int:
        return self._bucket_slots * MINUTE_MS

    def _make_bucket(self) -> EventTable:
        bucket = self._next_bucket
        first = bucket * self._bucket_slots
        made = self._events.make(self._rides.make(first, first + self._bucket_slots))
        self._distribute(made)
        self._next_bucket += 1
        parts = self._waiting.pop(bucket, [])
        return _in_order(np.concatenate([empty_table(), *parts], axis=1))

    def _distribute(self, made: EventTable) -> None:
        made = _in_order(made)
        bucket = (made[Field.ARRIVED_MS] - self.plan.start_ms) // self._bucket_ms
        ends = np.flatnonzero(np.diff(bucket, append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            # Copied, because a view would keep all of `made` in memory for a few late events.
            part = made[:, begin:end].copy()
            self._waiting.setdefault(int(bucket[begin]), []).append(part)
            begin = end


def _in_order(table: EventTable) -> EventTable:
    # Stable: events that arrive in the same millisecond stay in the order of their rides.
    return table[:, np.argsort(table[Field.ARRIVED_MS], kind="stable")]
