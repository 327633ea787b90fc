"""Plans and their events, for tests."""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from respool.rides.event_table import EventTable, Field, empty_table
from respool.rides.records import RecordMaker
from respool.rides.ride_plan import DAY_MS, RidePlan
from respool.rides.ride_stream import BUCKET_RIDES, ROWS_MAX, RideStream

UNTIL_MS = 1_763_164_800_000  # 2025-11-15T00:00:00Z, a Saturday


def plan(*, days: float = 1, **changed: Any) -> RidePlan:
    wanted: dict[str, Any] = {
        "seed": 7,
        "start_ms": UNTIL_MS - int(days * DAY_MS),
        "until_ms": UNTIL_MS,
        "malformed_share": 0.01,
        "duplicate_share": 0.01,
        **changed,
    }
    return RidePlan(**wanted)


def all_events(
    plan: RidePlan, *, rows_max: int = ROWS_MAX, bucket_rides: int = BUCKET_RIDES
) -> EventTable:
    stream = RideStream(plan, bucket_rides=bucket_rides)
    return np.concatenate([empty_table(), *stream.history(rows_max=rows_max)], axis=1)


def records(plan: RidePlan, table: EventTable) -> pa.RecordBatch:
    return RecordMaker(plan.cities).make(np.ascontiguousarray(table))


def well_formed(table: EventTable) -> EventTable:
    return np.ascontiguousarray(table[:, table[Field.MALFORMED] == 0])


def parsed(plan: RidePlan, table: EventTable) -> list[dict[str, Any]]:
    return [json.loads(value) for value in records(plan, table)["value"].to_pylist()]
