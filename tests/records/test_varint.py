import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import util as kafka_python

from respool.model.errors import CorruptMessage
from respool.records.varint import INT_BITS, LONG_BITS, append_varint, read_varint

longs = st.integers(-(2**63), 2**63 - 1)


def written(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_numbers_are_folded_and_written_lowest_bits_first(value: int, data: str) -> None:
    assert written(value).hex() == data


@given(longs)
def test_every_long_comes_back(value: int) -> None:
    data = written(value)
    assert read_varint(data, 0, end=len(data), bits=LONG_BITS) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_every_int_comes_back_from_among_other_bytes(
    value: int, before: bytes, after: bytes
) -> None:
    data = before + written(value) + after
    assert read_varint(data, len(before), end=len(data)) == (value, len(data) - len(after))


@given(longs)
def test_kafka_python_writes_the_same_bytes(value: int) -> None:
    theirs = bytearray()
    kafka_python.encode_varint(value, theirs.append)
    assert written(value) == theirs


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_a_mistake_of_ours(value: int) -> None:
    with pytest.raises(AssertionError):
        written(value)


def test_a_number_may_not_reach_beyond_the_end_it_is_given() -> None:
    data = written(300)
    with pytest.raises(CorruptMessage, match="incomplete at byte 1"):
        read_varint(data, 0, end=1)
    with pytest.raises(CorruptMessage, match="incomplete at byte 2"):
        read_varint(data, 2, end=2)


@pytest.mark.parametrize(("bits", "bytes_max"), [(INT_BITS, 5), (LONG_BITS, 10)])
def test_a_number_longer_than_its_kind_is_refused(bits: int, bytes_max: int) -> None:
    data = b"\x80" * bytes_max + b"\x00" * 10
    with pytest.raises(CorruptMessage, match=f"longer than {bits} bits"):
        read_varint(data, 0, end=len(data), bits=bits)


def test_an_int_of_33_bits_is_refused_although_it_has_five_bytes() -> None:
    data = written(2**31)
    assert len(data) == 5
    with pytest.raises(CorruptMessage, match="does not fit 32 bits"):
        read_varint(data, 0, end=len(data))
    assert read_varint(data, 0, end=len(data), bits=LONG_BITS) == (2**31, 5)
