"""Lines of input -> the messages they stand for. Pure."""

from collections.abc import Iterator
from typing import IO

from respool.cli.message_format import Header, NewMessage, from_json_line
from respool.model.json_bytes import BadInput
from respool.model.operator_errors import UsageError

# No line is read further than this: it bounds memory, and the broker takes no larger request by default.
LINE_BYTES_MAX = 100 * 1024 * 1024


class LineReader:
    """A line of input -> the message it stands for."""

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
            BadInput: the line does not have the form asked for.
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
    """Lines without their newline; the last one may lack it.

    Raises:
        BadInput: a line is longer than any message can be.
    """
    while line := source.readline(line_bytes_max + 1):
        if len(line) > line_bytes_max:
            raise BadInput(
                f"it is longer than {line_bytes_max:,} bytes; messages are read one per line"
            )
        yield line.removesuffix(b"\n")
