"""Replies made of nothing but an error, for every API and version there is."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.wire.api_table import API_TABLE, Api
from respool.wire.client_codec import decode_reply
from respool.wire.codec import Request
from respool.wire.injected_error import NoPlaceForError, encode_error_reply
from respool.wire.reply_errors import FrameWithErrors, error_code_named
from respool.wire.schema_extensions import request_class
from respool.wire.shape import shape
from wire.entities import SERVED, entities, examples

NOT_LEADER = 6
TOPIC_ID, OTHER_ID = UUID(int=7), UUID(int=8)


def request_of(api: Api, version: int, body: Any) -> Request:
    return Request(
        api=API_TABLE[api], version=version, correlation_id=7, client_id="x", body=body, size=10
    )


def answer(api: Api, fields: dict[str, Any], version: int | None = None) -> Any:
    version = API_TABLE[api].version_max if version is None else version
    body = shape(request_class(api, version), fields)
    frame = encode_error_reply(request_of(api, version, body), NOT_LEADER)
    assert isinstance(frame, FrameWithErrors)
    assert set(frame.error_codes) == {NOT_LEADER}
    return decode_reply(api, version, frame[4:])


@given(data=st.data())
@settings(max_examples=examples(100, long=3_000))
def test_whatever_is_asked_in_whatever_version_the_reply_is_one_a_client_can_read(
    data: st.DataObject,
) -> None:
    key, version = data.draw(st.sampled_from(SERVED))
    body = data.draw(entities(request_class(key, version)))
    request = request_of(Api(key), version, body)
    try:
        frame = encode_error_reply(request, NOT_LEADER)
    except NoPlaceForError:
        return
    assert decode_reply(key, version, frame[4:]) is not None
    assert isinstance(frame, FrameWithErrors)


def test_each_partition_of_a_produce_is_told_the_error() -> None:
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [
            {
                "name": "rides",
                "topic_id": TOPIC_ID,
                "partition_data": [{"index": one, "records": b""} for one in (3, 5)],
            },
            {
                "name": "fares",
                "topic_id": OTHER_ID,
                "partition_data": [{"index": 0, "records": b""}],
            },
        ],
    }
    names = {TOPIC_ID: "rides", OTHER_ID: "fares"}
    for version in range(3, 14):
        reply = answer(Api.PRODUCE, body, version)
        told = [
            (
                names[topic.topic_id] if version >= 13 else topic.name,
                one.index,
                int(one.error_code),
                one.base_offset,
            )
            for topic in reply.responses
            for one in topic.partition_responses
        ]
        assert told == [("rides", 3, 6, -1), ("rides", 5, 6, -1), ("fares", 0, 6, -1)]


def test_each_partition_of_a_commit_and_of_a_lookup_is_told_the_error() -> None:
    committed = answer(
        Api.OFFSET_COMMIT,
        {
            "group_id": "billing",
            "generation_id_or_member_epoch": 1,
            "member_id": "me",
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {"partition_index": 4, "committed_offset": 9, "committed_metadata": None}
                    ],
                }
            ],
        },
    )
    [topic] = committed.topics
    assert (topic.topic_id, [one.partition_index for one in topic.partitions]) == (TOPIC_ID, [4])


def test_what_has_one_error_for_all_tells_it_there() -> None:
    joined = answer(Api.HEARTBEAT, {"group_id": "billing", "generation_id": 1, "member_id": "me"})
    assert int(joined.error_code) == NOT_LEADER


def test_each_coordinator_looked_for_is_told_by_its_key() -> None:
    found = answer(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["billing", "fares"]})
    assert [one.key for one in found.coordinators] == ["billing", "fares"]


def test_a_reply_without_a_place_for_an_error_is_refused() -> None:
    body = shape(request_class(Api.METADATA, 1), {"topics": []})
    with pytest.raises(NoPlaceForError, match="Metadata v1 has no place"):
        encode_error_reply(request_of(Api.METADATA, 1, body), NOT_LEADER)


def test_errors_are_found_by_kafkas_names() -> None:
    assert error_code_named("NOT_LEADER_OR_FOLLOWER") == NOT_LEADER
    assert error_code_named("not_leader_or_follower") == NOT_LEADER
    assert error_code_named("NO_SUCH_THING") is None
