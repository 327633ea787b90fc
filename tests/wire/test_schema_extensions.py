"""Replies that kio alone cannot read."""

from io import BytesIO
from typing import Any

import pytest
from kio.serial import entity_writer

from respool.wire.api_table import API_TABLE, Api
from respool.wire.protocol_errors import RequestMalformed
from respool.wire.schema import response_class
from respool.wire.schema_extensions import reply_class
from respool.wire.shape import shape
from respool.wire.walk import decoder_of


def described(started_ms: int) -> bytes:
    state = {
        "error_code": 0,
        "transactional_id": "bank",
        "transaction_state": "Empty",
        "transaction_timeout": 60_000,
        "transaction_start_time": started_ms,
        "producer_id": 7,
        "producer_epoch": 1,
        "topics": [{"topic": "rides", "partitions": [0, 2]}],
    }
    sent_as = response_class(Api.DESCRIBE_TRANSACTIONS, 0)
    buffer = BytesIO()
    reply = shape(sent_as, {"throttle_time": 0, "transaction_states": [state]})
    entity_writer(sent_as)(buffer, reply)
    return buffer.getvalue()


def decoded(data: bytes) -> Any:
    reply = decoder_of(reply_class(Api.DESCRIBE_TRANSACTIONS, 0)).decode(memoryview(data), 0)
    (state,) = reply.transaction_states
    return state


def test_a_transactional_id_that_began_nothing_has_no_start_time() -> None:
    with pytest.raises(RequestMalformed, match="negative timestamp"):
        decoder_of(response_class(Api.DESCRIBE_TRANSACTIONS, 0)).decode(
            memoryview(described(-1)), 0
        )
    state = decoded(described(-1))
    assert state.transaction_start_time is None
    assert (state.transactional_id, state.producer_id) == ("bank", 7)


def test_one_that_did_has_it() -> None:
    state = decoded(described(1_763_107_200_000))
    assert state.transaction_start_time.isoformat() == "2025-11-14T08:00:00+00:00"
    assert [(each.topic, each.partitions) for each in state.topics] == [("rides", (0, 2))]


def test_all_other_replies_are_read_as_kio_has_them() -> None:
    for api in API_TABLE.values():
        if api.key not in {
            Api.DESCRIBE_TOPIC_PARTITIONS,
            Api.DESCRIBE_TRANSACTIONS,
            Api.READ_SHARE_GROUP_STATE,
        }:
            assert reply_class(api.key, api.version_max) is response_class(api.key, api.version_max)
