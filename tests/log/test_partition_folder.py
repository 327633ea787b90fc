"""A partition's folder: its name, whose it is, its name out of use."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.partition_folder import (
    decode_metadata,
    encode_metadata,
    folder_name,
    name_aside,
    parse_folder_name,
    uuid_from_text,
    uuid_to_text,
)
from respool.model.ids import TopicId, TopicPartition

TOPIC_ID = TopicId(UUID(int=1))


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda n: n not in {".", ".."}),
    st.integers(0, 2**31 - 1),
)
def test_every_partition_is_found_by_its_folders_name(topic: str, number: int) -> None:
    name = TopicPartition(topic, number)
    assert parse_folder_name(folder_name(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "recovery-point-offset-checkpoint",
        ".kafka_cleanshutdown",
        "orders",
        "orders-",
        "-0",
        "orders-00",
        "orders-2147483648",
        "orders-99999999999",
        "orders--",
        "..-0",
        "or ders-0",
        "orders-0.tmp",
        "orders-٣",
        "orders-0.00000000000000000000000000000001-delete",
        "orders-0.00000000000000000000000000000001-stray",
        "a" * 250 + "-0",
    ],
)
def test_any_other_name_is_no_partitions_folder(name: str) -> None:
    assert parse_folder_name(name) is None


def test_a_folder_put_aside_has_kafkas_name_for_it() -> None:
    aside = name_aside("orders-0", tag=UUID(int=0xABC), suffix="-stray")
    assert aside == "orders-0.00000000000000000000000000000abc-stray"


def test_a_long_name_put_aside_still_fits() -> None:
    aside = name_aside("a" * 249 + "-12345", tag=UUID(int=1), suffix="-delete")
    assert len(aside) == 255
    assert aside.endswith(".00000000000000000000000000000001-delete")
    assert parse_folder_name(aside) is None


def test_the_metadata_is_kafkas() -> None:
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert encode_metadata(TOPIC_ID) == text
    assert decode_metadata(text) == TOPIC_ID
    assert decode_metadata(text + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version: 0\n",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: 0\ntopic_id: AAAA",
        b"version: 0\ntopic_id: ",
        b"version: 0\ntopic: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\nmore: 1",
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_damaged_metadata_is_noticed(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_metadata(text)


def test_the_text_is_kafkas() -> None:
    # The metadata topic's id, a constant in Kafka.
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(UUID(int=2**128 - 1)) == "_____________________w"


@given(st.uuids())
def test_what_was_written_is_read(uuid: UUID) -> None:
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAQA",
        "AAAAAAAAAAAAAAAAAAAAAQ==",
        "AAAAAAAAAAAAAAAAAAAAAR",
        "AAAAAAAAAA+AAAAAAAAAAQ",
        "AAAAAAAAAA AAAAAAAAAAQ",
        "AAAAAAAAAAäAAAAAAAAAAQ",
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (a UUID|how)"):
        uuid_from_text(text)
