import dataclasses
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from broker.wire_client import encode_request
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import (
    TEMPLATE_BYTES_MAX,
    ReplyTemplates,
    Request,
    api_versions_fallback,
    decode_request,
    encode_reply,
)
from respool.wire.protocol_errors import ProtocolViolation, RequestMalformed, UnsupportedApi
from respool.wire.schema import response_class
from respool.wire.schema_extensions import request_class
from wire.entities import (
    SERVED,
    encode,
    entities,
    examples,
    header,
    request_frame,
    small,
    spoiled,
)


def decode(frame: bytes) -> Request:
    return decode_request(memoryview(frame).toreadonly())


def small_frame(key: int, version: int, **kwargs: Any) -> bytes:
    return request_frame(small(request_class(key, version)), **kwargs)


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_served_version_is_decoded(key: int, version: int) -> None:
    frame = small_frame(key, version, client_id="billing", correlation_id=-3)
    request = decode(frame)
    assert request.api is API_TABLE[key]
    assert request.version == version
    assert request.correlation_id == -3
    assert request.client_id == "billing"
    assert request.body == small(request_class(key, version))
    assert request.size == len(frame)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", [None, "", "käse"])
def test_the_client_id_may_be_null_empty_or_any_text(version: int, client_id: str | None) -> None:
    assert decode(small_frame(0, version, client_id=client_id)).client_id == client_id


def test_unknown_tagged_fields_in_the_header_are_skipped() -> None:
    head = struct.pack(">hhih", 3, 9, 7, 1) + b"x"
    body = small(request_class(3, 9))
    assert decode(head + b"\x02\x00\x03abc\x85\x01\x00" + encode(body)).body == body


def test_unknown_tagged_fields_in_the_body_are_skipped() -> None:
    body = small(request_class(3, 9))
    with_tag = encode(body)[:-1] + b"\x01\x07\x03abc"
    assert decode(header(3, 9) + with_tag).body == body


def test_bytes_after_the_body_are_ignored_as_kafka_ignores_them() -> None:
    for key, version in SERVED:
        frame = small_frame(key, version)
        assert decode(frame + b"\1\2\3").body == decode(frame).body


def test_a_decoded_request_shares_no_memory_with_its_frame() -> None:
    frame = bytearray(small_frame(0, 9))
    request = decode_request(memoryview(frame).toreadonly())
    frame[:] = b"\xff" * len(frame)
    assert request.body == small(request_class(0, 9))


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (0, 14), (1, 3), (3, -1), (18, 6), (4, 0), (-1, 0), (999, 1)]
)
def test_what_is_not_served_is_refused_with_all_a_reply_would_need(key: int, version: int) -> None:
    with pytest.raises(UnsupportedApi, match=f"api key {key} in version {version}") as caught:
        decode(struct.pack(">hhi", key, version, 42))
    assert (caught.value.key, caught.value.version, caught.value.correlation_id) == (
        key,
        version,
        42,
    )


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_request_cut_anywhere_is_malformed(key: int, version: int) -> None:
    frame = small_frame(key, version)
    for size in range(len(frame)):
        with pytest.raises(RequestMalformed):
            decode(frame[:size])


@pytest.mark.parametrize(
    ("key", "version", "spoil"),
    [
        pytest.param(3, 1, lambda frame: frame.replace(b"tester", b"test\xff\xff"), id="client id"),
        pytest.param(3, 1, lambda frame: frame.replace(b"ab", b"\xff\xff"), id="legacy string"),
        pytest.param(3, 9, lambda frame: frame.replace(b"ab", b"\xc3("), id="compact string"),
    ],
)
def test_text_that_is_not_utf8_is_malformed(key: int, version: int, spoil: Any) -> None:
    frame = small_frame(key, version)
    assert spoil(frame) != frame
    with pytest.raises(RequestMalformed, match=r"(?i)utf-8"):
        decode(spoil(frame))


def test_the_error_says_which_request_it_was_and_what_is_wrong() -> None:
    with pytest.raises(
        RequestMalformed, match="not a MetadataRequest: topics has 9 items in 1 byte"
    ):
        decode(header(3, 9) + b"\x0a\0")


def test_monstrous_counts_take_no_memory() -> None:
    script = Path(__file__).with_name("decode_under_memory_limit.py")
    tests = str(script.parent.parent)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5_000


@pytest.mark.long
@pytest.mark.parametrize("key", API_TABLE)
@settings(max_examples=examples(20, long=3_000), deadline=None)
@given(data=st.data())
def test_any_valid_request_is_decoded_to_what_was_encoded(key: int, data: st.DataObject) -> None:
    spec = API_TABLE[key]
    version = data.draw(st.integers(spec.version_min, spec.version_max))
    body = data.draw(entities(request_class(key, version)))
    assert decode(request_frame(body)).body == body


@pytest.mark.long
@pytest.mark.parametrize("key", API_TABLE)
@settings(max_examples=examples(30, long=5_000), deadline=None)
@given(data=st.data())
def test_a_spoiled_request_is_decoded_or_is_a_protocol_violation(
    key: int, data: st.DataObject
) -> None:
    spec = API_TABLE[key]
    version = data.draw(st.integers(spec.version_min, spec.version_max))
    frame = request_frame(data.draw(entities(request_class(key, version))))
    try:
        request = decode(data.draw(spoiled(frame)))
    except ProtocolViolation:
        return
    assert isinstance(request.body, request_class(request.api.key, request.version))


@pytest.mark.long
@settings(max_examples=examples(300, long=50_000), deadline=None)
@given(where=st.sampled_from(SERVED), rest=st.binary(max_size=300))
def test_random_bytes_are_decoded_or_are_a_protocol_violation(
    where: tuple[int, int], rest: bytes
) -> None:
    for frame in (rest, struct.pack(">hh", *where) + rest, header(*where) + rest):
        try:
            request = decode(frame)
        except ProtocolViolation:
            continue
        assert isinstance(request.body, request_class(request.api.key, request.version))


# --- replies ----------------------------------------------------------------------------------------------------------


def request_for(key: int, version: int, *, correlation_id: int = 7) -> Request:
    return Request(
        api=API_TABLE[key],
        version=version,
        correlation_id=correlation_id,
        client_id=None,
        body=None,
        size=0,
    )


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_reply_has_its_size_its_correlation_id_and_the_body_kio_would_write(
    key: int, version: int
) -> None:
    reply_class = response_class(key, version)
    entity = small(reply_class)
    reply = encode_reply(request_for(key, version, correlation_id=-9), dataclasses.asdict(entity))
    size, correlation_id = struct.unpack_from(">ii", reply)
    assert size == len(reply) - 4
    assert correlation_id == -9
    header_entity, header_bytes = entity_reader(reply_class.__header_schema__)(reply, 4)
    assert header_entity.correlation_id == -9
    assert reply[4 + header_bytes :] == encode(entity)


@pytest.mark.parametrize("version", range(6))
def test_the_header_of_an_api_versions_reply_has_no_tagged_fields_in_any_version(
    version: int,
) -> None:
    fields = {"error_code": 0, "api_keys": [], "throttle_time": 0}
    reply = encode_reply(request_for(Api.API_VERSIONS, version), fields)
    empty_array = b"\x01" if version >= 3 else b"\0\0\0\0"
    assert reply[8:].startswith(b"\0\0" + empty_array)


def test_a_reply_to_another_flexible_api_has_them() -> None:
    fields = {"error_code": 0, "throttle_time": 0, "producer_id": 5, "producer_epoch": 6}
    flexible = encode_reply(request_for(Api.INIT_PRODUCER_ID, 2), fields)
    before = encode_reply(request_for(Api.INIT_PRODUCER_ID, 1), fields)
    assert flexible[8:] == b"\0" + before[8:] + b"\0"


def test_an_api_versions_request_too_new_gets_an_answer_any_client_can_read() -> None:
    with pytest.raises(UnsupportedApi) as caught:
        decode(struct.pack(">hhih", Api.API_VERSIONS, 99, 1234, -1) + b"\0whatever")
    assert caught.value.key == Api.API_VERSIONS
    reply = api_versions_fallback(caught.value.correlation_id)
    assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 1234)
    body, size = entity_reader(response_class(Api.API_VERSIONS, 0))(reply, 8)
    assert 8 + size == len(reply)
    assert body.error_code == 35
    assert [(row.api_key, row.min_version, row.max_version) for row in body.api_keys] == [
        (18, 0, 5)
    ]


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
