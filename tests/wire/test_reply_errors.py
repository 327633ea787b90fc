from typing import Any
from uuid import UUID

import pytest

from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, encode_reply
from respool.wire.hot_replies import (
    FetchedPartition,
    FetchReplyTopic,
    ProducedPartition,
    encode_fetch_reply,
    encode_produce_reply,
)
from respool.wire.metadata_reply import MetadataPartition, MetadataTopic, encode_metadata_reply
from respool.wire.reply_errors import FrameWithErrors, error_name, with_errors

TOPIC_ID = UUID(int=7)


def codes_told(frame: bytes | memoryview) -> tuple[int, ...]:
    return frame.error_codes if isinstance(frame, FrameWithErrors) else ()


def reply_to(api: Api, **fields: Any) -> bytes:
    spec = API_TABLE[api]
    request = Request(
        api=spec,
        version=spec.version_max,
        correlation_id=1,
        client_id=None,
        body=None,
        size=10,
    )
    return encode_reply(request, {"throttle_time": 0, **fields})


def fetched(error_code: int, records: bytes) -> FetchedPartition:
    return FetchedPartition(0, error_code, 5, 5, 0, records)


def test_a_reply_without_errors_is_plain_bytes() -> None:
    frame = b"frame"
    assert with_errors(frame, [0, 0]) is frame
    assert type(reply_to(Api.HEARTBEAT, error_code=0)) is bytes
    assert type(encode_produce_reply(1, 9, [("t", [ProducedPartition(0, 0, 5)])])) is bytes
    buffers = encode_fetch_reply(1, 13, [FetchReplyTopic("t", TOPIC_ID, [fetched(0, b"r")])])
    assert {type(one) for one in buffers} == {bytes}


def test_the_bytes_are_the_same_with_errors() -> None:
    marked = with_errors(b"frame", [0, 6, 6])
    assert marked == b"frame"
    assert codes_told(marked) == (6, 6)


def test_a_code_of_the_whole_reply_is_told() -> None:
    assert codes_told(reply_to(Api.HEARTBEAT, error_code=27)) == (27,)


def test_codes_of_every_partition_are_told() -> None:
    partitions = [{"partition_index": n, "error_code": code} for n, code in enumerate((0, 3, 28))]
    frame = reply_to(
        Api.OFFSET_COMMIT,
        topics=[
            {"topic_id": TOPIC_ID, "partitions": partitions},
            {"topic_id": None, "partitions": []},
        ],
    )
    assert codes_told(frame) == (3, 28)


def test_a_produce_reply_tells_its_partitions_codes() -> None:
    bad = ProducedPartition(1, 87, -1, error_message="no key")
    topics = [("t", [ProducedPartition(0, 0, 5), bad]), ("u", [ProducedPartition(0, 10, -1)])]
    assert codes_told(encode_produce_reply(1, 9, topics)) == (87, 10)


@pytest.mark.parametrize("records", [b"", b"records"])
def test_a_fetch_reply_tells_them_with_its_last_buffer(records: bytes) -> None:
    topics = [FetchReplyTopic("t", TOPIC_ID, [fetched(1, b""), fetched(0, records)])]
    buffers = encode_fetch_reply(1, 13, topics)
    assert codes_told(buffers[-1]) == (1,)
    assert {type(one) for one in buffers[:-1]} <= {bytes}
    assert codes_told(encode_fetch_reply(1, 13, [], error_code=70)[-1]) == (70,)


def test_a_metadata_reply_tells_those_of_topics_and_partitions() -> None:
    partition = MetadataPartition(5, 0, -1, 0, [1], [1], [])
    topics = [
        MetadataTopic(3, "gone", None, False, [], 0),
        MetadataTopic(0, "there", TOPIC_ID, False, iter([partition]), 0),
    ]
    frame = encode_metadata_reply(
        1,
        12,
        brokers=[],
        cluster_id=None,
        controller_id=1,
        topics=topics,
        cluster_authorized_operations=0,
    )
    assert codes_told(frame) == (3, 5)


def test_errors_have_kafkas_names() -> None:
    assert error_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert error_name(87) == "INVALID_RECORD"
    assert error_name(31_000) == "31000"
