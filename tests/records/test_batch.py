from hypothesis import given
from hypothesis import strategies as st
from kafka.record import _crc32c as kafka_python_crc

from records.record_examples import THREE, batch_of
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    SEQUENCE_MAX,
    STAMP_BYTES,
    BatchHeader,
    crc_of,
    pack_header,
    read_header,
    records_of,
    seal,
    stamp,
)
from respool.records.build import build_batch
from respool.records.validate import check_stored

GOOD = batch_of(build_batch(THREE, producer_id=7, producer_epoch=0, base_sequence=5))


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


headers = st.builds(
    BatchHeader,
    base_offset=ints(64).map(Offset),
    length=ints(32),
    leader_epoch=ints(32).map(LeaderEpoch),
    magic=ints(8),
    crc=st.integers(0, 2**32 - 1),
    attributes=ints(16),
    last_offset_delta=ints(32),
    base_timestamp=ints(64),
    max_timestamp=ints(64),
    producer_id=ints(64),
    producer_epoch=ints(16),
    base_sequence=ints(32),
    record_count=ints(32),
)


@given(header=headers, before=st.binary(max_size=5))
def test_every_header_comes_back_from_anywhere_in_a_buffer(
    header: BatchHeader, before: bytes
) -> None:
    packed = pack_header(header)
    assert len(packed) == HEADER_BYTES
    assert read_header(before + packed + b"after", len(before)) == header


def test_stamping_offset_and_epoch_leaves_the_checksum_right() -> None:
    stamped = stamp(GOOD.header, base_offset=Offset(41), leader_epoch=LeaderEpoch(6))
    data = stamped + bytes(GOOD.data)[STAMP_BYTES:]
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (41, 6)
    assert (header.last_offset, header.next_offset) == (43, 44)
    assert check_stored(header, data)


def test_after_the_highest_sequence_comes_zero_again() -> None:
    assert GOOD.header.last_sequence == 7
    assert GOOD.header._replace(base_sequence=SEQUENCE_MAX - 2).last_sequence == SEQUENCE_MAX
    assert GOOD.header._replace(base_sequence=SEQUENCE_MAX).last_sequence == 1


@given(records=st.binary(max_size=200), length=st.integers(0, 9), crc=st.integers(0, 2**32 - 1))
def test_a_sealed_batch_has_the_right_length_and_checksum_whatever_the_header_said(
    records: bytes, length: int, crc: int
) -> None:
    header = read_header(build_batch(THREE))._replace(length=length, crc=crc)
    sealed = seal(header, records)
    assert read_header(bytes(sealed.data)) == sealed.header
    assert sealed.header.size == len(sealed.data)
    assert sealed.header.crc == kafka_python_crc.crc(bytes(sealed.data[CRC_COVERS_FROM:]))
    assert sealed.header == header._replace(length=sealed.header.length, crc=sealed.header.crc)
    assert records_of(sealed) == records


def test_the_checksum_is_the_same_over_bytes_and_over_a_view() -> None:
    data = build_batch(THREE)
    assert crc_of(data) == crc_of(memoryview(data)) == batch_of(data).header.crc
