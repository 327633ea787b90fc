import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records.record_examples import (
    BUILDERS,
    CODECS,
    COMPRESSING,
    FUZZ_EXAMPLES,
    LIMIT,
    NOON_MS,
    READERS,
    THREE,
    Row,
    batch_of,
    changed,
    new_records,
    rows_of,
)
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.model.ids import Offset
from respool.records.batch import CODEC_MASK, Codec, RecordBatch, read_header, records_of, seal
from respool.records.build import NewRecord, append_record, build_batch
from respool.records.record import (
    Record,
    find_time,
    iterate_records,
    iterate_times,
    read_records,
    read_records_at,
)
from respool.records.varint import append_varint


def row(record: Record) -> Row:
    return (record.offset, record.timestamp, record.key, record.value, list(record.headers))


def batch_with_deltas(*deltas: int, last_offset_delta: int) -> RecordBatch:
    body = bytearray()
    for delta in deltas:
        append_record(body, THREE[0], offset_delta=delta, base_timestamp=NOON_MS)
    header = batch_of(build_batch(THREE, base_offset=100)).header
    return seal(
        header._replace(last_offset_delta=last_offset_delta, record_count=len(deltas)), body
    )


def batch_of_fields(*fields: int | bytes) -> RecordBatch:
    """A batch of one record made of these: numbers are written as varints, bytes as they are."""
    body = bytearray()
    for field in fields:
        if isinstance(field, int):
            append_varint(body, field)
        else:
            body += field
    out = bytearray()
    append_varint(out, len(body))
    header = batch_of(build_batch(THREE[:1])).header
    return seal(header, out + body)


@pytest.mark.parametrize("codec", CODECS)
@given(records=new_records, base_offset=st.integers(0, 2**40))
def test_records_come_back_as_they_were_put_in(
    codec: Codec, records: Sequence[NewRecord], base_offset: int
) -> None:
    batch = batch_of(build_batch(records, codec=codec, base_offset=base_offset))
    found = read_records(batch, limit=LIMIT)
    assert [row(record) for record in found] == rows_of(records, base_offset=base_offset)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", BUILDERS)
@settings(max_examples=30)
@given(records=new_records)
def test_what_clients_build_we_can_read(
    library: str, codec: Codec, records: Sequence[NewRecord]
) -> None:
    batch = batch_of(BUILDERS[library](records, codec=codec))
    assert [row(record) for record in read_records(batch, limit=LIMIT)] == rows_of(records)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("library", BUILDERS)
def test_what_clients_compress_we_can_read(library: str, codec: Codec) -> None:
    # Clients send small batches as they are when compressing does not pay; this one pays, over many blocks.
    records = [
        NewRecord(key=b"%d" % number, value=b"ride " * 40, timestamp_ms=NOON_MS + number)
        for number in range(2000)
    ]
    batch = batch_of(BUILDERS[library](records, codec=codec))
    assert batch.header.codec_bits == codec
    assert [row(record) for record in read_records(batch, limit=LIMIT)] == rows_of(records)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", READERS)
@settings(max_examples=30)
@given(records=new_records)
def test_what_we_build_clients_can_read(
    library: str, codec: Codec, records: Sequence[NewRecord]
) -> None:
    data = build_batch(records, codec=codec, base_offset=7)
    assert READERS[library](data) == rows_of(records, base_offset=7)


def test_in_a_batch_with_the_brokers_time_every_record_has_it() -> None:
    batch = batch_of(build_batch(THREE, log_append_time=True, max_timestamp=NOON_MS + 99))
    assert {record.timestamp for record in read_records(batch, limit=LIMIT)} == {NOON_MS + 99}


def test_a_view_of_a_larger_buffer_is_read_like_bytes() -> None:
    data = build_batch(THREE, codec=Codec.LZ4)
    view = memoryview(b"before" + data + b"after")[6:-5]
    batch = RecordBatch(batch_of(data).header, view)
    assert read_records(batch, limit=LIMIT) == read_records(batch_of(data), limit=LIMIT)


def test_a_header_key_that_is_not_utf8_is_shown_as_java_shows_it() -> None:
    batch = batch_of_fields(b"\x00", 0, 0, -1, -1, 1, 2, b"\xffk", -1)
    assert read_records(batch, limit=LIMIT)[0].headers == (("\ufffdk", None),)


@pytest.mark.parametrize("attributes", [0, 0x7F])
def test_a_records_own_attributes_mean_nothing(attributes: int) -> None:
    batch = batch_of_fields(bytes([attributes]), 0, 0, -1, -1, 0)
    assert len(read_records(batch, limit=LIMIT)) == 1


def test_compaction_may_have_left_gaps_between_offsets() -> None:
    batch = batch_with_deltas(1, 4, 5, last_offset_delta=9)
    assert [record.offset for record in read_records(batch, limit=LIMIT)] == [101, 104, 105]


@pytest.mark.parametrize("codec", CODECS)
def test_compaction_may_have_left_no_record_at_all(codec: Codec) -> None:
    header = batch_of(build_batch(THREE, codec=codec)).header
    empty = seal(header._replace(record_count=0), b"")
    assert read_records(empty, limit=LIMIT) == []


def test_fewer_records_than_none_are_corrupt() -> None:
    header = batch_of(build_batch(THREE)).header
    with pytest.raises(CorruptMessage, match="-1 records"):
        read_records(seal(header._replace(record_count=-1), b""), limit=LIMIT)


@pytest.mark.parametrize(
    ("deltas", "last_offset_delta"),
    [((0, 2, 1), 2), ((0, 0, 1), 2), ((-1, 0, 1), 2), ((0, 1, 3), 2), ((1, 2, 3), 2)],
)
def test_offsets_that_go_back_or_out_of_the_batch_are_corrupt(
    deltas: tuple[int, ...], last_offset_delta: int
) -> None:
    with pytest.raises(CorruptMessage, match="offset delta"):
        read_records(batch_with_deltas(*deltas, last_offset_delta=last_offset_delta), limit=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 4, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_records_is_corrupt(codec: Codec, count: int) -> None:
    batch = batch_of(build_batch(THREE, codec=codec))
    with pytest.raises(CorruptMessage):
        read_records(changed(batch, record_count=count), limit=LIMIT)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((b"\x00", 0), "1 records in 3 bytes"),
        ((b"\x00", b"\x80" * 6), "incomplete"),
        ((b"\x00", 0, 0, 3, b"key"), "incomplete"),
        ((b"\x00", 0, 0, -1, 3, b"abc"), "incomplete"),
        ((b"\x00", 0, 0, 5, b"abcd"), "5 bytes at byte"),
        ((b"\x00", 0, 0, -2, -1, 0), "-2 bytes at byte"),
        ((b"\x00", 0, 0, -1, 2**31 - 1, 0), "bytes at byte"),
        ((b"\x00", 0, 0, -1, -2, 0), "-2 bytes at byte"),
        ((b"\x00", 0, 0, -1, -1, -1), "-1 headers"),
        ((b"\x00", 0, 0, -1, -1, 2**31 - 1, 0, 0), "headers in 2 bytes"),
        ((b"\x00", 0, 0, -1, -1, 1, -1, -1), "without a key"),
        ((b"\x00", 0, 0, -1, -1, 1, 1, b"k", 3, b"ab"), "3 bytes at byte"),
        ((b"\x00", 0, 0, -1, -1, 0, b"more"), "fields end at byte"),
        ((b"\x00", 0, b"\xff" * 5, -1, -1, 0), "longer than 32 bits"),
        ((b"\x00", b"\xff" * 10, 0, -1, -1, 0), "longer than 64 bits"),
        ((b"\x00", 2**63 - 1, 0, -1, -1, 0), "does not fit 64 bits"),
    ],
)
def test_a_record_whose_fields_do_not_fit_is_corrupt(
    fields: tuple[int | bytes, ...], words: str
) -> None:
    with pytest.raises(CorruptMessage, match=words):
        read_records(batch_of_fields(*fields), limit=LIMIT)


@pytest.mark.parametrize("length", [-1, 7, 2**31 - 1])
def test_a_record_that_ends_outside_the_records_is_corrupt(length: int) -> None:
    out = bytearray()
    append_varint(out, length)
    header = batch_of(build_batch(THREE[:1])).header
    with pytest.raises(CorruptMessage, match=f"a record of {length} bytes"):
        read_records(seal(header, out + b"\x00\x00\x00\x01\x01\x00"), limit=LIMIT)


def test_bytes_after_the_last_record_are_corrupt() -> None:
    batch = batch_of(build_batch(THREE))
    longer = seal(batch.header, bytes(records_of(batch)) + b"\x00")
    with pytest.raises(CorruptMessage, match="3 records end at byte"):
        read_records(longer, limit=LIMIT)


def test_a_batch_shorter_than_it_says_is_corrupt() -> None:
    data = build_batch(THREE)
    with pytest.raises(CorruptMessage, match=f"announces {len(data)} bytes"):
        read_records(RecordBatch(batch_of(data).header, data[:-1]), limit=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_records_beyond_the_limit_are_too_large(codec: Codec) -> None:
    with pytest.raises(MessageTooLarge, match="100"):
        read_records(batch_of(build_batch(THREE, codec=codec)), limit=100)


def test_a_codec_nobody_defined_is_unsupported() -> None:
    batch = changed(batch_of(build_batch(THREE)), attributes=CODEC_MASK)
    with pytest.raises(UnsupportedCompressionType):
        read_records(batch, limit=LIMIT)


def test_records_are_made_one_at_a_time() -> None:
    first = batch_of(build_batch(THREE))
    broken_end = seal(first.header, bytes(records_of(first))[:-1])
    records = iterate_records(broken_end, limit=LIMIT)
    assert [next(records).offset, next(records).offset] == [0, 1]
    with pytest.raises(CorruptMessage):
        next(records)


@given(records=new_records)
def test_times_are_told_without_the_rest(records: Sequence[NewRecord]) -> None:
    batch = batch_of(build_batch(records, base_offset=5))
    told = [(one.offset, one.timestamp) for one in read_records(batch, limit=LIMIT)]
    assert list(iterate_times(batch, limit=LIMIT)) == told


def test_in_a_batch_with_the_brokers_time_all_records_have_that() -> None:
    batch = batch_of(build_batch(THREE, log_append_time=True, max_timestamp=NOON_MS))
    assert list(iterate_times(batch, limit=LIMIT)) == [(at, NOON_MS) for at in range(3)]


def strictly(
    batch: RecordBatch, timestamp_ms: int, from_offset: int
) -> tuple[int, int] | type[Exception] | None:
    try:
        for offset, timestamp in iterate_times(batch, limit=LIMIT):
            if offset >= from_offset and timestamp >= timestamp_ms:
                return offset, timestamp
    except CorruptMessage:
        return CorruptMessage
    return None


def quickly(
    batch: RecordBatch, timestamp_ms: int, from_offset: int
) -> tuple[int, int] | type[Exception] | None:
    try:
        return find_time(batch, timestamp_ms, from_offset=Offset(from_offset), limit=LIMIT)
    except CorruptMessage:
        return CorruptMessage


@settings(max_examples=FUZZ_EXAMPLES)
@given(
    deltas=st.lists(
        st.one_of(st.integers(-200, 200), st.integers(-(2**22), 2**22), st.integers(0, 2**40)),
        min_size=1,
        max_size=200,
    ),
    wanted=st.one_of(st.integers(-200, 200), st.integers(-(2**40), 2**40)),
    from_offset=st.integers(0, 260),
    is_ours=st.booleans(),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
)
def test_a_time_is_found_as_if_every_record_were_read(
    deltas: list[int],
    wanted: int,
    from_offset: int,
    is_ours: bool,
    damage: list[tuple[int, int]],
) -> None:
    records = [NewRecord(value=b"v" * 9, timestamp_ms=NOON_MS + delta) for delta in deltas]
    batch = batch_of(build_batch(records, base_offset=50, log_append_time=is_ours))
    body = bytearray(records_of(batch))
    for at, byte in damage:
        body[at % len(body)] = byte
    batch = seal(batch.header, body)
    told = quickly(batch, NOON_MS + wanted, from_offset)
    assert told == strictly(batch, NOON_MS + wanted, from_offset)


def test_a_time_that_does_not_fit_is_not_found_but_corrupt() -> None:
    largest = 2**63 - 1
    batch = batch_of(build_batch([NewRecord(value=b"v", timestamp_ms=largest - 1)] * 2))
    batch = changed(batch, base_timestamp=largest)
    body = bytearray()
    append_record(body, NewRecord(timestamp_ms=largest), offset_delta=0, base_timestamp=largest - 5)
    append_record(body, NewRecord(timestamp_ms=largest), offset_delta=1, base_timestamp=largest - 5)
    batch = seal(batch.header, body)
    assert quickly(batch, 0, 0) is CorruptMessage


REFUSALS = (CorruptMessage, MessageTooLarge, UnsupportedCompressionType)


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(
    attributes=st.integers(0, 0x7F),
    count=st.integers(-1, 9),
    last_offset_delta=st.integers(-1, 9),
    records=st.binary(max_size=100),
)
def test_any_bytes_are_records_or_refused_in_our_words(
    attributes: int, count: int, last_offset_delta: int, records: bytes
) -> None:
    header = batch_of(build_batch(THREE)).header._replace(
        attributes=attributes, record_count=count, last_offset_delta=last_offset_delta
    )
    with contextlib.suppress(*REFUSALS):
        assert len(read_records(seal(header, records), limit=1000)) == count


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(
    codec=st.sampled_from(CODECS),
    records=new_records,
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
)
def test_damaged_records_are_read_or_refused_in_our_words(
    codec: Codec, records: Sequence[NewRecord], damage: list[tuple[int, int]]
) -> None:
    batch = batch_of(build_batch(records, codec=codec))
    body = bytearray(records_of(batch))
    for at, byte in damage:
        body[at % len(body)] = byte
    with contextlib.suppress(*REFUSALS):
        assert len(read_records(seal(batch.header, body), limit=LIMIT)) == len(records)


def test_records_at_offsets_are_those_that_a_full_read_finds() -> None:
    records = [
        NewRecord(value=b"v" * (number * 37 % 300), timestamp_ms=number) for number in range(300)
    ]
    # Lengths of three bytes, too.
    records[150] = NewRecord(value=b"v" * 20_000, timestamp_ms=150)
    data = build_batch(records, base_offset=1_000, codec=Codec.ZSTD)
    batch = RecordBatch(read_header(data), data)
    every = read_records(batch, limit=10**6)
    for step in (1, 7, 149, 299):
        offsets = [Offset(one) for one in range(1_000, 1_300, step)]
        assert read_records_at(batch, offsets, limit=10**6) == every[::step]
    beside = [Offset(999), Offset(1_299), Offset(1_300)]
    assert read_records_at(batch, beside, limit=10**6) == every[-1:]
