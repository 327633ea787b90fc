"""Counts of generated events, for the summary and for checks of a pipeline's result."""

import numpy as np

from respool.rides.counter_rng import Numbers
from respool.rides.event_table import EventTable, Field, fraud_of, is_duplicate, is_late
from respool.rides.outcomes import EventType, Fraud, Malformed


class RideTally:
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
