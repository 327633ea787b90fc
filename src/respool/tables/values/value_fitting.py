"""Fits one value, as Python objects, into fields. Parts that fit no field are kept, so nothing is lost.

This is the slow path, for values that the block parser refused, and for formats without a block parser.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal as PyDecimal
from typing import Any

import pyarrow as pa

_INT32, _INT64 = 2**31, 2**63
# Marks a value that fits no column; it then goes to the rest.
MISFIT = object()


def fit_object(
    value: Mapping[str, Any], fields: Sequence[pa.Field]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the fields, and the remainder."""
    fitted: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    by_name = {one.name: one.type for one in fields}
    for name, item in value.items():
        kind = by_name.get(name)
        if kind is None:
            rest[name] = item
            continue
        if pa.types.is_struct(kind) and isinstance(item, Mapping):
            inner = [kind.field(at) for at in range(kind.num_fields)]
            fitted[name], left = fit_object(item, inner)
            if left:
                rest[name] = left
            continue
        found = fit(item, kind)
        if found is MISFIT:
            rest[name] = item
        else:
            fitted[name] = found
    return fitted, rest


def fit(value: Any, kind: pa.DataType) -> Any:
    """Return the value for a column of this type, or MISFIT. A list fits if each element does."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return _list(value, kind)
    if pa.types.is_struct(kind):
        return _struct(value, kind)
    return _fit_scalar(value, kind)


def _list(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, list | tuple):
        return MISFIT
    found = [fit(one, kind.value_type) for one in value]
    return MISFIT if any(one is MISFIT for one in found) else found


def _struct(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, Mapping):
        return MISFIT
    found, left = fit_object(value, [kind.field(at) for at in range(kind.num_fields)])
    return MISFIT if left else found


def _fit_scalar(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return value if isinstance(value, bool) and pa.types.is_boolean(kind) else MISFIT
    if pa.types.is_integer(kind):
        limit = _INT32 if kind == pa.int32() else _INT64
        return value if isinstance(value, int) and -limit <= value < limit else MISFIT
    if pa.types.is_floating(kind):
        return _float(value)
    if pa.types.is_string(kind):
        return _text(value)
    if pa.types.is_binary(kind):
        return value if isinstance(value, bytes) else MISFIT
    return _from_text(value, kind)


def _float(value: Any) -> Any:
    """Any number, rounded, as parsers of whole blocks do; one beyond a float's range fits nowhere."""
    if not isinstance(value, int | float):
        return MISFIT
    try:
        return float(value)
    except OverflowError:
        return MISFIT


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        return MISFIT
    try:
        value.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, escaped in JSON.
        return MISFIT
    return value


def _from_text(value: Any, kind: pa.DataType) -> Any:
    """Dates, times and decimals: as such, or as text in the forms that Arrow takes."""
    if isinstance(value, datetime):
        return value if pa.types.is_timestamp(kind) else MISFIT
    if isinstance(value, date | PyDecimal):
        return _converted(value, kind)
    if isinstance(value, int | float) and pa.types.is_decimal(kind):
        return _converted(PyDecimal(str(value)), kind)
    if not isinstance(value, str):
        return MISFIT
    try:
        return pa.scalar(value).cast(kind).as_py()
    except (pa.ArrowException, ValueError, UnicodeEncodeError):
        return MISFIT


def _converted(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, ValueError, TypeError):
        return MISFIT


def json_text(value: Any) -> str:
    """JSON of what is left over, also for values that JSON has no form for."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def batch_of(rows: Sequence[Mapping[str, Any]], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """Fitted rows as a batch."""
    columns = [pa.array([row.get(one.name) for row in rows], one.type) for one in fields]
    if not columns:
        return empty_columns(len(rows))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(fields)))


def empty_columns(rows: int) -> pa.RecordBatch:
    """Without fields, a placeholder column: Arrow counts rows by their columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
