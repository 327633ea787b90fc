from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python
from kafka.record import legacy_records as kafka_python_old

from records.record_examples import (
    BUILDERS,
    CODECS,
    COMPRESSING,
    FUZZ_EXAMPLES,
    LIMIT,
    NOON_MS,
    READERS,
    THREE,
    batch_of,
    changed,
    new_records,
    rows_of,
)
from respool.model.config_rules import LONG_MAX
from respool.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RequestError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from respool.records.batch import (
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    STAMP_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    RecordBatch,
    read_header,
    records_of,
)
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.records.validate import (
    check_produced,
    check_stored,
    check_timestamps,
    recompress,
    walk_batches,
    with_create_time,
    with_log_append_time,
)

GOOD = build_batch(THREE, producer_id=7, producer_epoch=0, base_sequence=0)


def changed_bytes(data: bytes, **fields: int) -> bytes:
    return bytes(changed(batch_of(data), **fields).data)


def patched(data: bytes, at: int, patch: bytes) -> bytes:
    """The batch with other bytes, and the checksum it had."""
    return data[:at] + patch + data[at + len(patch) :]


def length_field(length: int) -> bytes:
    return length.to_bytes(4, "big", signed=True)


def check(data: bytes | memoryview, *, bytes_max: int = LIMIT) -> RecordBatch:
    return check_produced(data, bytes_max=bytes_max)


# --- check_produced ---


@pytest.mark.parametrize("shape", [bytes, memoryview])
def test_a_sound_batch_is_accepted_and_not_copied(shape: Callable[[bytes], bytes]) -> None:
    data = shape(GOOD)
    batch = check(data)
    assert batch.data is data
    assert batch.header == read_header(GOOD)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", BUILDERS)
@settings(max_examples=30)
@given(records=new_records)
def test_what_clients_build_is_accepted(
    library: str, codec: Codec, records: Sequence[NewRecord]
) -> None:
    data = BUILDERS[library](records, codec=codec)
    assert check(data).header.record_count == len(records)


@pytest.mark.parametrize(
    "fields",
    [
        {"leader_epoch": 2**31 - 1},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"base_timestamp": 0, "max_timestamp": LONG_MAX},
        {"attributes": TRANSACTIONAL_BIT},
        # Whether that is allowed is the topic's to say: see with_create_time and with_log_append_time.
        {"attributes": LOG_APPEND_TIME_BIT},
        {"attributes": Codec.ZSTD},
        {"producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1},
        # Some clients leave zeros beside a producer id that is not there.
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
    ],
    ids=str,
)
def test_what_a_client_may_send_is_accepted(fields: dict[str, int]) -> None:
    data = changed_bytes(GOOD, **fields)
    assert check(data) == batch_of(data)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"base_offset": 1}, InvalidRecord, "base offset 1"),
        ({"base_offset": -1}, InvalidRecord, "base offset -1"),
        ({"record_count": 0, "last_offset_delta": -1}, InvalidRecord, "0 records"),
        ({"record_count": -1, "last_offset_delta": -2}, InvalidRecord, "-1 records"),
        ({"record_count": 2}, InvalidRecord, "2 records with offsets 0 to 2"),
        ({"last_offset_delta": 3}, InvalidRecord, "3 records with offsets 0 to 3"),
        ({"last_offset_delta": 2**31 - 1}, InvalidRecord, "3 records"),
        ({"attributes": CONTROL_BIT}, InvalidRecord, "control"),
        ({"attributes": CONTROL_BIT | TRANSACTIONAL_BIT}, InvalidRecord, "control"),
        ({"attributes": 0x40}, InvalidRecord, "attributes 0x40"),
        ({"attributes": 0x100}, InvalidRecord, "attributes 0x100"),
        ({"attributes": -(2**15)}, InvalidRecord, "attributes -0x8000"),
        ({"attributes": 5}, UnsupportedCompressionType, "codec 5"),
        ({"attributes": 6}, UnsupportedCompressionType, "codec 6"),
        ({"attributes": 7 | TRANSACTIONAL_BIT}, UnsupportedCompressionType, "codec 7"),
        ({"base_timestamp": -2}, InvalidTimestamp, "-2"),
        ({"max_timestamp": -2}, InvalidTimestamp, "-2"),
        ({"max_timestamp": -LONG_MAX - 1}, InvalidTimestamp, "-9223372036854775808"),
        ({"base_sequence": -1}, InvalidRecord, "sequence -1"),
        ({"producer_epoch": -1}, InvalidRecord, "epoch -1"),
        ({"producer_id": -2}, InvalidRecord, "producer id -2"),
        ({"producer_id": -1, "attributes": TRANSACTIONAL_BIT}, InvalidRecord, "without a producer"),
    ],
    ids=str,
)
def test_what_a_client_may_not_send_is_refused_although_its_checksum_fits(
    fields: dict[str, int], error: type[RequestError], words: str
) -> None:
    with pytest.raises(error, match=words):
        check(changed_bytes(GOOD, **fields))


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", CorruptMessage, "batch of 0 bytes"),
        (GOOD[:16], CorruptMessage, "batch of 16 bytes"),
        (GOOD[: HEADER_BYTES - 1], CorruptMessage, "batch of 60 bytes"),
        (GOOD[:-1], CorruptMessage, "announces"),
        (patched(GOOD, 8, length_field(2**31 - 1)), CorruptMessage, "announces"),
        (patched(GOOD, 8, length_field(-1)), CorruptMessage, "announces 11 bytes"),
        (patched(GOOD, 8, length_field(48)), CorruptMessage, "announces 60 bytes"),
        (patched(GOOD, 8, length_field(49)), InvalidRecord, "bytes follow"),
        (GOOD + b"\x00", InvalidRecord, "1 bytes follow"),
        (GOOD + GOOD, InvalidRecord, f"{len(GOOD)} bytes follow"),
        (patched(GOOD, MAGIC_AT, b"\x00"), UnsupportedForMessageFormat, "v0"),
        (patched(GOOD, MAGIC_AT, b"\x01"), UnsupportedForMessageFormat, "v1"),
        (patched(GOOD, MAGIC_AT, b"\x03"), CorruptMessage, "v3"),
        (patched(GOOD, MAGIC_AT, b"\xff"), CorruptMessage, "v-1"),
        (patched(GOOD, CRC_AT, bytes(4)), CorruptMessage, "with crc 0"),
        (patched(GOOD, len(GOOD) - 1, b"\xff"), CorruptMessage, "crc"),
    ],
)
def test_what_is_not_one_whole_v2_batch_is_refused(
    data: bytes, error: type[RequestError], words: str
) -> None:
    for shape in (data, memoryview(data)):
        with pytest.raises(error, match=words):
            check(shape)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [b"", b"long " * 20])
def test_an_old_message_set_is_named_as_such_however_short(magic: int, value: bytes) -> None:
    builder = kafka_python_old.LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, NOON_MS, None, value)
    with pytest.raises(UnsupportedForMessageFormat, match=f"v{magic}"):
        check(bytes(builder.build()))


def test_the_size_limit_is_exact() -> None:
    assert check(GOOD, bytes_max=len(GOOD)).data == GOOD
    with pytest.raises(MessageTooLarge, match=f"{len(GOOD)} bytes, limit {len(GOOD) - 1}"):
        check(GOOD, bytes_max=len(GOOD) - 1)


def test_the_size_is_refused_before_the_checksum_is_computed() -> None:
    with pytest.raises(MessageTooLarge):
        check(patched(GOOD, CRC_AT, bytes(4)), bytes_max=100)


def test_every_single_byte_that_flips_is_noticed_but_the_leader_epoch() -> None:
    for at in range(len(GOOD)):
        flipped = patched(GOOD, at, bytes([GOOD[at] ^ 0x10]))
        if LENGTH_BYTES <= at < STAMP_BYTES:
            assert check(flipped).header.leader_epoch != -1
        else:
            with pytest.raises(RequestError):
                check(flipped)


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4))
def test_damage_is_noticed_unless_it_only_touches_the_leader_epoch(
    flips: list[tuple[int, int]],
) -> None:
    damaged = bytearray(GOOD)
    for at, bits in flips:
        damaged[at % len(damaged)] ^= bits
    try:
        check(bytes(damaged))
    except RequestError:
        return
    assert (
        damaged[:LENGTH_BYTES] + damaged[STAMP_BYTES:] == GOOD[:LENGTH_BYTES] + GOOD[STAMP_BYTES:]
    )


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(data=st.binary(max_size=200) | st.binary(max_size=90).map(lambda end: GOOD[:30] + end))
def test_any_bytes_are_refused_in_our_words(data: bytes) -> None:
    with pytest.raises(RequestError):
        check(data)


# --- timestamps ---


def header_at(base_timestamp: int, max_timestamp: int) -> BatchHeader:
    return batch_of(GOOD).header._replace(
        base_timestamp=base_timestamp, max_timestamp=max_timestamp
    )


@pytest.mark.parametrize(
    "times", [(NOON_MS, NOON_MS), (NOON_MS - 10, NOON_MS + 5), (-1, -1), (-1, NOON_MS)]
)
def test_times_inside_the_window_pass_and_so_does_having_none(times: tuple[int, int]) -> None:
    check_timestamps(header_at(*times), now_ms=NOON_MS, before_max_ms=10, after_max_ms=5)


@pytest.mark.parametrize(
    ("times", "outside"),
    [
        ((NOON_MS - 11, NOON_MS), NOON_MS - 11),
        ((NOON_MS, NOON_MS + 6), NOON_MS + 6),
        ((NOON_MS, 0), 0),
        ((LONG_MAX, LONG_MAX), LONG_MAX),
    ],
)
def test_times_outside_the_window_are_refused(times: tuple[int, int], outside: int) -> None:
    with pytest.raises(InvalidTimestamp, match=f"{outside} is outside {NOON_MS - 10} to"):
        check_timestamps(header_at(*times), now_ms=NOON_MS, before_max_ms=10, after_max_ms=5)


def test_kafkas_default_lets_any_past_through_and_one_hour_of_future() -> None:
    hour_ms = 3_600_000
    window = {"now_ms": NOON_MS, "before_max_ms": LONG_MAX, "after_max_ms": hour_ms}
    check_timestamps(header_at(0, NOON_MS + hour_ms), **window)
    with pytest.raises(InvalidTimestamp):
        check_timestamps(header_at(0, NOON_MS + hour_ms + 1), **window)


@pytest.mark.parametrize("codec", CODECS)
def test_with_the_brokers_time_every_client_sees_it_on_every_record(codec: Codec) -> None:
    batch = check(build_batch(THREE, codec=codec))
    stamped = with_log_append_time(batch, now_ms=NOON_MS + 77)
    theirs = kafka_python.DefaultRecordBatch(bytes(stamped.data))
    assert theirs.validate_crc()
    assert [(record.timestamp, record.timestamp_type) for record in theirs] == [
        (NOON_MS + 77, 1)
    ] * 3
    assert stamped.header.base_timestamp == batch.header.base_timestamp
    assert records_of(stamped) == records_of(batch)
    assert check_stored(stamped.header, stamped.data)


def test_a_producer_may_not_claim_the_brokers_time_where_the_broker_gives_it() -> None:
    batch = check(build_batch(THREE, log_append_time=True))
    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        with_log_append_time(batch, now_ms=NOON_MS)


def test_with_create_time_takes_a_producers_false_mark_off() -> None:
    batch = check(build_batch(THREE, log_append_time=True, max_timestamp=NOON_MS + 9))
    cleared = with_create_time(batch)
    assert READERS["kafka-python"](bytes(cleared.data)) == rows_of(THREE)
    assert cleared.header.max_timestamp == NOON_MS + 9
    assert check(bytes(cleared.data)) == cleared


def test_with_create_time_leaves_an_honest_batch_alone() -> None:
    batch = check(GOOD)
    assert with_create_time(batch) is batch


def test_with_create_time_refuses_a_marked_batch_without_any_time() -> None:
    batch = check(build_batch([NewRecord(value=b"x")], log_append_time=True))
    with pytest.raises(InvalidTimestamp, match="no timestamp"):
        with_create_time(batch)


# --- recompress ---


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_recompressed_records_are_the_same_to_every_reader(source: Codec, target: Codec) -> None:
    batch = check(
        build_batch(
            THREE,
            codec=source,
            producer_id=7,
            producer_epoch=1,
            base_sequence=2,
            is_transactional=True,
        )
    )
    result = recompress(batch, target, limit=LIMIT)
    assert check(bytes(result.data)) == result
    assert result.header.codec_bits == target
    assert read_records(result, limit=LIMIT) == read_records(batch, limit=LIMIT)
    for read in READERS.values():
        assert read(bytes(result.data)) == rows_of(THREE)
    assert result.header == batch.header._replace(
        attributes=target | TRANSACTIONAL_BIT, length=result.header.length, crc=result.header.crc
    )


@pytest.mark.parametrize("codec", CODECS)
def test_recompressing_to_the_same_codec_does_nothing(codec: Codec) -> None:
    batch = check(build_batch(THREE, codec=codec))
    assert recompress(batch, codec, limit=0) is batch


@pytest.mark.parametrize("codec", COMPRESSING)
def test_recompressing_more_than_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(MessageTooLarge, match="100"):
        recompress(check(build_batch(THREE, codec=codec)), Codec.NONE, limit=100)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_recompressing_what_was_not_compressed_as_it_says_is_refused(codec: Codec) -> None:
    batch = check(changed_bytes(GOOD, attributes=int(codec)))
    with pytest.raises(CorruptMessage):
        recompress(batch, Codec.NONE, limit=LIMIT)


# --- batches in a log ---


def find_batches_end(buffer: bytes, *, position: int = 0) -> int:
    """Where the last whole batch ends; `position` when there is none."""
    for start, header in walk_batches(buffer, position=position):
        position = start + header.size
    return position


def test_walking_finds_every_whole_batch() -> None:
    sizes = [build_batch(THREE[:count], base_offset=10 * count) for count in (1, 2, 3)]
    log = b"".join(sizes)
    found = list(walk_batches(log))
    assert [header.base_offset for _, header in found] == [10, 20, 30]
    assert [log[at : at + header.size] for at, header in found] == sizes
    assert find_batches_end(log) == len(log)
    assert list(walk_batches(memoryview(log), position=found[1][0])) == found[1:]


def test_walking_stops_at_a_cut_off_tail() -> None:
    for cut in range(1, len(GOOD)):
        log = GOOD + GOOD[:-cut]
        assert [at for at, _ in walk_batches(log)] == [0]
        assert find_batches_end(log) == len(GOOD)


@pytest.mark.parametrize("length", [0, -1, -12, -(2**31), 48, 2**31 - 1])
def test_walking_stops_where_no_batch_can_be(length: int) -> None:
    log = GOOD + patched(GOOD, 8, length_field(length)) + GOOD
    assert [at for at, _ in walk_batches(log)] == [0]
    assert find_batches_end(log) == len(GOOD)


def test_walking_zeros_or_nothing_finds_nothing() -> None:
    assert list(walk_batches(b"")) == []
    assert list(walk_batches(bytes(4096))) == []
    assert find_batches_end(bytes(4096), position=100) == 100


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 2**40, "leader_epoch": 3},
        {"attributes": CONTROL_BIT | TRANSACTIONAL_BIT},
        {"attributes": 0x40},
        # What compaction leaves.
        {"record_count": 1, "last_offset_delta": 9},
        {"record_count": 0},
    ],
    ids=str,
)
def test_a_stored_batch_may_be_what_no_client_may_send(fields: dict[str, int]) -> None:
    data = changed_bytes(GOOD, **fields)
    assert check_stored(read_header(data), data)
    assert check_stored(read_header(data), memoryview(data))


@pytest.mark.parametrize(
    "data",
    [
        patched(GOOD, MAGIC_AT, b"\x01"),
        patched(GOOD, CRC_AT, bytes(4)),
        patched(GOOD, len(GOOD) - 1, b"\xff"),
        patched(GOOD, 8, length_field(48)),
        # The checksum does not cover the length.
        patched(GOOD, 8, length_field(len(GOOD) - LENGTH_BYTES + 1)),
        patched(GOOD, 8, length_field(len(GOOD) - LENGTH_BYTES - 1)),
        GOOD[:-1],
        GOOD + b"\x00",
        changed_bytes(GOOD, base_offset=-1),
        changed_bytes(GOOD, record_count=-1),
        changed_bytes(GOOD, record_count=4),
        changed_bytes(GOOD, record_count=0, last_offset_delta=-2),
    ],
)
def test_a_damaged_stored_batch_is_found_out(data: bytes) -> None:
    assert not check_stored(read_header(data), data)
