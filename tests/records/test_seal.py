from hypothesis import given
from hypothesis import strategies as st
from kafka.record import _crc32c as kafka_python_crc

from records.record_examples import THREE, batch_of
from respool.records.batch import CRC_COVERS_FROM, read_header
from respool.records.build import build_batch
from respool.records.seal import crc_of, records_of, seal


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
