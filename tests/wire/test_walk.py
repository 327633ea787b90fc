import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from respool.wire.schema import response_class
from respool.wire.schema_extensions import request_class
from respool.wire.walk import (
    ARRAY_ITEMS_MAX,
    BadBytes,
    Walk,
    pack_varint,
    read_varint,
    skip_tagged_fields,
    walker_of,
)
from wire.entities import SERVED, encode, entities, examples, spoiled

METADATA_0 = request_class(3, 0)
METADATA_9 = request_class(3, 9)
FETCH_12 = request_class(1, 12)
FETCH_15 = request_class(1, 15)
CREATE_TOPICS_5 = request_class(19, 5)
DESCRIBE_TOPIC_PARTITIONS_0 = request_class(75, 0)

# Tag 9, two bytes: no version of any request knows it.
UNKNOWN_TAG = b"\x09\x02??"


def walk_over(entity_class: Any, raw: bytes) -> tuple[int, Walk]:
    walk = Walk()
    end = walker_of(entity_class).walk_over(memoryview(raw), 0, walk)
    return end, walk


@pytest.mark.parametrize("count", [2, 2**28, 2**31 - 1])
def test_an_array_longer_than_the_bytes_left_is_refused(count: int) -> None:
    with pytest.raises(BadBytes, match=f"topics has {count} items in 3 bytes"):
        walk_over(METADATA_0, struct.pack(">ih", count, 1) + b"a")
    with pytest.raises(BadBytes, match=f"topics has {count} items in 3 bytes"):
        walk_over(METADATA_9, pack_varint(count + 1) + b"\x02a\x00")


def test_a_request_has_a_limited_number_of_array_items() -> None:
    at_most = struct.pack(">i", ARRAY_ITEMS_MAX) + b"\0\0" * ARRAY_ITEMS_MAX
    assert walk_over(METADATA_0, at_most)[0] == len(at_most)
    too_many = struct.pack(">i", ARRAY_ITEMS_MAX + 1) + b"\0\0" * (ARRAY_ITEMS_MAX + 1)
    with pytest.raises(BadBytes, match="more than 100000 items"):
        walk_over(METADATA_0, too_many)


def test_the_limit_counts_the_items_of_all_arrays_together() -> None:
    topic = b"\x02a" + pack_varint(60_001) + b"\0\0\0\0" * 60_000 + b"\0"
    body = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, 0) + b"\x01"
    one = body + b"\x02" + topic + b"\x01\x00"
    assert walk_over(FETCH_12, one)[0] == len(one)
    with pytest.raises(BadBytes, match="more than 100000 items"):
        walk_over(FETCH_12, body + b"\x03" + topic + topic + b"\x01\x00")


@pytest.mark.parametrize("count", [0, 2**35 - 1])
def test_varints_are_read_as_they_are_packed(count: int) -> None:
    packed = pack_varint(count)
    assert read_varint(memoryview(packed), 0) == (count, len(packed))


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(BadBytes, match="more than 5 bytes"):
        read_varint(memoryview(b"\x80\x80\x80\x80\x80\x00"), 0)


def test_a_zero_spelt_with_two_bytes_is_a_zero() -> None:
    # A topic without id and name, in version 12: null is a length of 0.
    body = b"\x02" + b"\0" * 16 + b"\x80\x00" + b"\0" + b"\0\0\0"
    metadata_12 = request_class(3, 12)
    end, _ = walk_over(metadata_12, body)
    assert end == len(body) == entity_reader(metadata_12)(body, 0)[1]


def test_null_is_refused_for_an_array_that_cannot_be_null() -> None:
    with pytest.raises(BadBytes, match="topics has -1 items"):
        walk_over(CREATE_TOPICS_5, b"\0" + b"\0\0\0\0\0\0")
    with pytest.raises(BadBytes, match="topics has -2 items"):
        walk_over(METADATA_0, struct.pack(">i", -2))
    assert walk_over(METADATA_9, b"\0\0\0\0\0")[0] == 5


def test_a_length_below_null_is_refused() -> None:
    with pytest.raises(BadBytes, match="a length of -2"):
        walk_over(METADATA_0, struct.pack(">ih", 1, -2))


def test_a_nullable_struct_is_there_or_null_and_nothing_else() -> None:
    start, cursor, end = b"\x01\0\0\0\x05", b"\x02a\0\0\0\x03\0", b"\0"
    for body in (start + b"\xff" + end, start + b"\x01" + cursor + end):
        assert walk_over(DESCRIBE_TOPIC_PARTITIONS_0, body)[0] == len(body)
    with pytest.raises(BadBytes, match="128 instead of"):
        walk_over(DESCRIBE_TOPIC_PARTITIONS_0, start + b"\x80" + cursor + end)


def fetch_15(tags: bytes) -> bytes:
    return struct.pack(">iiibii", 0, 1, 1, 0, 0, 0) + b"\x01\x01\x01" + tags


def rewritten(entity_class: Any, raw: bytes) -> bytes:
    end, walk = walk_over(entity_class, raw)
    assert end == len(raw)
    return walk.without_unknown_tags(memoryview(raw), 0, end)


def test_known_tagged_fields_stay_as_they_are() -> None:
    raw = fetch_15(b"\x01\x00\x04\x04abc")
    assert rewritten(FETCH_15, raw) == raw
    assert walk_over(FETCH_15, raw)[1].rewrites == []


def test_unknown_tagged_fields_are_left_out_wherever_they_are() -> None:
    topic = b"\x02a\x01" + UNKNOWN_TAG
    raw = b"\x03" + topic + b"\x02b\x00" + b"\0\0\0" + b"\x02" + UNKNOWN_TAG + UNKNOWN_TAG
    assert rewritten(METADATA_9, raw) == b"\x03" + b"\x02a\x00\x02b\x00" + b"\0\0\0" + b"\x00"


def test_known_tagged_fields_between_unknown_ones_are_kept() -> None:
    cluster_id = b"\x00\x04\x04abc"
    raw = fetch_15(b"\x03" + UNKNOWN_TAG + cluster_id + UNKNOWN_TAG)
    assert rewritten(FETCH_15, raw) == fetch_15(b"\x01" + cluster_id)


def test_unknown_tagged_fields_inside_a_known_one_are_left_out_and_its_size_is_put_right() -> None:
    replica_state = struct.pack(">iq", 3, 4)
    raw = fetch_15(b"\x01\x01\x11" + replica_state + b"\x01" + UNKNOWN_TAG)
    expected = fetch_15(b"\x01\x01\x0d" + replica_state + b"\x00")
    assert rewritten(FETCH_15, raw) == expected
    entity, _ = entity_reader(FETCH_15)(expected, 0)
    assert (entity.replica_state.replica_id, entity.replica_state.replica_epoch) == (3, 4)


@pytest.mark.parametrize("size", [3, 5])
def test_a_tagged_field_must_have_the_size_it_announces(size: int) -> None:
    with pytest.raises(BadBytes, match=f"tagged field 0 does not take the {size} bytes"):
        walk_over(FETCH_15, fetch_15(b"\x01\x00" + bytes([size]) + b"\x04abc" + b"..."))


def test_a_tagged_field_longer_than_the_request_is_refused() -> None:
    with pytest.raises(BadBytes, match="tagged field 9 has 200 bytes, 4 are left"):
        walk_over(METADATA_9, b"\0\0\0\0\x01\x09\xc8\x01....")


def test_tagged_fields_count_as_items() -> None:
    many = pack_varint(ARRAY_ITEMS_MAX + 1) + b"\x09\x00" * (ARRAY_ITEMS_MAX + 1)
    with pytest.raises(BadBytes, match="more than 100000 items"):
        skip_tagged_fields(memoryview(many), 0)


@pytest.mark.long
@settings(max_examples=examples(400, long=10_000), deadline=None)
@given(st.data())
def test_a_walk_over_any_valid_message_ends_where_it_ends(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(SERVED))
    message = data.draw(st.sampled_from([request_class, response_class]))(key, version)
    raw = encode(data.draw(entities(message)))
    end, walk = walk_over(message, raw + b"what follows")
    assert end == len(raw)
    assert walk.rewrites == []


@pytest.mark.long
@settings(max_examples=examples(1_000, long=30_000), deadline=None)
@given(st.data())
def test_what_the_walk_lets_pass_ends_for_kio_where_it_ended_for_the_walk(
    data: st.DataObject,
) -> None:
    key, version = data.draw(st.sampled_from(SERVED))
    message = request_class(key, version)
    raw = data.draw(spoiled(encode(data.draw(entities(message)))))
    try:
        end, walk = walk_over(message, raw)
    except (BadBytes, IndexError, struct.error):
        return
    if end > len(raw):
        return
    passed = walk.without_unknown_tags(memoryview(raw), 0, end)
    try:
        _, size = entity_reader(message)(passed, 0)
    except (SerialError, ValueError):
        return
    assert size == len(passed)
