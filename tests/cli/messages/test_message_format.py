import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.messages.message_format import (
    ReadMessage,
    compile_format,
    for_terminal,
    from_json_line,
    to_json_line,
)
from respool.model.json_bytes import BadInput
from respool.model.operator_errors import UsageError

MESSAGE = ReadMessage(
    topic="rides",
    partition=3,
    offset=42,
    timestamp_ms=1_763_107_200_123,
    key=b"car-7",
    value=b"\xffstart\n",
    headers=(("lang", b"en"), ("trace", None), ("lang", b"de")),
)

maybe_bytes = st.none() | st.binary(max_size=20)
read_messages = st.builds(
    ReadMessage,
    topic=st.just("rides"),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{value}", b"\xffstart\n"),
        ("{partition}/{offset} {key}", b"3/42 car-7"),
        ("{topic}\\t{timestamp_ms}", b"rides\t1763107200123"),
        ("{headers}", b"lang=en,trace=,lang=de"),
        ("{{{offset}}}", b"{42}"),
        ("plain \\\\n", b"plain \\n"),
        ("", b""),
        ("ü{key}", "ücar-7".encode()),
    ],
)
def test_a_format_puts_fields_into_text_and_leaves_bytes_alone(text: str, written: bytes) -> None:
    assert compile_format(text)(MESSAGE) == written


@pytest.mark.parametrize("text", ["{vlaue}", "{}", "{value!r}"])
def test_an_unknown_field_is_refused_and_the_known_ones_are_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_format(text)
    assert "timestamp_ms" in caught.value.hint


def test_a_brace_that_is_not_closed_is_told_as_that() -> None:
    """It was told as an unknown field, with that field among those that are known."""
    with pytest.raises(UsageError, match=r"'\{value' has no closing brace"):
        compile_format("{key} {value")


@given(st.text(max_size=30))
def test_a_format_works_or_is_refused_before_any_message_is_read(text: str) -> None:
    try:
        write = compile_format(text)
    except UsageError:
        return
    assert isinstance(write(MESSAGE), bytes)


@given(read_messages)
def test_a_message_written_as_json_is_read_back_byte_for_byte(message: ReadMessage) -> None:
    line = to_json_line(message)
    assert "\n" not in line
    again = from_json_line(line.encode())
    assert (again.key, again.value, again.headers) == (message.key, message.value, message.headers)
    assert again.partition == message.partition
    assert again.timestamp_ms == (None if message.timestamp_ms == -1 else message.timestamp_ms)


def test_bytes_that_are_no_text_are_base64_in_json() -> None:
    document = json.loads(to_json_line(MESSAGE))
    assert document["key"] == "car-7"
    assert document["value"] == {"base64": "/3N0YXJ0Cg=="}


def test_headers_may_be_given_as_an_object() -> None:
    message = from_json_line(b'{"value": "v", "headers": {"a": "1", "b": null}}')
    assert message.headers == (("a", b"1"), ("b", None))
    assert message.key is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vlaue": "x"}', "unknown field 'vlaue'"),
        (b'{"value": {"ride": 1}}', "written as a string"),
        (b'{"value": 5}', "value must be a string"),
        (b'{"key": {"base64": "***"}}', "key is not base64"),
        (b'{"value": "\\ud800"}', "half of a surrogate pair"),
        (b'{"headers": "a=b"}', "headers must be"),
        (b'{"headers": [["a"]]}', "headers must be"),
        (b'{"headers": [[1, "a"]]}', "headers must be"),
        (b'{"partition": -1}', "partition must be a whole number"),
        (b'{"partition": true}', "partition must be a whole number"),
        (b'{"timestamp": "now"}', "timestamp must be a whole number"),
        (b'{"timestamp": -2}', "timestamp must be a whole number"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        from_json_line(line)


def test_a_message_cannot_steer_the_terminal() -> None:
    shown = for_terminal(b"\x1b[2Jgone\x07 \xff \xc2\x9b \xe2\x80\xae ok\r\n")
    assert shown == "\\x1b[2Jgone\\x07 \\xff \\x9b \\u202e ok\\r\\n"
