"""Text formats of messages: format strings, JSON lines, and escapes for bytes that are not text. Pure.

In JSON, a key, value or header value is a string if its bytes are UTF-8, null if it is null, and otherwise
`{"base64": "…"}`. Parsing a line restores the same bytes, so `consume --json | produce --json-lines` copies a topic.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from respool.cli import output
from respool.model.json_bytes import BadInput, bytes_from_json, bytes_to_json
from respool.model.operator_errors import UsageError
from respool.model.times import format_ms

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage:
    """A message read from a topic."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970; -1 if the message has none.
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be sent. None: the partitioner or the clock decides."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


# --- format strings ---------------------------------------------------------------------------------------------

Part = Callable[[ReadMessage], bytes]

FIELDS: Mapping[str, Part] = {
    "topic": lambda m: m.topic.encode(),
    "partition": lambda m: b"%d" % m.partition,
    "offset": lambda m: b"%d" % m.offset,
    "timestamp": lambda m: format_ms(m.timestamp_ms).encode(),
    "timestamp_ms": lambda m: b"%d" % m.timestamp_ms,
    "key": lambda m: m.key or b"",
    "value": lambda m: m.value or b"",
    "headers": lambda m: b",".join(
        name.encode() + b"=" + (value or b"") for name, value in m.headers
    ),
}
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


def compile_format(text: str) -> Part:
    """Compile `'{partition} {key}\\t{value}'` to a function that formats a message; `{{` and `}}` are literal braces.

    Keys and values are written as raw bytes: the format adds text around them and does not decode them.

    Raises:
        UsageError: a field is unknown or a brace is not closed.
    """
    parts: list[Part] = []
    literal = ""
    at = 0
    while at < len(text):
        two = text[at : at + 2]
        if two in {"{{", "}}"}:
            literal, at = literal + two[0], at + 2
        elif two in _ESCAPES:
            literal, at = literal + _ESCAPES[two], at + 2
        elif text[at] == "{":
            end = text.find("}", at)
            if end < 0:
                raise UsageError(
                    f"--format: {text[at:]!r} has no closing brace", hint="{{ is a brace itself"
                )
            name = text[at + 1 : end]
            if name not in FIELDS:
                raise UsageError(
                    f"--format: there is no field {{{name}}}", hint=f"fields: {', '.join(FIELDS)}"
                )
            parts += [_constant(literal), FIELDS[name]]
            literal, at = "", end + 1
        else:
            literal, at = literal + text[at], at + 1
    parts.append(_constant(literal))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(text: str) -> Part:
    data = text.encode()
    return lambda _: data


def for_terminal(data: bytes) -> str:
    """Printable text: invalid UTF-8 and control characters become escapes."""
    return output.printable(data.decode("utf-8", "backslashreplace"))


# --- JSON lines -------------------------------------------------------------------------------------------------


def to_json_line(message: ReadMessage) -> str:
    return output.json_line(
        {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp_ms,
            "key": bytes_to_json(message.key),
            "value": bytes_to_json(message.value),
            "headers": [[name, bytes_to_json(value)] for name, value in message.headers],
        }
    )


_READ = {"key", "value", "headers", "timestamp", "partition"}
# `consume --json` writes these fields; they say where a message was read, not where to send it.
_IGNORED = {"topic", "offset"}


def from_json_line(line: bytes) -> NewMessage:
    """
    Raises:
        BadInput: the line is not a JSON object, or a field is unknown or has a wrong type.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadInput('not a JSON object, such as {"key": "a", "value": "b"}')
    unknown = sorted(set(fields) - _READ - _IGNORED)
    if unknown:
        raise BadInput(f"unknown field {unknown[0]!r} (known: {', '.join(sorted(_READ))})")
    timestamp_ms = _whole_number(fields, "timestamp")
    return NewMessage(
        key=bytes_from_json(fields.get("key"), "key"),
        value=bytes_from_json(fields.get("value"), "value"),
        headers=_headers_from_json(fields.get("headers")),
        # A message without a timestamp is written with -1.
        timestamp_ms=None if timestamp_ms == -1 else timestamp_ms,
        partition=_whole_number(fields, "partition"),
    )


def _headers_from_json(headers: object) -> tuple[Header, ...]:
    if headers is None:
        return ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        raise BadInput('headers must be an object or a list of ["name", value]')
    found: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadInput('headers must be an object or a list of ["name", value]')
        found.append((pair[0], bytes_from_json(pair[1], f"header {pair[0]!r}")))
    return tuple(found)


def _whole_number(fields: Mapping[str, object], name: str) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    low = -1 if name == "timestamp" else 0
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number < 2**63:
        raise BadInput(f"{name} must be a whole number, not {number!r}")
    return number


# -- lines of input ----------------------------------------------------------------------------------------------------


# Longer lines are refused: this bounds memory, and by default the broker accepts no larger request.
LINE_BYTES_MAX = 100 * 1024 * 1024


class LineReader:
    """Converts a line of input to a message."""

    def __init__(
        self,
        *,
        key: str | None = None,
        key_separator: str | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        json_lines: bool = False,
        keep_partition: bool = False,
        null_marker: str | None = None,
    ) -> None:
        if key is not None and key_separator is not None:
            raise UsageError("--key and --key-separator cannot both be given")
        if key_separator == "":
            raise UsageError("--key-separator is empty")
        if json_lines and (key_separator is not None or null_marker is not None):
            raise UsageError(
                "--json-lines says key and null itself; leave --key-separator and --null-marker out"
            )
        self._key = key.encode() if key is not None else None
        self._separator = key_separator.encode() if key_separator is not None else None
        self._headers = headers
        self._partition = partition
        self._json_lines = json_lines
        self._keep_partition = keep_partition
        self._null = null_marker.encode() if null_marker is not None else None

    def read(self, line: bytes) -> NewMessage:
        """
        Raises:
            BadInput: the line does not have the expected format.
        """
        if self._json_lines:
            return self._read_json(line)
        key, value = self._key, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                raise BadInput(f"there is no {self._separator.decode()!r} between key and value")
        return NewMessage(
            key=self._or_null(key),
            value=self._or_null(value),
            headers=self._headers,
            partition=self._partition,
        )

    def _read_json(self, line: bytes) -> NewMessage:
        message = from_json_line(line)
        named = message.partition if self._keep_partition else None
        return NewMessage(
            key=message.key if message.key is not None else self._key,
            value=message.value,
            headers=message.headers + self._headers,
            timestamp_ms=message.timestamp_ms,
            partition=self._partition if self._partition is not None else named,
        )

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self._null else data


def read_lines(source: IO[bytes], *, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Yield lines without their newline; the last one may lack it.

    Raises:
        BadInput: a line is longer than any message can be.
    """
    while line := source.readline(line_bytes_max + 1):
        if len(line) > line_bytes_max:
            raise BadInput(
                f"it is longer than {line_bytes_max:,} bytes; messages are read one per line"
            )
        yield line.removesuffix(b"\n")
