"""A reply from a template is the reply that would have been encoded."""

from typing import Any

import pytest

from broker.wire_client import encode_request
from respool.wire.api_table import Api
from respool.wire.codec import Request, decode_request, encode_reply
from respool.wire.reply_templates import TEMPLATE_BYTES_MAX, ReplyTemplates


def heartbeat(correlation_id: int, version: int) -> Request:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    request = decode_request(encode_request(Api.HEARTBEAT, version, **fields))
    request.correlation_id = correlation_id
    return request


def done() -> dict[str, Any]:
    return {"throttle_time": 0, "error_code": 0}


def refuse() -> dict[str, Any]:
    raise AssertionError("these words were said before")


@pytest.mark.parametrize("version", range(5))
def test_the_same_words_are_encoded_once_and_said_to_everybody(version: int) -> None:
    templates = ReplyTemplates()
    first = templates.encode(heartbeat(7, version), "done", done)
    again = templates.encode(heartbeat(-9, version), "done", refuse)
    assert first == encode_reply(heartbeat(7, version), done())
    assert again == encode_reply(heartbeat(-9, version), done())


def test_other_words_and_other_versions_are_other_replies() -> None:
    templates = ReplyTemplates()
    for version in (0, 1, 4):
        for words in ("a", "b"):
            reply = templates.encode(heartbeat(1, version), words, done)
            assert reply == encode_reply(heartbeat(1, version), done())
    assert len(templates) == 6


def test_only_so_many_are_kept_and_none_that_is_large() -> None:
    templates = ReplyTemplates(templates_max=2)
    for number in range(5):
        templates.encode(heartbeat(1, 4), number, done)
    assert len(templates) == 2
    big = decode_request(
        encode_request(
            Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("k" * TEMPLATE_BYTES_MAX,)
        )
    )
    coordinator = {
        "key": "k" * TEMPLATE_BYTES_MAX,
        "node_id": 1,
        "host": "h",
        "port": 1,
        "error_code": 0,
        "error_message": None,
    }
    templates.encode(big, "big", lambda: {"throttle_time": 0, "coordinators": [coordinator]})
    assert len(templates) == 2
