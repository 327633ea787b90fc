"""A reader's condition in a Fetch request: read as it was sent, and skipped by brokers that do not know it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.wire.api_table import Api
from respool.wire.client_codec import encode_request
from respool.wire.codec import decode_request
from respool.wire.fetch_condition import CONDITION_FETCH_VERSION
from respool.wire.schema import load_request_class

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


def fetch(version: int, **fields: Any) -> bytes:
    return encode_request(
        Api.FETCH,
        version,
        {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "topics": [],
            "forgotten_topics_data": [],
            "rack_id": "here",
            **fields,
        },
        correlation_id=1,
        client_id="x",
    )


@given(condition=TEXT, host=TEXT)
def test_a_condition_is_read_as_it_was_sent(condition: str, host: str) -> None:
    sent = fetch(CONDITION_FETCH_VERSION, condition=condition, reader_host=host)
    body = decode_request(memoryview(sent)[4:]).body
    assert (body.condition, body.reader_host, body.rack_id) == (condition, host, "here")


def test_without_a_condition_the_request_is_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fetch(CONDITION_FETCH_VERSION, condition="")
    assert decode_request(memoryview(ours)[4:]).body.condition == ""
    monkeypatch.setattr("respool.wire.client_codec.request_class", load_request_class)
    assert fetch(CONDITION_FETCH_VERSION) == ours


def test_who_does_not_know_the_field_skips_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = fetch(CONDITION_FETCH_VERSION, condition="tag = 'paid'", session_id=7)
    monkeypatch.setattr("respool.wire.codec.request_class", load_request_class)
    monkeypatch.setattr("respool.wire.codec._ROUTES", {})
    body = decode_request(memoryview(sent)[4:]).body
    assert (body.session_id, body.rack_id) == (7, "here")
    assert not hasattr(body, "condition")
