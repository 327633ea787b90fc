"""Counts of generated events, and the truth about them that is not part of them.

Detectors of fraud or duplicates can be scored with the truth. It has one row for each
fraudulent ride, and one for each event that is late, malformed or a duplicate:

| kind      | pattern                  | event_id, event_type | event_time, recorded_at |
|-----------|--------------------------|----------------------|-------------------------|
| fraud     | fake_gps, collusion, ... | null                 | of the request          |
| malformed | truncated, not_json, ... | yes                  | yes                     |
| late      | late                     | yes                  | yes                     |
| duplicate | duplicate                | yes                  | of the repetition       |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from respool.rides.counter_rng import Numbers
from respool.rides.event_table import EventTable, Field, fraud_of, is_duplicate, is_late
from respool.rides.outcomes import EventType, Fraud, Malformed
from respool.rides.records import TIME

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("pattern", pa.string()),
        ("ride_id", pa.string()),
        ("event_id", pa.string()),
        ("event_type", pa.string()),
        ("event_time", TIME),
        ("recorded_at", TIME),
    ]
)
_WORD = (1 << 64) - 1


def truth_of(table: EventTable) -> pa.Table:
    """Return the rows for these events, ordered by kind. A fraudulent ride is reported with its first event."""
    is_again = is_duplicate(table)
    is_first = (table[Field.TYPE] == EventType.REQUESTED) & ~is_again
    fraud = np.where(is_first, fraud_of(table), int(Fraud.NONE))
    late, again = is_late(table).astype(np.int64), is_again.astype(np.int64)
    return pa.concat_tables(
        [
            _rows(table, fraud, "fraud", [one.name for one in Fraud]),
            _rows(table, table[Field.MALFORMED], "malformed", [one.name for one in Malformed]),
            _rows(table, late, "late", ["", "late"]),
            _rows(table, again, "duplicate", ["", "duplicate"]),
        ]
    )


def _rows(table: EventTable, which: Numbers, kind: str, patterns: Sequence[str]) -> pa.Table:
    """Return rows for the events whose `which` is not 0. They are few, so one object each is acceptable."""
    found = table[:, which != 0]
    is_ride = kind == "fraud"
    events = [None if is_ride else f"{one & _WORD:016x}" for one in found[Field.EVENT_ID].tolist()]
    types = [None if is_ride else EventType(one).name.lower() for one in found[Field.TYPE].tolist()]
    return pa.table(
        [
            pa.array([kind] * found.shape[1], pa.string()),
            pa.array([patterns[one].lower() for one in which[which != 0].tolist()], pa.string()),
            pa.array(
                [f"ride-{one & _WORD:016x}" for one in found[Field.RIDE_ID].tolist()], pa.string()
            ),
            pa.array(events, pa.string()),
            pa.array(types, pa.string()),
            pa.array(found[Field.EVENT_MS]).cast(TIME),
            pa.array(found[Field.ARRIVED_MS]).cast(TIME),
        ],
        schema=SCHEMA,
    )


class TruthFile:
    """A Parquet file with the truth; it is complete when closed."""

    def __init__(self, path: Path) -> None:
        self._writer = parquet.ParquetWriter(path, SCHEMA, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, table: EventTable) -> None:
        self._writer.write_table(truth_of(table))


class RideTally:
    """Counts of events, for the summary and for checks of a pipeline's result."""

    def __init__(self) -> None:
        self.events = 0
        # Counts by event type, fraud pattern and defect. Each copy of an event counts; fraud counts rides.
        self.types = np.zeros(len(EventType), dtype=np.int64)
        self.frauds = np.zeros(len(Fraud), dtype=np.int64)
        self.malformed = np.zeros(len(Malformed), dtype=np.int64)
        self.late = 0
        self.duplicates = 0
        self.rides = 0
        # First and last time of arrival; -1 if there is none.
        self.first_ms = -1
        self.last_ms = -1

    def add(self, table: EventTable) -> None:
        rows = table.shape[1]
        if not rows:
            return
        is_again = is_duplicate(table)
        is_first = (table[Field.TYPE] == EventType.REQUESTED) & ~is_again
        self.events += rows
        self.rides += int(is_first.sum())
        self.late += int(is_late(table).sum())
        self.duplicates += int(is_again.sum())
        self.types += _counts(table[Field.TYPE], len(EventType))
        self.frauds += _counts(fraud_of(table)[is_first], len(Fraud))
        self.malformed += _counts(table[Field.MALFORMED], len(Malformed))
        if self.first_ms < 0:
            self.first_ms = int(table[Field.ARRIVED_MS, 0])
        self.last_ms = int(table[Field.ARRIVED_MS, -1])

    def document(self) -> dict[str, object]:
        """The counts for programs, as plain numbers under plain names."""
        return {
            "events": self.events,
            "rides": self.rides,
            "types": {one.name.lower(): int(self.types[one]) for one in EventType},
            "late": self.late,
            "duplicates": self.duplicates,
            "malformed": {one.name.lower(): int(self.malformed[one]) for one in Malformed if one},
            "fraud": {one.name.lower(): int(self.frauds[one]) for one in Fraud if one},
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
        }


def _counts(values: Numbers, kinds: int) -> Numbers:
    return np.bincount(values, minlength=kinds).astype(np.int64)
