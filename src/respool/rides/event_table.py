"""An event table: an integer array with one row for each field and one column for each event.

```
            event 0   event 1   …
ARRIVED_MS  …         …             the record's timestamp, which orders a stream
EVENT_MS    …         …             when the event happened
…
```
It is one array, so that sorting, slicing and concatenating are one operation each, and one kernel can read it. Ids are
64-bit words, stored as signed integers. NOTHING stands for null.
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
    # Flags, see below. They are part of the truth, not of the event.
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
    """`Fraud.NONE`, or the fraud pattern of the event's ride."""
    found: Numbers = table[Field.MARKS] >> _FRAUD_SHIFT
    assert not len(found) or found.max() < len(Fraud)
    return found


def empty_table() -> EventTable:
    return np.empty((len(Field), 0), dtype=np.int64)
