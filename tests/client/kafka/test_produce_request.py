"""A request in pieces is the request that kio writes."""

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from respool.client.kafka.produce_request import (
    ProduceAnswer,
    answers_of,
    produce_body,
    uvarint,
)
from respool.client.kafka.versions import VERSIONS
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply
from respool.wire.hot_replies import ProducedPartition, encode_produce_reply
from respool.wire.schema_extensions import request_class
from respool.wire.shape import shape


@pytest.mark.parametrize(
    "version", range(VERSIONS[Api.PRODUCE].oldest, VERSIONS[Api.PRODUCE].newest + 1)
)
@given(
    batches=st.dictionaries(
        st.text("abc", min_size=1, max_size=200),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=300)), max_size=3),
        max_size=3,
    ),
    transactional_id=st.none() | st.text(max_size=5),
    acks=st.sampled_from([-1, 0, 1]),
)
def test_the_pieces_joined_are_what_kio_writes(
    version: int,
    batches: dict[str, list[tuple[int, bytes]]],
    transactional_id: str | None,
    acks: int,
) -> None:
    fields: dict[str, Any] = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [{"index": number, "records": data} for number, data in of_topic],
            }
            for topic, of_topic in batches.items()
        ],
    }
    written = BytesIO()
    body_class = request_class(Api.PRODUCE, version)
    entity_writer(body_class)(written, shape(body_class, fields))
    parts = produce_body(batches, acks=acks, timeout_ms=30_000, transactional_id=transactional_id)
    assert b"".join(parts) == written.getvalue()


def test_batches_are_not_copied() -> None:
    batch = bytearray(1_000)
    parts = produce_body({"t": [(0, batch)]}, acks=-1, timeout_ms=1, transactional_id=None)
    assert any(part is batch for part in parts)


def test_answers_carry_code_offset_and_the_broker_s_words() -> None:
    results = [
        ProducedPartition(3, 0, 42),
        ProducedPartition(4, 87, -1, error_message="no key", record_errors=[(7, "it has no key")]),
    ]
    frame = encode_produce_reply(5, 9, [("rides", results)])
    assert answers_of(decode_reply(Api.PRODUCE, 9, bytes(frame[4:]))) == [
        ProduceAnswer("rides", 3, 0, "", 42, None),
        ProduceAnswer("rides", 4, 87, "INVALID_RECORD: no key", -1, 7),
    ]


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")],
)
def test_numbers_take_seven_bits_a_byte(value: int, data: bytes) -> None:
    assert uvarint(value) == data
