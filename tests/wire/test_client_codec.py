from typing import Any

import pytest

from respool.wire.api_table import Api
from respool.wire.client_codec import correlation_id_of, decode_reply, encode_request
from respool.wire.codec import decode_request, encode_reply
from respool.wire.protocol_errors import RequestMalformed

LEAVE = {
    "group_id": "billing",
    "members": [{"member_id": "m-1", "group_instance_id": None, "reason": "moved"}],
}


def encoded(version: int, **fields: Any) -> bytes:
    return encode_request(
        Api.LEAVE_GROUP, version, fields or LEAVE, correlation_id=7, client_id="tester"
    )


def test_the_broker_reads_what_the_client_writes() -> None:
    frame = encoded(5)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    request = decode_request(memoryview(frame[4:]))
    assert (request.api.key, request.version, request.correlation_id) == (Api.LEAVE_GROUP, 5, 7)
    assert request.client_id == "tester"
    assert request.body.group_id == "billing"
    assert [member.reason for member in request.body.members] == ["moved"]


@pytest.mark.parametrize("version", [3, 5], ids=["plain", "flexible"])
def test_the_client_reads_what_the_broker_answers(version: int) -> None:
    members = [{"member_id": "m-1", "group_instance_id": None}]
    frame = encoded(version, group_id="billing", members=members)
    request = decode_request(memoryview(frame[4:]))
    answers = [{"member_id": "m-1", "group_instance_id": None, "error_code": 25}]
    fields = {"throttle_time": 0, "error_code": 0, "members": answers}
    reply = encode_reply(request, fields)[4:]
    assert correlation_id_of(reply) == 7
    body = decode_reply(Api.LEAVE_GROUP, version, reply)
    assert [int(member.error_code) for member in body.members] == [25]


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError, match="members"):
        encoded(5, group_id="billing", membres=[])


@pytest.mark.parametrize("reply", [b"\0\0\0\x07", b"\0\0\0\x07\0\0\0", b"\0\0\0\x07\xff"])
def test_a_reply_that_ends_early_is_no_reply(reply: bytes) -> None:
    assert correlation_id_of(reply) == 7
    with pytest.raises(RequestMalformed):
        decode_reply(Api.LEAVE_GROUP, 5, reply)


def test_a_reply_must_say_what_it_answers() -> None:
    with pytest.raises(RequestMalformed, match="a reply of 2 bytes"):
        correlation_id_of(b"\0\0")
