"""A counter-based random generator: a draw depends on seed, thing and purpose only, not on the order of draws.

So a stream of rides does not depend on its division into batches. A draw is a mixed 64-bit word (by the finalizer of
splitmix64, which is a bijection, so that different numbers never get the same id).

Floats are computed from draws with + - * / and comparisons only: unlike with exp or cos, the results are the same on
every machine and for every array length.
"""

from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a draw is for. Append new purposes at the end: another order changes the rides of every seed."""

    RIDE_ID = auto()
    EVENT_ID = auto()
    WEATHER = auto()
    CONCERT = auto()
    DRIVER_ORDER = auto()
    DRIVER_DILIGENCE = auto()
    DRIVER_ONLINE = auto()
    REQUESTED = auto()
    OUTCOME = auto()
    RIDER = auto()
    NEWCOMER = auto()
    DISTANCE = auto()
    SPEED = auto()
    FARE = auto()
    PAYMENT = auto()
    RIDER_PAYMENT = auto()
    RIDER_DEVICE = auto()
    PLACE = auto()
    DIRECTION = auto()
    FRAUD = auto()
    FRAUD_SIZE = auto()
    RING = auto()
    RING_RIDER = auto()
    RING_DRIVER = auto()
    ASSIGNED = auto()
    STARTED = auto()
    CANCELLED = auto()
    PAID = auto()
    OFFLINE = auto()
    OFFLINE_STAGE = auto()
    OFFLINE_LAG = auto()
    TRAVEL = auto()
    MALFORMED = auto()
    MALFORMED_KIND = auto()
    DUPLICATE = auto()
    DUPLICATE_LAG = auto()


class CounterRng:
    def __init__(self, seed: int) -> None:
        self._salts = {purpose: _mixed(_mixed(seed & _MASK) + purpose) for purpose in Purpose}

    def words(self, things: Numbers, purpose: Purpose) -> Words:
        """Return a distinct 64-bit word for each thing."""
        return mix(things.astype(np.uint64) * np.uint64(_STEP) + np.uint64(self._salts[purpose]))

    def uniform(self, things: Numbers, purpose: Purpose) -> Floats:
        """Return a number in [0, 1) for each thing."""
        return uniform(self.words(things, purpose))

    def below(self, things: Numbers, purpose: Purpose, limit: int) -> Numbers:
        """Return an integer in [0, limit) for each thing."""
        return below(self.words(things, purpose), np.int64(limit))


def mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def uniform(words: Words) -> Floats:
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(words: Words, limits: Numbers | np.int64) -> Numbers:
    """Map words to integers below the limits, which must be below 2**32."""
    scaled = (words >> np.uint64(32)) * np.asarray(limits).astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def spread(chances: Floats, *points: tuple[float, float]) -> Floats:
    """Map chances from 0 to 1 to amounts, by linear interpolation between points (chance, amount)."""
    return np.interp(chances, [point[0] for point in points], [point[1] for point in points])


def _mixed(word: int) -> int:
    word = (word + _STEP) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
