"""Bytes are spelt out by hand from Kafka's schemas GroupMetadataKey and GroupMetadataValue."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.groups.group_records import (
    RecordKind,
    StoredGroup,
    StoredMember,
    kind_of,
    read_group_key,
    read_group_value,
    write_group_key,
    write_group_value,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.model.ids import NO_TIMESTAMP

MEMBER = StoredMember(
    member_id="a-1",
    instance_id="i",
    client_id="a",
    client_host="/h",
    session_timeout_ms=10,
    rebalance_timeout_ms=20,
    subscription=b"\x01\x02",
    assignment=b"\x03",
)
GROUP = StoredGroup(
    protocol_type="consumer",
    generation=5,
    protocol_name="range",
    leader="a-1",
    since_ms=9,
    members=(MEMBER,),
)
TYPE = "0008 636f6e73756d6572"
PROTOCOL = "0005 72616e6765"
NAMES = f"{TYPE} 00000005 {PROTOCOL} 0003 612d31"
SUBSCRIPTION = "00000002 0102 00000001 03"
VERSION_3 = (
    f"0003 {NAMES} 0000000000000009 00000001"
    f"0003 612d31 0001 69 0001 61 0002 2f68 00000014 0000000a {SUBSCRIPTION}"
)
# Flexible: lengths are one more and a byte long, and two kinds of structs end in tagged fields, here one unknown.
VERSION_4 = (
    "0004 09 636f6e73756d6572 00000005 06 72616e6765 04 612d31 0000000000000009 02"
    "04 612d31 02 69 02 61 03 2f68 00000014 0000000a 03 0102 02 03 00  01 07 02 aabb"
)


def test_a_key_holds_the_group() -> None:
    key = write_group_key("gr")
    assert key == bytes.fromhex("0002 0002 6772")
    assert kind_of(key) == RecordKind.CLASSIC_GROUP
    assert read_group_key(key) == "gr"


def test_a_group_is_written_in_version_3_as_kafka_4_does() -> None:
    assert write_group_value(GROUP) == bytes.fromhex(VERSION_3)


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = replace(GROUP, protocol_name=None, leader=None, members=())
    written = write_group_value(empty)
    assert written == bytes.fromhex(f"0003 {TYPE} 00000005 ffff ffff 0000000000000009 00000000")
    assert read_group_value(written) == empty


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"0000 {NAMES} 00000001 0003 612d31 0001 61 0002 2f68 0000000a {SUBSCRIPTION}",
            replace(
                GROUP,
                since_ms=NO_TIMESTAMP,
                members=(replace(MEMBER, instance_id=None, rebalance_timeout_ms=10),),
            ),
        ),
        (
            f"0001 {NAMES} 00000001 0003 612d31 0001 61 0002 2f68 00000014 0000000a {SUBSCRIPTION}",
            replace(GROUP, since_ms=NO_TIMESTAMP, members=(replace(MEMBER, instance_id=None),)),
        ),
        (
            VERSION_3.replace("0003", "0002", 1).replace("0001 69", ""),
            replace(GROUP, members=(replace(MEMBER, instance_id=None),)),
        ),
        (VERSION_3, GROUP),
        (
            VERSION_4,
            GROUP,
        ),
    ],
)
def test_all_versions_are_read(text: str, expected: StoredGroup) -> None:
    assert read_group_value(bytes.fromhex(text)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("00", "truncated"),
        ("0005", "version 5 is unknown"),
        (f"0003 {NAMES} 0000000000000009 7fffffff", "2147483647 items"),
        (f"{VERSION_3} 00", "1 bytes too many"),
        (VERSION_3[:-2], "truncated"),
        (
            VERSION_3.replace(PROTOCOL, "ffff"),
            "no protocol",
        ),
    ],
)
def test_a_damaged_record_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged, match=why):
        read_group_value(bytes.fromhex(text))


@pytest.mark.parametrize("twin", [replace(MEMBER, instance_id="j"), replace(MEMBER, member_id="b")])
def test_two_members_of_one_name_are_refused(twin: StoredMember) -> None:
    with pytest.raises(CoordinatorRecordDamaged, match="same name"):
        read_group_value(write_group_value(replace(GROUP, members=(MEMBER, twin))))


def test_a_key_without_a_kind_is_refused() -> None:
    with pytest.raises(CoordinatorRecordDamaged, match="key"):
        kind_of(b"\0")


texts = st.text(st.characters(codec="utf-8"), max_size=8)
members = st.builds(
    StoredMember,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    session_timeout_ms=st.integers(0, 2**31 - 1),
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    subscription=st.binary(max_size=8),
    assignment=st.binary(max_size=8),
)


@given(
    st.lists(
        members,
        max_size=3,
        unique_by=(lambda one: one.member_id, lambda one: one.instance_id),
    ),
    texts,
    st.integers(0, 2**31 - 1),
)
def test_what_is_written_reads_the_same(
    some: list[StoredMember], protocol_type: str, generation: int
) -> None:
    group = replace(GROUP, protocol_type=protocol_type, generation=generation, members=tuple(some))
    assert read_group_value(write_group_value(group)) == group


@given(st.integers(0, 4), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(version: int, data: bytes) -> None:
    with suppress(CoordinatorRecordDamaged):
        read_group_value(version.to_bytes(2, "big") + data)
