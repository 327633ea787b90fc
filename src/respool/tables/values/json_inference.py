"""Columns from examples of JSON: numbers, texts, booleans, structs and lists; everything else stays in the rest.

Texts stay texts even if they look like times: times must be declared. A field whose examples disagree, or that is
always null or an empty list, gets no column yet: its values are kept in `_rest`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from respool.model.tables.column_types import is_column_name
from respool.tables.values.arrow_types import list_of

_INT64 = 2**63
COLUMNS_MAX = 2000


class _Disagree(Exception):
    pass


def infer_fields(
    examples: Iterable[Mapping[str, Any]], known: Sequence[pa.Field]
) -> list[pa.Field]:
    """The fields that these objects have beyond the known ones, in the order in which they appear."""
    taken = {one.name.lower() for one in known}
    found: dict[str, Any] = {}
    for example in examples:
        for name, value in example.items():
            found[name] = _merged_or_none(found.get(name, ()), value)
    room = COLUMNS_MAX - len(taken)
    fields: list[pa.Field] = []
    for name, shape in found.items():
        kind = _type_of(shape)
        # Readers ignore case, so a name that differs in case alone cannot be a column.
        if (
            kind is not None
            and is_column_name(name)
            and name.lower() not in taken
            and len(fields) < room
        ):
            taken.add(name.lower())
            fields.append(pa.field(name, kind))
    return fields


# A shape: () unknown yet; a text for a scalar; ["list", shape]; {name: shape}; None for a conflict.


def _merged_or_none(shape: Any, value: Any) -> Any:
    if shape is None:
        return None
    try:
        return _merged(shape, value)
    except _Disagree:
        return None


def _merged(shape: Any, value: Any) -> Any:
    if value is None:
        return shape
    if isinstance(value, Mapping):
        if shape == ():
            shape = {}
        if not isinstance(shape, dict):
            raise _Disagree
        return shape | {
            name: _merged_or_none(shape.get(name, ()), item) for name, item in value.items()
        }
    if isinstance(value, list):
        if shape == ():
            shape = ["list", ()]
        if not isinstance(shape, list):
            raise _Disagree
        element = shape[1]
        for one in value:
            element = _merged(element, one)
        return ["list", element]
    return _merged_scalar(shape, _scalar(value))


def _merged_scalar(shape: Any, kind: str) -> str:
    if shape in ((), kind):
        return kind
    if isinstance(shape, str) and {shape, kind} == {"long", "double"}:
        return "double"
    raise _Disagree


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise _Disagree
        return "long"
    return "double" if isinstance(value, float) else "string"


_SCALARS = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}


def _type_of(shape: Any) -> pa.DataType | None:
    """None if there is no column for it."""
    if isinstance(shape, str):
        return _SCALARS[shape]
    if isinstance(shape, list):
        element = _type_of(shape[1])
        return None if element is None else list_of(element)
    if not isinstance(shape, dict):
        return None
    fields = [
        pa.field(name, kind)
        for name, inner in shape.items()
        if is_column_name(name) and (kind := _type_of(inner)) is not None
    ]
    lower = [one.name.lower() for one in fields]
    fields = [one for number, one in enumerate(fields) if one.name.lower() not in lower[:number]]
    return pa.struct(fields) if fields else None
