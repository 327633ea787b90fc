"""An event table: whole numbers, one row of the array for each field, one column for each event.

```
            event 0   event 1   …
ARRIVED_MS  …         …             the record's timestamp, by which a stream is in order
EVENT_MS    …         …             when it happened
…
```
One array, so that sorting, slicing and concatenating are one step each, and one kernel reads it. Ids are 64-bit words,
kept as signed numbers. NOTHING stands for null.
"""

from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from respool.rides.counter_rng import Numbers
from respool.rides.outcomes import Fraud

EventTable = NDArray[np.int64]
NOTHING = -1


class Field(IntEnum):
    ARRIVED_MS = 0
    EVENT_MS = auto()
    RIDE_ID = auto()
    EVENT_ID = auto()
    TYPE = auto()
    CITY = auto()
    RIDER = auto()
    DRIVER = auto()
    LAT = auto()
    LON = auto()
    FARE = auto()
    DISTANCE = auto()
    DURATION = auto()
    SURGE = auto()
    PAYMENT = auto()
    DEVICE = auto()
    MALFORMED = auto()
    # Bits: see below. Part of the truth, not of the event.
    MARKS = auto()


IS_LATE = 1
IS_DUPLICATE = 2
_FRAUD_SHIFT = 2


def marks(
    *, is_late: NDArray[np.bool_], is_duplicate: NDArray[np.bool_], fraud: Numbers
) -> Numbers:
    found: Numbers = is_late * IS_LATE + is_duplicate * IS_DUPLICATE + (fraud << _FRAUD_SHIFT)
    return found


def is_late(table: EventTable) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (table[Field.MARKS] & IS_LATE) != 0
    return found


def is_duplicate(table: EventTable) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (table[Field.MARKS] & IS_DUPLICATE) != 0
    return found


def fraud_of(table: EventTable) -> Numbers:
    """`Fraud.NONE`, or the pattern of the event's ride."""
    found: Numbers = table[Field.MARKS] >> _FRAUD_SHIFT
    assert not len(found) or found.max() < len(Fraud)
    return found


def empty_table() -> EventTable:
    return np.empty((len(Field), 0), dtype=np.int64)
