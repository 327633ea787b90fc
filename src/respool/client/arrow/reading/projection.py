"""The columns and rows that a read returns: decides what to decode, and builds the batches to return."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.client.kafka.errors import BadArgument
from respool.columnar.arrow_columns import ALL_COLUMNS as RECORD_COLUMNS
from respool.columnar.arrow_columns import OFFSET, schema_of

if TYPE_CHECKING:
    import pyarrow.compute as pc

TOPIC, PARTITION = "topic", "partition"
ALL_COLUMNS = (TOPIC, PARTITION, *RECORD_COLUMNS)
_PLACE = {
    TOPIC: pa.field(TOPIC, pa.dictionary(pa.int32(), pa.string()), nullable=False),
    PARTITION: pa.field(PARTITION, pa.int32(), nullable=False),
}


class Projection:
    def __init__(
        self, topic: str, columns: Sequence[str] | None, where: "pc.Expression | None"
    ) -> None:
        """
        Raises:
            BadArgument: a column does not exist, or `where` is invalid for these columns.
        """
        self._topic = topic
        self._shown = _shown(columns)
        self._where = where
        self._held = _held(self._shown, where)
        self.schema = _schema(self._shown)
        # The columns to decode. At least one: an Arrow batch without columns would lose its row count.
        self.decoded = tuple(name for name in self._held if name not in _PLACE) or (OFFSET,)

    def new_shaper(self) -> "Shaper":
        """Create a shaper for one thread."""
        return Shaper(topic=self._topic, held=self._held, shown=self._shown, where=self._where)


@dataclass(slots=True, kw_only=True)
class Shaper:
    """Builds the returned batches from decoded ones."""

    topic: str
    held: tuple[str, ...]
    shown: tuple[str, ...]
    where: "pc.Expression | None"
    # Constant columns, each as long as the longest batch so far; shorter batches use slices.
    _constants: dict[str | int, pa.Array] = field(default_factory=dict)

    def shape(self, decoded: pa.RecordBatch, partition: int) -> pa.RecordBatch | None:
        """None if no row is left."""
        columns = [self._column(name, decoded, partition) for name in self.held]
        batch = pa.RecordBatch.from_arrays(columns, schema=_schema(self.held))
        if self.where is not None:
            kept = pa.Table.from_batches([batch]).filter(self.where).combine_chunks().to_batches()
            if not kept:
                return None
            (batch,) = kept
        if not batch.num_rows:
            return None
        return batch if self.held == self.shown else batch.select(list(self.shown))

    def _column(self, name: str, decoded: pa.RecordBatch, partition: int) -> pa.Array:
        rows = decoded.num_rows
        if name == TOPIC:
            return self._constant(TOPIC, rows, 0)
        if name == PARTITION:
            return self._constant(partition, rows, partition)
        return decoded.column(name)

    def _constant(self, key: str | int, rows: int, value: int) -> pa.Array:
        known = self._constants.get(key)
        if known is None or len(known) < rows:
            known = _of_buffers(pa.int32(), np.full(rows, value, dtype=np.int32))
            if key == TOPIC:
                known = pa.DictionaryArray.from_arrays(known, _one_text(self.topic))
            self._constants[key] = known
        return known.slice(0, rows)


# Not `pa.array` or `pa.scalar`: the first call in a process imports pandas, which takes half a second.


def _of_buffers(kind: pa.DataType, values: NDArray[Any], *more: pa.Buffer) -> pa.Array:
    length = len(values) - len(more)
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values), *more])


def _one_text(text: str) -> pa.Array:
    data = text.encode()
    return _of_buffers(pa.string(), np.array([0, len(data)], dtype=np.int32), pa.py_buffer(data))


def _shown(columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return ALL_COLUMNS
    if isinstance(columns, str):
        raise BadArgument(f"columns = {columns!r}: a list of names, such as [{columns!r}]")
    shown = tuple(columns)
    for name in shown:
        if name not in ALL_COLUMNS:
            raise BadArgument(f"no column {name!r}, there are {', '.join(ALL_COLUMNS)}")
    if not shown or len(set(shown)) < len(shown):
        raise BadArgument(f"columns = {list(shown)}: each once, and at least one")
    return shown


def _held(shown: tuple[str, ...], where: "pc.Expression | None") -> tuple[str, ...]:
    """The returned columns, and those that only `where` uses."""
    if where is None:
        return shown
    # Not a top-level import: it takes a tenth of a second, and most reads have no `where`.
    from pyarrow.compute import Expression

    if not isinstance(where, Expression):
        raise BadArgument(
            f"where = {where!r}: an expression of pyarrow.compute, such as pc.field('partition') == 3"
        )
    held = list(ALL_COLUMNS)
    if problem := _problem(held, where):
        raise BadArgument(
            f"where cannot be answered with the columns {', '.join(ALL_COLUMNS)}: {problem}"
        )
    # Arrow does not report which columns an expression uses, so find those without which it fails.
    for name in ALL_COLUMNS:
        without = [one for one in held if one != name]
        if name not in shown and without and not _problem(without, where):
            held = without
    return (*shown, *(name for name in held if name not in shown))


def _problem(columns: Sequence[str], where: "pc.Expression") -> str:
    try:
        _schema(tuple(columns)).empty_table().filter(where)
    except (pa.ArrowException, KeyError, TypeError) as error:
        # Arrow repeats the whole schema, one line per column; the error already lists the column names.
        return str(error).partition(f" in {columns[0]}: ")[0]
    return ""


# Computed once per read, not for each piece.
@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema(
        [_PLACE[name] if name in _PLACE else schema_of([name]).field(0) for name in columns]
    )
