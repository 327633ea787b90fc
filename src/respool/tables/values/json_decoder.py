"""JSON values as columns: a kernel checks and rewrites them as lines, a child process parses these in blocks.

A block that fails is halved until the lines at fault are found; these are then read one by one, in Python: valid JSON
that fits no column goes to the rest, and invalid JSON is rejected with a reason.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from respool.columnar.json_objects import (
    ESCAPED_NAME,
    GOOD,
    MALFORMED,
    NO_OBJECT,
    NOT_UTF8,
    NOTHING,
    ROW_FIELD,
    TOO_DEEP,
    TWO_DOCUMENTS,
    JsonLines,
    json_lines,
)
from respool.tables.errors import SchemaInvalid
from respool.tables.values.arrow_types import has_type
from respool.tables.values.json_inference import infer_fields
from respool.tables.values.json_parser import BlockFailed, JsonParser
from respool.tables.values.value_decoder import DEPTH_MAX, DecodedValues, Rejected
from respool.tables.values.value_fitting import batch_of, empty_columns, fit_object, json_text

MIB = 1024 * 1024
BLOCK_BYTES = 16 * MIB
EXAMPLES_MAX = 10_000
# A failing block of so few lines is read line by line.
_FEW = 16
_REASONS = {
    NOTHING: "the value is empty",
    NO_OBJECT: "not a JSON object",
    TWO_DOCUMENTS: "more than one JSON document",
    TOO_DEEP: f"nested more than {DEPTH_MAX} deep",
    NOT_UTF8: "not UTF-8",
    MALFORMED: "not JSON",
}


class JsonDecoder:
    """Not thread-safe."""

    def __init__(self, fields: Sequence[pa.Field] = (), *, infers: bool) -> None:
        """
        Raises:
            SchemaInvalid: JSON has no such values.
        """
        if has_type(fields, pa.binary()):
            raise SchemaInvalid(
                "JSON has no bytes, so no column of it can be binary: declare it as a string"
            )
        self._infers = infers
        self._declared = list(fields)
        self._parser = JsonParser()
        # The values that were rewritten last, with the names known then.
        self._last: tuple[pa.Array, tuple[str, ...], JsonLines] | None = None
        # Objects whose nested fields had no column.
        self._nested: list[dict[str, Any]] = []

    def new_fields(self, values: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Field]:
        if not self._infers:
            known = {one.name for one in fields}
            return [one for one in self._declared if one.name not in known]
        if not len(values):
            return []
        lines = self._lines(values, fields)
        beside = np.flatnonzero(np.diff(lines.rest_ends, prepend=0))[:EXAMPLES_MAX]
        examples = []
        for row in beside.tolist():
            try:
                examples.append(json.loads(b"{" + lines.rest_of(row) + b"}"))
            except (ValueError, RecursionError):
                continue
        return [*infer_fields(examples, fields), *self._grown(fields)]

    def _grown(self, fields: Sequence[pa.Field]) -> list[pa.Field]:
        """Structs with the nested fields that had no column in the batches before."""
        examples, self._nested = self._nested, []
        grown = []
        for one in fields:
            if pa.types.is_struct(one.type):
                inner = [one.type.field(at) for at in range(one.type.num_fields)]
                mine = [each[one.name] for each in examples if isinstance(each.get(one.name), dict)]
                if more := infer_fields(mine, inner):
                    grown.append(pa.field(one.name, pa.struct([*inner, *more])))
        return grown

    def decode(self, values: pa.Array, fields: Sequence[pa.Field]) -> DecodedValues:
        lines = self._lines(values, fields)
        job = _BatchDecoding(self._parser, values, lines, list(fields))
        found = job.run()
        if self._infers and len(self._nested) < EXAMPLES_MAX:
            self._nested += job.nested[: EXAMPLES_MAX - len(self._nested)]
        return found

    def _lines(self, values: pa.Array, fields: Sequence[pa.Field]) -> JsonLines:
        names = tuple(one.name for one in fields)
        if self._last is not None and self._last[0] is values and self._last[1] == names:
            return self._last[2]
        lines = rewritten(values, names)
        self._last = values, names, lines
        return lines

    def close(self) -> None:
        self._parser.close()


def rewritten(values: pa.Array, names: Sequence[str]) -> JsonLines:
    """The values as lines."""
    ends = np.frombuffer(values.buffers()[1], np.int32)[
        values.offset : values.offset + len(values) + 1
    ]
    data = values.buffers()[2]
    return json_lines(
        np.frombuffer(b"\0" if data is None or not data.size else data, np.uint8),
        ends,
        values.is_valid().to_numpy(zero_copy_only=False),
        names,
        depth_max=DEPTH_MAX,
    )


class _BatchDecoding:
    """One batch of values."""

    def __init__(
        self, parser: JsonParser, values: pa.Array, lines: JsonLines, fields: list[pa.Field]
    ) -> None:
        self._parser = parser
        self._values = values
        self._lines = lines
        self._fields = fields
        self._status = lines.status.copy()
        self._check_rest()
        self._schema = pa.schema([pa.field(ROW_FIELD, pa.int64()), *fields])
        self._parts: list[pa.RecordBatch] = []
        self._rest: dict[int, str] = {}
        self._rejected: list[Rejected] = []
        self.nested: list[dict[str, Any]] = []

    def run(self) -> DecodedValues:
        row = 0
        for end in self._blocks():
            self._block(row, end)
            row = end
        rejected = {one.row for one in self._rejected}
        parts = [one for one in self._parts if one.num_rows]
        if not self._fields:
            rows = empty_columns(len(self._values) - len(rejected))
        elif parts:
            rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        else:
            rows = batch_of([], self._fields)
        return DecodedValues(rows=rows, rest=self._rest_column(rejected), rejected=self._rejected)

    def _check_rest(self) -> None:
        """The parser does not see members without a column, so they are checked here."""
        for row in np.flatnonzero(np.diff(self._lines.rest_ends, prepend=0)).tolist():
            try:
                json.loads(b"{" + self._lines.rest_of(row) + b"}")
            except (ValueError, RecursionError):
                self._status[row] = MALFORMED

    def _blocks(self) -> list[int]:
        """The rows at which blocks of about `BLOCK_BYTES` end."""
        ends, count = self._lines.line_ends, len(self._values)
        if not count:
            return []
        marks = range(BLOCK_BYTES, int(ends[-1]), BLOCK_BYTES)
        found = {int(np.searchsorted(ends, mark)) + 1 for mark in marks}
        return sorted({one for one in found if one < count} | {count})

    def _block(self, begin: int, end: int) -> None:
        """Decode the rows [begin, end), dividing blocks with a bad row."""
        bad = np.flatnonzero(self._status[begin:end] != GOOD) + begin
        for row in bad.tolist():
            self._good(begin, row)
            self._bad(row)
            begin = row + 1
        self._good(begin, end)

    def _good(self, begin: int, end: int) -> None:
        if begin >= end:
            return
        if not self._fields:
            self._rows_without_fields(begin, end)
            return
        try:
            found = self._parsed(begin, end)
        except BlockFailed:
            if end - begin <= _FEW:
                for row in range(begin, end):
                    self._slowly(row)
                return
            middle = (begin + end) // 2
            self._good(begin, middle)
            self._good(middle, end)
        else:
            self._parts.append(found.select(found.schema.names[1:]))

    def _parsed(self, begin: int, end: int) -> pa.RecordBatch:
        found = self._parser.parse(self._schema, self._lines.lines(begin, end))
        numbers = found.column(0)
        wanted = np.arange(begin, end)
        if numbers.null_count or not np.array_equal(numbers.to_numpy(), wanted):
            raise BlockFailed("the parser returned other rows")
        return found

    def _rows_without_fields(self, begin: int, end: int) -> None:
        """No column needs the parser, but values must still be valid JSON."""
        for row in range(begin, end):
            self._slowly(row)

    def _bad(self, row: int) -> None:
        if not self._values[row].is_valid:
            # A deletion: a row of nulls.
            self._add({})
        elif self._status[row] == ESCAPED_NAME:
            self._slowly(row)
        else:
            self._rejected.append(Rejected(row=row, reason=_REASONS[int(self._status[row])]))

    def _slowly(self, row: int) -> None:
        is_good = self._status[row] == GOOD
        # Members without a column keep their text.
        text = self._lines.lines(row, row + 1) if is_good else self._values[row].as_py()
        aside = self._lines.rest_of(row).decode() if is_good else ""
        try:
            value = json.loads(text, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, _NameTwice) else f"not JSON: {error}"
            self._rejected.append(Rejected(row=row, reason=reason[:200]))
            return
        value.pop(ROW_FIELD, None)
        fitted, rest = fit_object(value, self._fields)
        if rest:
            joined = ",".join(filter(None, [aside, json_text(rest)[1:-1]]))
            self._rest[row] = "{" + joined + "}"
            self.nested.append(rest)
        self._add(fitted)

    def _add(self, fitted: dict[str, Any]) -> None:
        if self._fields:
            self._parts.append(batch_of([fitted], self._fields))

    def _rest_column(self, rejected: set[int]) -> pa.Array:
        count = len(self._values)
        beside = np.flatnonzero(np.diff(self._lines.rest_ends, prepend=0))
        if not len(beside) and not self._rest:
            return pa.nulls(count - len(rejected), pa.string())
        texts: list[str | None] = [None] * count
        for row in beside.tolist():
            texts[row] = "{" + self._lines.rest_of(row).decode() + "}"
        for row, text in self._rest.items():
            texts[row] = text
        return pa.array([one for row, one in enumerate(texts) if row not in rejected], pa.string())


class _NameTwice(ValueError):
    pass


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NameTwice(f"the field {twice[:60]!r} is there twice")
    return found
