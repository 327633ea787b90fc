"""What a rebuilt batch keeps, what is made anew, and the skip marker: read by our reader and by stock clients'."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from records.match_contract import conditions, is_shown, tagged, tagged_records
from records.record_examples import CODECS, COMPRESSING, LIMIT, NOON_MS, READERS, batch_of, changed
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.where import Where, parse_where
from respool.ports.record_scan import Section
from respool.records.batch import HEADER_BYTES, Codec, RecordBatch, crc_of, records_of
from respool.records.build import NewRecord, build_batch
from respool.records.compress import decompress
from respool.records.markers import MARKER_BYTES, read_marker
from respool.records.plain_match import PlainMatcher
from respool.records.rebuilt_batch import build_skip_marker, rebuild_batch
from respool.records.record import read_records
from respool.records.validate import walk_batches

PAID, TEST = ("tag", b"paid"), ("tag", b"test")
KEPT_AS_STORED = (
    "base_offset", "leader_epoch", "magic", "base_timestamp",
    "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip


def rebuilt(batch: RecordBatch, where: Where) -> RecordBatch:
    header = batch.header
    data = decompress(Codec(header.codec_bits), records_of(batch), limit=LIMIT)
    section = Section(0, len(data), header.record_count, 0, header.last_offset_delta)
    matched = PlainMatcher(where).match(data, [section])
    return rebuild_batch(header, matched.matching_records(0), matched.summaries[0])


def paid(batch: bytes) -> RecordBatch:
    return rebuilt(batch_of(batch), parse_where("tag = 'paid'"))


@pytest.mark.parametrize("codec", CODECS)
@given(where=conditions, records=tagged_records)
def test_it_has_the_shown_records_at_their_offsets_and_times(
    codec: Codec, where: Where, records: list[NewRecord]
) -> None:
    shown = [(n, one) for n, one in enumerate(records) if is_shown(where, one)]
    if not shown:
        return
    stored = batch_of(build_batch(records, codec=codec, base_offset=500, leader_epoch=3))

    batch = rebuilt(stored, where)

    assert crc_of(batch.data) == batch.header.crc
    assert [
        (one.offset, one.timestamp, one.key, one.value, one.headers)
        for one in read_records(batch, limit=LIMIT)
    ] == [(500 + n, one.timestamp_ms, one.key, one.value, one.headers) for n, one in shown]
    assert batch.header.last_offset == 500 + shown[-1][0]
    assert batch.header.max_timestamp == max(one.timestamp_ms for _, one in shown)


def test_what_a_transaction_and_an_epoch_are_told_by_stays() -> None:
    stored = build_batch(
        [tagged(TEST), tagged(PAID), tagged(TEST)],
        base_offset=70,
        leader_epoch=5,
        producer_id=9,
        producer_epoch=2,
        base_sequence=31,
        is_transactional=True,
    )
    header, before = paid(stored).header, batch_of(stored).header
    for name in KEPT_AS_STORED:
        assert getattr(header, name) == getattr(before, name), name
    assert header.is_transactional
    assert (header.record_count, header.last_offset_delta) == (1, 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_it_is_compressed_only_if_it_would_be_larger_than_the_stored_one(codec: Codec) -> None:
    one_of_many = [tagged(PAID), *[NewRecord(value=b"%d" % n * 50) for n in range(50)]]
    assert paid(build_batch(one_of_many, codec=codec)).header.codec_bits == Codec.NONE
    nearly_all = [NewRecord(value=b"x" * 500, headers=(PAID,))] * 50 + [tagged(TEST)]
    stored = build_batch(nearly_all, codec=codec)
    batch = paid(stored)
    assert batch.header.codec_bits == codec
    assert len(batch.data) < HEADER_BYTES + 50 * 500
    assert len(read_records(batch, limit=LIMIT)) == 50


def test_under_log_append_time_the_maximum_stays_the_time_of_every_record() -> None:
    stored = batch_of(
        build_batch([tagged(PAID), tagged(TEST)], log_append_time=True, max_timestamp=NOON_MS + 60)
    )
    batch = paid(bytes(stored.data))
    assert batch.header.max_timestamp == NOON_MS + 60
    (record,) = read_records(batch, limit=LIMIT)
    assert record.timestamp == NOON_MS + 60


def test_records_without_a_time_stay_without() -> None:
    records = [NewRecord(value=b"v", headers=(tag,)) for tag in (PAID, TEST)]
    assert paid(build_batch(records)).header.max_timestamp == NO_TIMESTAMP


def test_the_maximum_timestamp_is_that_of_the_shown_records() -> None:
    times = [(NOON_MS + 5, PAID), (NOON_MS + 90, TEST), (NOON_MS - 7, PAID)]
    records = [NewRecord(timestamp_ms=at, headers=(tag,)) for at, tag in times]
    assert paid(build_batch(records)).header.max_timestamp == NOON_MS + 5


def test_a_gap_that_compaction_left_at_the_end_stays_a_gap() -> None:
    stored = batch_of(build_batch([tagged(PAID), tagged(TEST)], base_offset=10))
    stored = changed(stored, last_offset_delta=8)
    assert paid(bytes(stored.data)).header.last_offset == 10


@pytest.mark.parametrize("library", READERS)
def test_stock_clients_read_it_with_checksums_on(library: str) -> None:
    records = [tagged(PAID if n % 3 else TEST, key=b"%d" % n) for n in range(10)]
    batch = paid(build_batch(records, base_offset=30))
    found = READERS[library](bytes(batch.data))
    assert [offset for offset, *_ in found] == [30 + n for n in range(10) if n % 3]


@given(last_offset=st.integers(0, 2**62), epoch=st.integers(-1, 2**31 - 1))
def test_a_skip_marker_is_a_commit_of_no_producer(last_offset: int, epoch: int) -> None:
    data = build_skip_marker(
        last_offset=Offset(last_offset), leader_epoch=LeaderEpoch(epoch), timestamp_ms=NOON_MS
    )
    ((_, header),) = walk_batches(data)
    assert len(data) == MARKER_BYTES
    assert crc_of(data) == header.crc
    assert (header.base_offset, header.last_offset) == (last_offset, last_offset)
    assert header.leader_epoch == epoch
    assert header.is_control
    assert header.is_transactional
    marker = read_marker(RecordBatch(header, data))
    assert marker is not None
    assert (marker.producer_id, marker.producer_epoch, marker.is_commit) == (-1, -1, True)


def test_a_timestamp_beyond_64_bits_leaves_the_maximum_as_the_producer_wrote_it() -> None:
    """A producer may write any delta. The largest time of the shown records must still fit into the header."""
    records = [
        NewRecord(value=b"v", timestamp_ms=NOON_MS, headers=(TEST,)),
        NewRecord(value=b"v", timestamp_ms=NOON_MS + 2**63 - 1, headers=(PAID,)),
    ]
    stored = build_batch(records, max_timestamp=NOON_MS)
    assert paid(stored).header.max_timestamp == NOON_MS
