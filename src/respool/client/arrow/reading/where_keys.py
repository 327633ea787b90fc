"""Finds the keys that an expression of pyarrow.compute requires: `(pc.field("key") == b"a") & ...`.

The expression itself is evaluated on decoded rows. The keys that it requires are compared earlier: before rows are
decoded, and by brokers before batches are sent.

Arrow has no interface to look into an expression, but one to pickle it: as metadata of a schema, a pair for each part,
and a column of one row for each literal.

    call: and_kleene | call: equal | field_ref: key | literal: 0 | end: equal | ... | end: and_kleene

An expression in any other form requires no keys, as far as this can tell: then it is only evaluated later.
"""

import ctypes
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from respool.columnar.arrow_columns import KEY
from respool.model.conditions.clauses import KeyIn, in_order
from respool.model.where import VALUES_MAX

if TYPE_CHECKING:
    import pyarrow.compute as pc

_LENGTH = Struct("=i")


class _FieldRef(NamedTuple):
    # None for a part of a field.
    name: str | None


class _FunctionCall(NamedTuple):
    function: str
    # Calls, fields, and values of literals and options.
    arguments: list[Any]


def key_clauses_of(where: "pc.Expression | None") -> list[KeyIn]:
    """The clauses on the key that hold for every row for which the expression is true."""
    if where is None:
        return []
    try:
        _, (pickled,) = where.__reduce__()
        reader = pa.ipc.open_file(pickled)
        literals = [column[0].as_py() for column in reader.get_batch(0).columns]
        whole = _parse(_metadata_pairs(reader.schema), literals)
    except (pa.ArrowException, AttributeError, IndexError, TypeError, ValueError):
        # Another version of pyarrow may pickle in another way.
        return []
    return list(_required(whole))


def _parse(pairs: Iterable[tuple[str, str]], literals: list[Any]) -> Any:
    """
    Raises:
        IndexError, ValueError: these are not the parts of one expression.
    """
    open_calls = [_FunctionCall("", [])]
    nested = 0
    for kind, text in pairs:
        arguments = open_calls[-1].arguments
        match kind:
            case "field_ref" if nested:
                nested -= 1
            case "field_ref":
                arguments.append(_FieldRef(text))
            case "nested_field_ref":
                nested = int(text)
                arguments.append(_FieldRef(None))
            case "literal" | "options":
                arguments.append(literals[int(text)])
            case "call":
                open_calls.append(_FunctionCall(text, []))
            case "end":
                call = open_calls.pop()
                open_calls[-1].arguments.append(call)
            case _:
                raise ValueError(f"an unknown part: {kind}")
    (whole,), *unended = (call.arguments for call in open_calls)
    if unended:
        raise ValueError("the last calls do not end")
    return whole


def _required(whole: Any) -> Iterator[KeyIn]:
    # No recursion: an expression may have thousands of levels.
    left = [whole]
    while left:
        match left.pop():
            case _FunctionCall("and_kleene" | "and", arguments):
                left += reversed(arguments)
            case _FunctionCall(
                "equal", [_FieldRef(name), bytes(value)] | [bytes(value), _FieldRef(name)]
            ):
                if name == KEY:
                    yield KeyIn((value,))
            case _FunctionCall("is_in", [_FieldRef(name), {"value_set": list(values)}]):
                # Null in the set matches null keys, which no clause does.
                is_clause = name == KEY and all(isinstance(one, bytes) for one in values)
                if is_clause and 0 < len(values) <= VALUES_MAX:
                    yield KeyIn(in_order(values))


class _CSchema(ctypes.Structure):
    """The beginning of ArrowSchema in Arrow's C data interface, which is stable."""

    _fields_ = (
        ("format", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
        # The others, and more than enough space for them.
        ("rest", ctypes.c_void_p * 16),
    )


def _metadata_pairs(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """All pairs in order; `schema.metadata` has only the last one of each name."""
    exported = _CSchema()
    address = ctypes.addressof(exported)
    schema._export_to_c(address)  # noqa: SLF001
    try:
        at = exported.metadata or 0
        if not at:
            return
        (count,) = _LENGTH.unpack(ctypes.string_at(at, _LENGTH.size))
        at += _LENGTH.size
        texts = []
        for _ in range(2 * count):
            (length,) = _LENGTH.unpack(ctypes.string_at(at, _LENGTH.size))
            texts.append(ctypes.string_at(at + _LENGTH.size, length).decode())
            at += _LENGTH.size + length
        yield from zip(texts[::2], texts[1::2], strict=True)
    finally:
        # Releases what was exported.
        pa.Schema._import_from_c(address)  # noqa: SLF001
