"""Which rides are fraudulent, by which pattern, and by which riders and drivers.

- fake GPS: a phone reports more kilometres than can be driven in the time, and the fare includes them.
- collusion: many short rides with the same rider and driver.
- stolen payment: a new rider takes a burst of long, expensive rides paid by card.
- fare inflation: a fare far above the price list.

Rings commit collusion and stolen payments: all such rides of a city in a block of time are assigned to rings of about
RIDES_PER_RING rides each, and a ring is one rider (and, for collusion, one driver).
"""

import math

import numpy as np

from respool.rides.counter_rng import CounterRng, Numbers, Purpose, below
from respool.rides.demand import SLOTS_PER_PAGE, Demand
from respool.rides.outcomes import Fraud
from respool.rides.ride_plan import RidePlan

# Pattern -> how many rides a ring makes, and its shortest block of time, in slots.
RIDES_PER_RING = {Fraud.COLLUSION: 12, Fraud.STOLEN_PAYMENT: 6}
_BLOCK_SLOTS_MIN = {Fraud.COLLUSION: SLOTS_PER_PAGE, Fraud.STOLEN_PAYMENT: 120}
# With few rides, a ring's block is longer, up to this.
_BLOCK_SLOTS_MAX = 7 * SLOTS_PER_PAGE
_PATTERNS = len(Fraud) - 1
_NEW_NUMBERS = 9_000_000


class FraudRings:
    def __init__(self, plan: RidePlan, demand: Demand, rng: CounterRng) -> None:
        self._share = plan.fraud_share
        self._demand = demand
        self._rng = rng
        sizes = [city.size for city in plan.cities]
        rides_per_slot = demand.rides_per_day / SLOTS_PER_PAGE * self._share / _PATTERNS
        # Pattern -> for each city the length of its blocks, and the number of rings in each block.
        self._blocks: dict[Fraud, tuple[Numbers, Numbers]] = {}
        for pattern, rides in RIDES_PER_RING.items():
            per_slot = [rides_per_slot * size / sum(sizes) for size in sizes]
            blocks = [_block_slots(pattern, rides, one) for one in per_slot]
            rings = [
                max(1, round(one * block / rides))
                for one, block in zip(per_slot, blocks, strict=True)
            ]
            self._blocks[pattern] = np.array(blocks), np.array(rings)

    def patterns(self, number: Numbers) -> Numbers:
        """Return the pattern of each ride; NONE for honest rides."""
        chance = self._rng.uniform(number, Purpose.FRAUD)
        if not self._share:
            return np.zeros(len(number), dtype=np.int64)
        pattern = np.floor(chance / self._share * _PATTERNS).astype(np.int64) + 1
        return np.where(chance < self._share, np.minimum(pattern, _PATTERNS), int(Fraud.NONE))

    def take_over(
        self,
        number: Numbers,
        *,
        slot: Numbers,
        city: Numbers,
        fraud: Numbers,
        rider: Numbers,
        driver: Numbers,
    ) -> None:
        """Replace riders and drivers of fraudulent rides by those of the rings, in place."""
        for pattern, (blocks, rings) in self._blocks.items():
            here = np.flatnonzero(fraud == pattern)
            where = city[here]
            block = slot[here] // blocks[where]
            turn = below(self._rng.words(number[here], Purpose.RING), rings[where])
            # A number that is unique over cities, blocks and patterns.
            ring = ((block * 4 + pattern) * 4096 + where) * 1_048_576 + turn
            who = self._rng.words(ring, Purpose.RING_RIDER)
            if pattern == Fraud.STOLEN_PAYMENT:
                rider[here] = self._demand.riders + below(who, np.int64(_NEW_NUMBERS))
                continue
            riders, drivers = self._demand.rider_firsts, self._demand.driver_firsts
            rider[here] = riders[where] + below(who, np.diff(riders)[where])
            driver[here] = drivers[where] + below(
                self._rng.words(ring, Purpose.RING_DRIVER), np.diff(drivers)[where]
            )


def _block_slots(pattern: Fraud, rides: int, per_slot: float) -> int:
    least = _BLOCK_SLOTS_MIN[pattern]
    if per_slot <= 0:
        return least
    return min(_BLOCK_SLOTS_MAX, least * max(1, math.ceil(rides / per_slot / least)))
