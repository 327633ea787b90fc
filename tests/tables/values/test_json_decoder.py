"""JSON as columns: no bad value shifts a row, stops the process, or is lost."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.tables.column_types import parse_columns
from respool.tables.values import json_decoder
from respool.tables.values.arrow_types import fields_of, list_of
from respool.tables.values.json_decoder import JsonDecoder
from respool.tables.values.json_parser import BlockFailed, JsonParser

RIDE = fields_of(
    parse_columns("id long, city string, fare double, at struct<x long>, tags array<string>")
)


@pytest.fixture(scope="module")
def decoder() -> JsonDecoder:
    return JsonDecoder(RIDE, infers=False)


def decode(
    decoder: JsonDecoder, *values: bytes | None
) -> tuple[list[Any], list[Any], dict[int, str]]:
    found = decoder.decode(pa.array(list(values), pa.binary()), RIDE)
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for row in found.rows.to_pylist()
    ]
    return rows, found.rest.to_pylist(), {one.row: one.reason for one in found.rejected}


BAD = {
    b"null": "not a JSON object",
    b"": "the value is empty",
    b"   ": "the value is empty",
    b"17": "not a JSON object",
    b'["id"]': "not a JSON object",
    b'{"id":1}{"id":2}': "more than one JSON document",
    b'{"id":1} x': "more than one JSON document",
    b'{"city":"\xff"}': "not UTF-8",
    b'{"city":"\xed\xa0\x80"}': "not UTF-8",
    b'{"id":': "not JSON",
    b'{"id":1,}': "not JSON",
    b'{"id":01}': "not JSON",
    b'{"new":01}': "not JSON",
    b"{'id':1}": "not JSON",
    b'{"at":[}]}': "not JSON",
    b'{"city":"a\nb"}': "not JSON",
    b'{"id":1,"id":2}': "the field 'id' is there twice",
    b'{"new":' + b"[" * 40 + b"]" * 40 + b"}": "nested more than 32 deep",
    b'{"at":' + b'{"x":' * 40 + b"1" + b"}" * 41: "nested more than 32 deep",
    b"\x00\x00\x00\x00\x07binary": "not a JSON object",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_is_rejected_and_shifts_no_row(decoder: JsonDecoder, bad: bytes) -> None:
    rows, rest, rejected = decode(decoder, bad, b'{"id":1}', bad, b'{"id":2}', None, bad)
    assert rows == [{"id": 1}, {"id": 2}, {}]
    assert rest == [None, None, None]
    assert set(rejected) == {0, 2, 5}
    assert all(reason.startswith(BAD[bad]) for reason in rejected.values())


def test_what_fits_no_column_is_kept_as_it_came(decoder: JsonDecoder) -> None:
    rows, rest, rejected = decode(
        decoder,
        b'{"new": 1.50, "id": 1, "other":{"a":[1]}}',
        b'{"id":"text","fare":2}',
        b'{"id":1.0,"city":5,"at":{"x":1,"y":2},"tags":["a",1]}',
        b'{"id":99999999999999999999}',
        b'{"\\u0069d":3}',
        b'{"fare":9007199254740993}',
        b'{"city":"\\ud800"}',
    )
    assert rejected == {}
    assert rows == [
        {"id": 1},
        {"fare": 2.0},
        {"at": {"x": 1}},
        {},
        {"id": 3},
        {"fare": 9007199254740992.0},
        {},
    ]
    assert rest[0] == '{"new": 1.50,"other":{"a":[1]}}'
    assert [None if one is None else json.loads(one) for one in rest[1:5]] == [
        {"id": "text"},
        {"id": 1.0, "city": 5, "at": {"y": 2}, "tags": ["a", 1]},
        {"id": 99999999999999999999},
        None,
    ]
    assert rest[6] == '{"city":"\\ud800"}'


def test_inference_takes_what_examples_agree_on_and_later_adds_columns() -> None:
    decoder = JsonDecoder(infers=True)
    first = pa.array(
        [
            b'{"id":1,"fare":2,"at":"2026-01-01T00:00:00Z","x":1,"tags":[],"none":null,"Id":5}',
            b'{"id":2,"fare":2.5,"x":"a","p":{"lat":1.5,"lon":null}}',
            b"null",
        ],
        pa.binary(),
    )
    fields = decoder.new_fields(first, [])
    assert fields == [
        pa.field("id", pa.int64()),
        pa.field("fare", pa.float64()),
        pa.field("at", pa.string()),
        pa.field("p", pa.struct([pa.field("lat", pa.float64())])),
    ]
    found = decoder.decode(first, fields)
    assert found.rows["fare"].to_pylist() == [2.0, 2.5]
    assert json.loads(found.rest[0].as_py()) == {"x": 1, "tags": [], "none": None, "Id": 5}
    later = pa.array([b'{"id":3,"tags":["a"],"p":{"lat":1,"lon":2.5}}'], pa.binary())
    assert decoder.new_fields(later, fields) == [pa.field("tags", list_of(pa.string()))]
    assert json.loads(decoder.decode(later, fields).rest[0].as_py()) == {
        "tags": ["a"],
        "p": {"lon": 2.5},
    }
    # A nested field is seen when it did not fit, and is a column from the next batch on.
    wider = pa.struct([pa.field("lat", pa.float64()), pa.field("lon", pa.float64())])
    assert pa.field("p", wider) in decoder.new_fields(pa.array([b"{}"], pa.binary()), fields)
    decoder.close()


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.just(2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
_values = st.recursive(
    _scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
    max_leaves=8,
)
_rides = st.dictionaries(
    st.sampled_from(["id", "city", "fare", "at", "tags", "new", "é"]), _values, max_size=5
)
_texts = _rides.map(lambda one: json.dumps(one, ensure_ascii=False).encode("utf-8", "replace"))
_any = (
    _texts
    | st.binary(max_size=30)
    | st.none()
    | _rides.map(lambda one: json.dumps(one, indent=1).encode())
)


@given(st.lists(_any, max_size=12))
@settings(max_examples=150, deadline=None)
def test_each_value_is_a_row_with_all_it_has_or_is_rejected(
    decoder: JsonDecoder, values: list[bytes | None]
) -> None:
    found = decoder.decode(pa.array(values, pa.binary()), RIDE)
    rejected = {one.row for one in found.rejected}
    rows = zip(found.rows.to_pylist(), found.rest.to_pylist(), strict=True)
    for number, value in enumerate(values):
        if number in rejected:
            assert value is not None
            assert not _is_plain_object(value)
            continue
        row, rest = next(rows)
        if value is None:
            assert not any(one is not None for one in row.values())
            continue
        whole = json.loads(value)
        left = json.loads(rest) if rest is not None else {}
        assert _joined(row, left) == _without_nulls(whole)
    assert list(rows) == []


def _is_plain_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value.decode()), dict)
    except (ValueError, RecursionError):
        return False


def _joined(row: dict[str, Any], left: dict[str, Any]) -> Any:
    found = _without_nulls(row)
    for name, value in _without_nulls(left).items():
        found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def _without_nulls(value: Any) -> Any:
    """Null, a missing field, and an object without fields are the same in a table."""
    if isinstance(value, dict):
        found = {name: _without_nulls(one) for name, one in value.items()}
        return {name: one for name, one in found.items() if one is not None and one != {}}
    return value


def test_a_parser_that_dies_loses_only_the_value_that_killed_it() -> None:
    """Text that pyarrow dies of, if it ever came through: `null` as the first line."""
    parser = JsonParser()
    schema = pa.schema([pa.field("#respool", pa.int64())])
    assert parser.parse(schema, b'{"#respool":0}\n').num_rows == 1
    with pytest.raises(BlockFailed, match="crashed"):
        parser.parse(schema, b"null\n")
    assert parser.deaths == 1
    assert parser.parse(schema, b'{"#respool":0}\n').num_rows == 1
    parser.close()


def test_blocks_are_divided_by_size(decoder: JsonDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_decoder, "BLOCK_BYTES", 100)
    rows, _rest, rejected = decode(
        decoder, *(b'{"id":%d}' % number for number in range(40)), b"x" * 300
    )
    assert [row["id"] for row in rows] == list(range(40))
    assert set(rejected) == {40}


def test_columns_of_a_sliced_array_are_those_of_the_slice(decoder: JsonDecoder) -> None:
    whole = pa.array([b"bad", b'{"id":1}', b'{"id":2}', b"bad"], pa.binary())
    found = decoder.decode(whole.slice(1, 2), RIDE)
    assert found.rows["id"].to_pylist() == [1, 2]
    assert found.rejected == []
