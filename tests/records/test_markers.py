"""The ends of transactions, byte for byte."""

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from respool.records.batch import RecordBatch, crc_of, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker, read_marker

MARKER = EndTransactionMarker(producer_id=7, producer_epoch=3, coordinator_epoch=11, is_commit=True)


def control(key: bytes | None, value: bytes | None) -> RecordBatch:
    data = build_batch(
        [NewRecord(key=key, value=value, timestamp_ms=5)],
        producer_id=7,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )
    return RecordBatch(read_header(data), data)


def test_a_marker_is_the_control_batch_that_kafka_writes() -> None:
    batch = build_marker(MARKER, timestamp_ms=5)
    assert len(batch.data) == 78
    assert batch.data == control(pack(">hh", 0, 1), pack(">hi", 0, 11)).data
    assert batch.header == read_header(batch.data)
    assert crc_of(batch.data) == batch.header.crc


@given(
    st.builds(
        EndTransactionMarker,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 2**15 - 1),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        is_commit=st.booleans(),
    ),
    st.integers(0, 2**62),
)
def test_a_marker_says_what_it_was_made_from(marker: EndTransactionMarker, time: int) -> None:
    assert read_marker(build_marker(marker, timestamp_ms=time)) == marker


def test_what_is_no_end_of_a_transaction_is_no_marker() -> None:
    value = pack(">hi", 0, 11)
    assert read_marker(control(pack(">hh", 0, 2), value)) is None
    assert read_marker(control(b"\0\0", value)) is None
    assert read_marker(control(None, value)) is None
    assert read_marker(control(pack(">hh", 0, 1), None)) is None
    data = build_batch([NewRecord(key=pack(">hh", 0, 1), value=value)])
    assert read_marker(RecordBatch(read_header(data), data)) is None


def test_a_marker_that_compaction_has_emptied_says_nothing() -> None:
    header = build_marker(MARKER, timestamp_ms=5).header
    assert read_marker(seal(header._replace(record_count=0), b"")) is None


def test_a_damaged_marker_says_nothing() -> None:
    batch = build_marker(MARKER, timestamp_ms=5)
    assert read_marker(RecordBatch(batch.header, batch.data[:-3])) is None
