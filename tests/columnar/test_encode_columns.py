from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from columnar.columns_reference import plain_decode
from records.record_examples import (
    CODECS,
    FUZZ_EXAMPLES,
    NOON_MS,
    READERS,
    THREE,
    batch_of,
    new_records,
)
from records.record_examples import rows_of as message_rows
from respool.columnar.arrow_columns import ALL_COLUMNS, HEADER_TYPE, TYPES
from respool.columnar.decode_columns import decode
from respool.columnar.encode_columns import ProducerStamp, encode, encoded_size, restamp
from respool.columnar.errors import (
    BatchNotEncodable,
    ColumnInvalid,
    ColumnTypeMismatch,
    NullNotAllowed,
    RowOutOfRange,
    TimestampInvalid,
)
from respool.columnar.row_buffers import RowBuffers
from respool.records.batch import HEADER_BYTES, Codec, crc_of, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records

STAMP = ProducerStamp(producer_id=77, epoch=3, base_sequence=12, is_transactional=True)


def columns_of(records: Sequence[NewRecord]) -> pa.RecordBatch:
    headers = [[{"key": key, "value": value} for key, value in one.headers] for one in records]
    return pa.record_batch(
        {
            "key": pa.array([one.key for one in records], TYPES["key"]),
            "value": pa.array([one.value for one in records], TYPES["value"]),
            "timestamp": pa.array([one.timestamp_ms for one in records], TYPES["timestamp"]),
            "headers": pa.array(headers, pa.list_(HEADER_TYPE)),
        }
    )


def encoded(batch: pa.RecordBatch | RowBuffers, rows: Any = None, **choices: Any) -> bytes:
    choices = {"codec": Codec.NONE, "timestamp_ms": NOON_MS, "stamp": None} | choices
    return encode(batch, rows, **choices)


def values_of(array: pa.Array) -> list[bytes | None]:
    """What comes back of a column of values."""
    data = encoded(pa.record_batch({"value": array}))
    return [record.value for record in read_records(batch_of(data), limit=1 << 20)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_byte_for_byte_what_plain_python_builds(codec: Codec) -> None:
    stamp = ProducerStamp(producer_id=5, epoch=2, base_sequence=9)
    expected = build_batch(THREE, codec=codec, producer_id=5, producer_epoch=2, base_sequence=9)
    assert encoded(columns_of(THREE), codec=codec, stamp=stamp) == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", READERS)
def test_other_clients_read_every_field(reader: str, codec: Codec) -> None:
    data = encoded(columns_of(THREE), codec=codec)
    assert READERS[reader](data) == message_rows(THREE)


@pytest.mark.parametrize("codec", CODECS)
def test_a_hundred_thousand_rows_come_back(codec: Codec) -> None:
    numbers = pa.array(range(100_000), pa.int64())
    batch = pa.record_batch(
        {"value": numbers.cast(pa.string()), "timestamp": pa.array(np.arange(100_000)[::-1])}
    )
    decoded = decode(encoded(batch, codec=codec), begin=0)
    (back,) = decoded.batches
    assert back["value"].equals(batch["value"].cast(pa.binary()))
    assert back["timestamp"].cast(pa.int64()).equals(batch["timestamp"])
    assert back["offset"].equals(numbers)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_binary()),
    ],
    ids=str,
)
def test_bytes_and_text_of_every_type_are_taken_also_from_a_slice(kind: pa.DataType) -> None:
    texts = ["", "a", None, "twelve bytes or more", "é", None, "a", "b", "last"]
    plain = pa.array(texts, pa.string())
    array = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    if pa.types.is_dictionary(kind):
        array = pa.DictionaryArray.from_arrays(
            array.indices.cast(kind.index_type), array.dictionary.cast(kind.value_type)
        )
    assert array.type == kind
    expected = [None if text is None else text.encode() for text in texts]
    assert values_of(array) == expected
    for begin in (1, 2, 8):
        assert values_of(array[begin:]) == expected[begin:]
    assert values_of(array[3:5]) == expected[3:5]


def test_bytes_of_fixed_size_nulls_and_extensions_are_taken() -> None:
    fixed = pa.array([b"ab", None, b"cd"], pa.binary(2))
    assert values_of(fixed[1:]) == [None, b"cd"]
    assert values_of(pa.nulls(2)) == [None, None]
    assert values_of(pa.array([bytes(16)], pa.uuid())) == [bytes(16)]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))
    assert values_of(nothing) == [None]


def test_missing_columns_are_null_and_others_do_not_matter() -> None:
    data = encoded(pa.record_batch({"key": [b"k"], "other": [1]}))
    (record,) = read_records(batch_of(data), limit=1000)
    assert (record.key, record.value, record.headers) == (b"k", None, ())
    assert record.timestamp == NOON_MS


@pytest.mark.parametrize(
    "rows", [slice(1, 3), np.array([1, 2]), np.array([1, 2], dtype=np.int8)], ids=str
)
def test_only_the_rows_asked_for_are_written(rows: Any) -> None:
    data = encoded(columns_of(THREE), rows)
    assert data == build_batch(THREE[1:])


def test_rows_are_written_in_the_order_given() -> None:
    data = encoded(RowBuffers.of(columns_of(THREE)), np.array([2, 0, 2]))
    assert data == build_batch([THREE[2], THREE[0], THREE[2]])


@pytest.mark.parametrize("row", [-1, 3, 2**40])
def test_a_row_that_is_not_there_is_an_error(row: int) -> None:
    for call in (encoded, encoded_size):
        with pytest.raises(RowOutOfRange, match="has 3"):
            call(columns_of(THREE), np.array([0, row]))


def test_no_rows_make_no_batch() -> None:
    with pytest.raises(BatchNotEncodable, match="at least one row"):
        encoded(columns_of(THREE), slice(0, 0))
    assert len(encoded_size(columns_of(THREE), slice(0, 0))) == 0


def test_a_mask_is_not_taken_for_numbers_of_rows() -> None:
    with pytest.raises(AssertionError, match="not a mask"):
        encoded(columns_of(THREE), np.array([True, False, True]))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_columns_without_rows_are_taken(kind: pa.DataType) -> None:
    empty = columns_of(THREE)[:0].append_column("other", pa.array([], kind))
    for batch in (empty, pa.record_batch({"key": pa.array([], kind)}), columns_of([])):
        source = RowBuffers.of(batch)
        assert source.rows == 0
        assert encoded_size(source, None).tolist() == []


def test_rows_of_more_bytes_than_a_batch_can_have_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("respool.columnar.encode_columns.RECORDS_BYTES_MAX", 1000)
    batch = pa.record_batch({"value": [bytes(500), bytes(500)]})
    assert encoded(batch, slice(0, 1))
    with pytest.raises(BatchNotEncodable, match="2 rows take 10"):
        encoded(batch)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1500, None], pa.timestamp("us")), [1, NOON_MS]),
        (pa.array([2, 5], pa.timestamp("s", "Europe/Berlin")), [2000, 5000]),
        (pa.array([1], pa.date32()), [86_400_000]),
        (pa.array([7, -1], pa.int32()), [7, -1]),
        (pa.nulls(2), [NOON_MS, NOON_MS]),
    ],
    ids=str,
)
def test_times_of_every_type_are_taken(column: pa.Array, expected: list[int]) -> None:
    data = encoded(pa.record_batch({"timestamp": column}))
    header = read_header(data)
    assert [one.timestamp for one in read_records(batch_of(data), limit=1000)] == expected
    assert (header.base_timestamp, header.max_timestamp) == (expected[0], max(expected))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-2]),
        pa.array([-(2**63)]),
        pa.array([2**63], pa.uint64()),
        pa.array([-1, 2**63 - 1]),
    ],
    ids=str,
)
def test_times_that_cannot_be_are_an_error(column: pa.Array) -> None:
    with pytest.raises(TimestampInvalid):
        encoded(pa.record_batch({"timestamp": column}))


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pa.array([1]), "value"),
        (pa.array([1]), "key"),
        (pa.array([[b"a"]]), "value"),
        (pa.array([1]).dictionary_encode(), "value"),
        (pa.array(["noon"]), "timestamp"),
        (pa.array([1.5]), "timestamp"),
        (pa.array([b"a"]), "headers"),
        (pa.array([[b"a"]]), "headers"),
        (pa.array([[{"name": "a", "value": b""}]]), "headers"),
        (pa.array([[{"key": "a", "value": 1}]]), "headers"),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_an_error(column: pa.Array, name: str) -> None:
    with pytest.raises(ColumnTypeMismatch):
        encoded(pa.record_batch({name: column}))


HEADER_ROWS: list[list[tuple[str, bytes | None]] | None] = [
    [("a", b"1")],
    None,
    [],
    [("b", None), ("b", b"")],
]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(HEADER_TYPE),
        pa.large_list(HEADER_TYPE),
        pa.list_view(HEADER_TYPE),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.string_view())])),
    ],
    ids=str,
)
def test_headers_of_every_type_are_taken_also_from_a_slice(kind: pa.DataType) -> None:
    def pair(key: str, value: bytes | None) -> Any:
        return (key, value) if pa.types.is_map(kind) else {"key": key, "value": value}

    rows = [None if row is None else [pair(*one) for one in row] for row in HEADER_ROWS]
    array = pa.array(rows, kind)
    for begin in (0, 1, 3):
        data = encoded(pa.record_batch({"headers": array[begin:]}))
        headers = [list(one.headers) for one in read_records(batch_of(data), limit=1000)]
        assert headers == [row or [] for row in HEADER_ROWS[begin:]]


def test_a_header_without_a_key_is_an_error() -> None:
    for one in ({"key": None, "value": b""}, None):
        with pytest.raises(NullNotAllowed):
            encoded(pa.record_batch({"headers": pa.array([[one]], pa.list_(HEADER_TYPE))}))


@pytest.mark.parametrize("codec", CODECS)
def test_another_stamp_is_as_if_it_had_been_encoded_with_it(codec: Codec) -> None:
    other = ProducerStamp(producer_id=1, epoch=0, base_sequence=2**31 - 1)
    for before, after in ((STAMP, other), (other, STAMP), (None, STAMP)):
        data = bytearray(encoded(columns_of(THREE), codec=codec, stamp=before))
        restamp(data, after)
        assert data == encoded(columns_of(THREE), codec=codec, stamp=after)
        assert crc_of(data) == read_header(data).crc


def test_only_a_whole_batch_can_have_another_stamp() -> None:
    data = bytearray(encoded(columns_of(THREE)))
    for broken in (data[:-1], data + b"x", data[:60], bytearray()):
        before = bytes(broken)
        with pytest.raises(BatchNotEncodable):
            restamp(broken, STAMP)
        assert broken == before


@st.composite
def chosen_rows(draw: st.DrawFn) -> tuple[list[NewRecord], list[int]]:
    records = draw(new_records)
    return records, draw(
        st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=20)
        | st.just(list(range(len(records))))
    )


@pytest.mark.long
@given(chosen=chosen_rows(), offset=st.integers(0, 3))
@settings(max_examples=FUZZ_EXAMPLES)
def test_any_rows_become_what_plain_python_builds(
    chosen: tuple[list[NewRecord], list[int]], offset: int
) -> None:
    records, rows = chosen
    # The rows before are there to be sliced off.
    batch = columns_of([*THREE[:offset], *records])[offset:]
    expected = build_batch([records[row] for row in rows])
    assert encoded(batch, np.array(rows)) == expected
    decoded = decode(expected, begin=0)
    again = encoded(decoded.batches[0])
    assert again == expected


@pytest.mark.long
@given(chosen=chosen_rows(), cuts=st.lists(st.integers(0, 20), max_size=3))
@settings(max_examples=FUZZ_EXAMPLES)
def test_sizes_are_never_less_than_what_is_written(
    chosen: tuple[list[NewRecord], list[int]], cuts: list[int]
) -> None:
    records, rows = chosen
    source = RowBuffers.of(columns_of(records))
    sizes = [0, *encoded_size(source, np.array(rows)).tolist()]
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for begin, end in pairwise(edges):
        size = len(encoded(source, np.array(rows[begin:end]))) - HEADER_BYTES
        # Two bytes for the offset's delta, nine for the time's, and the record's length grows by them.
        slack = 12 * (end - begin)
        assert size <= sizes[end] - sizes[begin] <= size + slack


def test_sizes_hold_where_only_some_rows_have_a_time() -> None:
    batch = pa.record_batch({"timestamp": pa.array([0, None, 5])})
    size = int(encoded_size(batch, None)[-1])
    for now in (0, NOON_MS, 2**62):
        assert len(encoded(batch, timestamp_ms=now)) - HEADER_BYTES <= size


def test_decode_and_the_reference_agree_on_what_was_encoded() -> None:
    data = encoded(columns_of(THREE), codec=Codec.LZ4, stamp=STAMP)
    rows, next_offset = plain_decode(data, begin=0, columns=ALL_COLUMNS)
    assert next_offset == 3
    assert [row["value"] for row in rows] == [record.value for record in THREE]
    assert read_header(data).is_transactional


@pytest.mark.parametrize("ends", [[0, 1_000_000_000, 5], [0, 9, 2]])
@pytest.mark.parametrize("name", ["key", "value"])
def test_a_column_whose_rows_lie_outside_its_bytes_is_refused(name: str, ends: list[int]) -> None:
    places = pa.py_buffer(np.array(ends, dtype=np.int32))
    column = pa.Array.from_buffers(pa.binary(), 2, [None, places, pa.py_buffer(b"0123456789")])
    with pytest.raises(ColumnInvalid, match=f"the column {name}"):
        RowBuffers.of(pa.record_batch({name: column}))
