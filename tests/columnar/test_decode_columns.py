from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from columnar.columns_reference import LIMIT, Unreadable, plain_decode, rows_of
from records.record_examples import (
    BUILDERS,
    CODECS,
    COMPRESSING,
    FUZZ_EXAMPLES,
    NOON_MS,
    THREE,
    Builder,
    batch_of,
    changed,
    new_records,
)
from respool.columnar.arrow_columns import ALL_COLUMNS, schema_of
from respool.columnar.decode_columns import decode
from respool.columnar.errors import (
    BatchFormatUnknown,
    BatchTooLarge,
    BatchUnreadable,
    CorruptBatch,
    UnknownColumn,
)
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, Codec, seal
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker
from respool.records.varint import append_varint


def value_batch(base_offset: int, *values: bytes, **fields: Any) -> bytes:
    records = [NewRecord(value=value, timestamp_ms=NOON_MS) for value in values]
    return build_batch(records, base_offset=base_offset, **fields)


def marker(offset: int, *, producer_id: int, is_commit: bool) -> bytes:
    batch = build_marker(
        EndTransactionMarker(
            producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, is_commit=is_commit
        ),
        timestamp_ms=NOON_MS,
    )
    return bytes(changed(batch, base_offset=offset).data)


def values(data: bytes, begin: int = 0, **choices: Any) -> list[bytes]:
    return [row["value"] for row in rows_of(decode(data, begin=begin, **choices))]


@pytest.mark.parametrize("codec", CODECS)
def test_every_field_of_every_record_comes_out(codec: Codec) -> None:
    data = build_batch(THREE, codec=codec, base_offset=7)
    decoded = decode(data, begin=7)
    assert decoded.next_offset == 10
    assert decoded.rows == 3
    (batch,) = decoded.batches
    assert batch.schema == schema_of(ALL_COLUMNS)
    assert rows_of(decoded) == [
        {
            "key": record.key,
            "value": record.value,
            "offset": 7 + index,
            "timestamp": record.timestamp_ms,
            "timestamp_type": 0,
            "headers": list(record.headers),
        }
        for index, record in enumerate(THREE)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_what_other_clients_wrote_comes_out(build: Builder, codec: Codec) -> None:
    data = build(THREE, codec=codec)
    assert rows_of(decode(data, begin=0)) == plain_decode(data, begin=0)[0]


def test_nothing_comes_of_nothing() -> None:
    decoded = decode(b"", begin=5)
    assert (list(decoded.batches), decoded.rows, decoded.next_offset) == ([], 0, 5)
    assert (decoded.whole_batches, decoded.partial_batch_bytes) == (0, None)


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    first, second = value_batch(0, b"a", b"b"), value_batch(2, b"c")
    decoded = decode((first + second)[:-1], begin=0)
    assert [row["value"] for row in rows_of(decoded)] == [b"a", b"b"]
    assert (decoded.next_offset, decoded.whole_batches) == (2, 1)
    assert decoded.partial_batch_bytes == len(second)


@pytest.mark.parametrize("left", [0, 5, 12, 17, 60, 62])
def test_a_fetch_too_small_for_its_first_batch_says_so(left: int) -> None:
    data = value_batch(3, b"a")
    decoded = decode(data[:left], begin=3)
    assert (decoded.rows, decoded.whole_batches, decoded.next_offset) == (0, 0, 3)
    assert decoded.partial_batch_bytes == (len(data) if left >= 12 else None)


def test_compressed_and_plain_batches_stand_in_the_order_of_their_offsets() -> None:
    batches = [
        value_batch(index * 2, b"%d" % index, b"x" * 50, codec=codec)
        for index, codec in enumerate([*CODECS, *CODECS])
    ]
    decoded = decode(b"".join(batches), begin=0)
    assert len(decoded.batches) == 1
    assert decoded.batches[0]["offset"].to_pylist() == list(range(20))
    assert decoded.batches[0]["value"].to_pylist()[::2] == [b"%d" % index for index in range(10)]


def test_a_batch_with_the_brokers_time_gives_that_to_all_its_records() -> None:
    data = build_batch(THREE, log_append_time=True, max_timestamp=99)
    rows = rows_of(decode(data, begin=0, columns=("timestamp", "timestamp_type")))
    assert rows == [{"timestamp": 99, "timestamp_type": 1}] * 3


def test_offsets_before_begin_and_from_end_on_are_left_out() -> None:
    data = value_batch(0, b"0", b"1") + value_batch(2, b"2", b"3") + value_batch(4, b"4", b"5")
    assert values(data, 1, end=5) == [b"1", b"2", b"3", b"4"]
    assert values(data, 3, end=3) == []
    assert decode(data, begin=3, end=3).next_offset == 4


def test_a_gap_before_the_end_is_passed() -> None:
    decoded = decode(value_batch(0, b"0") + value_batch(50, b"50"), begin=0, end=10)
    assert decoded.rows == 1
    assert decoded.next_offset == 50


def test_times_before_since_and_from_until_on_are_left_out() -> None:
    records = [NewRecord(value=b"%d" % time, timestamp_ms=time) for time in (5, 9, 1, 4)]
    data = build_batch(records)
    assert values(data, since_ms=4, until_ms=9) == [b"5", b"4"]
    assert values(data, since_ms=9) == [b"9"]
    assert values(data, until_ms=4) == [b"1"]


def test_only_wanted_columns_come_in_the_order_asked_for() -> None:
    data = build_batch(THREE)
    (batch,) = decode(data, begin=0, columns=("offset", "key")).batches
    assert batch.schema.names == ["offset", "key"]
    decoded = decode(data, begin=0, columns=())
    assert decoded.rows == 3


@pytest.mark.parametrize("columns", [("value", "wrong"), ("key", "key")])
def test_a_column_that_is_not_there_is_an_error(columns: tuple[str, ...]) -> None:
    with pytest.raises(UnknownColumn):
        decode(b"", begin=0, columns=columns)


def test_control_batches_are_passed_over() -> None:
    data = value_batch(0, b"a") + marker(1, producer_id=5, is_commit=True) + value_batch(2, b"b")
    assert values(data) == [b"a", b"b"]
    assert decode(data[: -len(value_batch(2, b"b"))], begin=0).next_offset == 2


def test_records_of_aborted_transactions_are_left_out() -> None:
    def from_five(offset: int, value: bytes, producer_id: int = 5) -> bytes:
        return value_batch(
            offset,
            value,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    data = b"".join(
        (
            from_five(0, b"committed"),
            marker(1, producer_id=5, is_commit=True),
            from_five(2, b"void"),
            from_five(3, b"of another", producer_id=6),
            value_batch(4, b"of nobody"),
            from_five(5, b"void too"),
            marker(6, producer_id=5, is_commit=False),
            from_five(7, b"committed again"),
            marker(8, producer_id=5, is_commit=True),
            from_five(9, b"void again"),
            marker(10, producer_id=5, is_commit=False),
        )
    )
    shown = [b"committed", b"of another", b"of nobody", b"committed again"]
    assert values(data, aborted=[(5, 9), (5, 2)]) == shown
    # Fetched from its middle on, a transaction that began before is void too.
    assert values(data, 5, aborted=[(5, 2), (5, 9)]) == [b"committed again"]
    # Who reads uncommitted records is given no list.
    assert len(values(data)) == 7


def test_a_compacted_batch_keeps_its_offsets_and_may_be_empty() -> None:
    batch = batch_of(value_batch(10, b"a", b"b"))
    sparse = bytes(changed(batch, last_offset_delta=9).data)
    empty = bytes(seal(batch.header._replace(base_offset=Offset(30), record_count=0), b"").data)
    decoded = decode(sparse + empty, begin=0)
    assert decoded.batches[0]["offset"].to_pylist() == [10, 11]
    assert decoded.next_offset == 32
    zipped = batch.header._replace(record_count=0, attributes=int(Codec.LZ4))
    assert decode(bytes(seal(zipped, b"").data), begin=0).next_offset == 12


def test_header_keys_that_are_no_text_are_shown_as_well_as_can_be() -> None:
    plain = build_batch([NewRecord(value=b"v", headers=(("ab", b"1"), ("c", None)))])
    data = bytes(
        seal(batch_of(plain).header, plain[HEADER_BYTES:].replace(b"ab", b"\xff\xfe")).data
    )
    rows = rows_of(decode(data, begin=0))
    assert rows[0]["headers"] == [("\ufffd\ufffd", b"1"), ("c", None)]


def test_a_wrong_checksum_is_an_error_unless_nobody_asks() -> None:
    data = bytearray(value_batch(0, b"a") + value_batch(1, b"bbbb"))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="offset 1: its checksum") as caught:
        decode(data, begin=0)
    assert caught.value.offset == 1
    assert len(values(bytes(data), check_crc=False)) == 2
    # What lies before the range is not looked at.
    assert decode(data[:-1], begin=1).rows == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": -1},
        {"record_count": 1},
        {"record_count": 4},
        {"record_count": 2**31 - 1},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 3},
        {"base_timestamp": 2**63 - 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_header_that_does_not_fit_its_records_is_an_error(
    codec: Codec, fields: dict[str, int]
) -> None:
    data = changed(batch_of(build_batch(THREE, codec=codec)), **fields).data
    with pytest.raises(CorruptBatch):
        decode(data, begin=0)


def test_offsets_that_go_backwards_are_an_error() -> None:
    with pytest.raises(CorruptBatch, match="follows 5"):
        decode(value_batch(5, b"a") + value_batch(5, b"b"), begin=0)


def test_an_impossible_length_is_an_error() -> None:
    data = bytearray(value_batch(0, b"a"))
    for length in (48, 0, -1, -(2**31)):
        data[8:12] = length.to_bytes(4, signed=True)
        with pytest.raises(CorruptBatch, match="bytes long"):
            decode(data, begin=0)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_an_error_also_where_it_is_cut_off(magic: int) -> None:
    data = bytearray(value_batch(0, b"a"))
    data[16] = magic
    for end in (17, len(data)):
        with pytest.raises(BatchFormatUnknown, match=f"its format is v{magic}"):
            decode(data[:end], begin=0)


def test_an_unknown_codec_is_an_error() -> None:
    data = changed(batch_of(value_batch(0, b"a")), attributes=5).data
    with pytest.raises(BatchFormatUnknown, match="codec 5"):
        decode(data, begin=0)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_batch_that_holds_more_than_allowed_is_an_error(codec: Codec) -> None:
    data = value_batch(0, bytes(100_000), codec=codec)
    with pytest.raises(BatchTooLarge, match="more than 99999 bytes"):
        decode(data, begin=0, decompressed_max=99_999)
    assert decode(data, begin=0, decompressed_max=110_000).rows == 1


def test_what_would_be_too_much_at_once_is_left_for_the_next_fetch() -> None:
    data = b"".join(value_batch(index, bytes(1000), codec=Codec.ZSTD) for index in range(5))
    decoded = decode(data, begin=0, decompressed_max=1500)
    assert decoded.rows == 2
    assert (decoded.next_offset, decoded.whole_batches) == (2, 2)


def test_columns_stay_below_two_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(value_batch(index, bytes(1000)) for index in range(5))
    monkeypatch.setattr("respool.columnar.decode_columns.GROUP_BYTES_MAX", 2100)
    decoded = decode(data, begin=0)
    assert [batch.num_rows for batch in decoded.batches] == [2, 2, 1]
    assert decoded.rows == 5


@st.composite
def fetched_data(draw: st.DrawFn) -> bytes:
    """Some batches of all kinds, one after the other, the last perhaps cut off."""
    data, offset = b"", draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.integers(0, 4)) == 0:
            data += marker(
                offset, producer_id=draw(st.integers(0, 1)), is_commit=draw(st.booleans())
            )
            offset += 1
            continue
        records = draw(new_records)
        data += build_batch(
            records,
            codec=draw(st.sampled_from(CODECS)),
            base_offset=offset,
            producer_id=draw(st.integers(-1, 1)),
            is_transactional=draw(st.booleans()),
            log_append_time=draw(st.booleans()),
        )
        offset += len(records) + draw(st.integers(0, 2))
    return data[: len(data) - draw(st.integers(0, 70))] if draw(st.booleans()) else data


def agree(data: bytes, **choices: Any) -> None:
    """Both return the same, or both find the data unreadable."""
    try:
        expected = plain_decode(data, **choices)
    except Unreadable:
        with pytest.raises(BatchUnreadable):
            decode(data, decompressed_max=LIMIT, **choices)
        return
    decoded = decode(data, decompressed_max=LIMIT, **choices)
    assert (rows_of(decoded), decoded.next_offset) == expected


@pytest.mark.long
@given(
    data=fetched_data(),
    begin=st.integers(0, 20),
    end=st.none() | st.integers(0, 30),
    since_ms=st.none() | st.integers(0, 2**42),
    until_ms=st.none() | st.integers(0, 2**42),
    aborted=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30)), max_size=3, unique=True),
    columns=st.permutations(ALL_COLUMNS).flatmap(
        lambda names: st.integers(1, len(names)).map(lambda count: tuple(names[:count]))
    ),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_it_returns_what_plain_python_returns(data: bytes, **choices: Any) -> None:
    agree(data, **choices)


@pytest.mark.long
@given(
    data=fetched_data(),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    begin=st.integers(0, 5),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_damaged_batches_it_says_what_plain_python_says(
    data: bytes, flips: list[tuple[int, int]], begin: int
) -> None:
    broken = bytearray(data)
    for position, value in flips:
        if broken:
            broken[position % len(broken)] = value
    # Checksums would find nearly all of it, and hide what the kernels do.
    agree(bytes(broken), begin=begin, check_crc=False)


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


# Numbers at which arithmetic might break.
EDGES = [-(2**63), -(2**31), -2, -1, 0, 1, 2**31 - 8, 2**31 - 1, 2**31, 2**63 - 1]
tokens = st.sampled_from(EDGES).map(varint) | st.binary(max_size=3)
parts = st.just(varint(-1)) | st.binary(max_size=3).map(lambda part: varint(len(part)) + part)


@st.composite
def nearly_records(draw: st.DrawFn) -> tuple[bytes, int]:
    """Some records and how many, most of them right; in others something else stands for a field."""
    data, count = b"", draw(st.integers(1, 3))
    for delta in range(count):
        headers = draw(st.lists(st.tuples(st.just(b"\x02k"), parts), max_size=2))
        fields = [b"\0", varint(draw(st.integers(-1, 1))), varint(delta), draw(parts), draw(parts)]
        fields += [varint(len(headers)), *(field for header in headers for field in header)]
        if draw(st.integers(0, 2)) == 0:
            fields[draw(st.integers(0, len(fields) - 1))] = draw(tokens)
        body = b"".join(fields)
        data += varint(len(body) + draw(st.sampled_from([0] * 9 + [-1, 1]))) + body
    return data, count + draw(st.sampled_from([0] * 9 + [-1, 1]))


@pytest.mark.long
@given(
    records=st.tuples(st.binary(max_size=80), st.integers(0, 4)) | nearly_records(),
    last=st.integers(0, 5) | st.integers(2, 2**31 - 1),
    base_timestamp=st.sampled_from([0, -(2**63), 2**63 - 1]),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_any_records_it_says_what_plain_python_says(
    records: tuple[bytes, int], last: int, base_timestamp: int
) -> None:
    data, count = records
    header = batch_of(value_batch(0, b"")).header._replace(
        record_count=count, last_offset_delta=last, base_timestamp=base_timestamp
    )
    agree(bytes(seal(header, data).data), begin=0)
