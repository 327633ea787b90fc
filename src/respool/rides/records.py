"""Converts event tables to Arrow record batches for `ArrowProducer`: key, value, timestamp and headers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from respool.rides.cities import City
from respool.rides.event_table import EventTable, Field
from respool.rides.json_text import SCHEMA_VERSION, JsonText
from respool.rides.outcomes import EventType

TIME = pa.timestamp("ms", tz="UTC")
_HEADER_NAMES = ("event_type", "schema_version")


class RecordMaker:
    def __init__(self, cities: Sequence[City]) -> None:
        self._text = JsonText(cities)
        # Header values: the event types, followed by the schema version.
        self._words = pa.array(
            [*(event.name.lower().encode() for event in EventType), b"%d" % SCHEMA_VERSION],
            pa.binary(),
        )
        self._names = pa.array(_HEADER_NAMES)

    def make(self, table: EventTable) -> pa.RecordBatch:
        """Return one record per event, in the same order."""
        return pa.RecordBatch.from_arrays(
            [
                self._text.keys(table),
                self._text.values(table),
                pa.array(table[Field.ARRIVED_MS]).cast(TIME),
                self._headers(table),
            ],
            names=["key", "value", "timestamp", "headers"],
        )

    def _headers(self, table: EventTable) -> pa.Array:
        """The headers have the original event type, even if the value is malformed."""
        rows = table.shape[1]
        names = self._names.take(pa.array(np.tile(np.arange(2), rows)))
        words = np.full(2 * rows, len(EventType), dtype=np.int64)
        words[::2] = table[Field.TYPE]
        pairs = pa.StructArray.from_arrays(
            [names, self._words.take(pa.array(words))], names=["key", "value"]
        )
        ends = pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32))
        return pa.ListArray.from_arrays(ends, pairs)
