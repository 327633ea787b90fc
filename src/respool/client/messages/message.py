"""Values: `Message`, `Receipt`, and the accepted types of keys, values and headers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from respool.client.messages.errors import BadArgument

# Accepted types. Text is encoded as UTF-8; the caller serialises everything else.
Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]
# A partition of a topic.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOrigin:
    """Where a message was read first, before its handling failed."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message read from a partition."""

    topic: str
    partition: int
    offset: int
    # CreateTime or LogAppendTime, as the topic's `message.timestamp.type` says. None: no timestamp.
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # 1, and one more each time after its handling failed (see `Retry`).
    attempt: int = 1
    # None: it was not read from a retry topic.
    retry_of: MessageOrigin | None = None

    @property
    def origin(self) -> MessageOrigin:
        """Where it was read first: the same for all its attempts."""
        return self.retry_of or MessageOrigin(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp=self.timestamp,
        )

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name, as Kafka's clients do, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


class UndecodedMessage(Message):
    """A message with a header whose name is not UTF-8. The library cannot read its headers, so it has none here."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where a message was written. With acks=0 the offset is unknown."""

    topic: str
    partition: int
    offset: int | None


def as_bytes(data: object, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise BadArgument(
        f"a message's {what} is bytes or text, not {type(data).__name__}: serialise it first, as with json.dumps"
    )


def as_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    made = []
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise BadArgument(f"headers are pairs of a name and a value, not {pair!r}")
        made.append((pair[0], as_bytes(pair[1], f"header {pair[0]!r}")))
    return made


def as_timestamp_ms(when: datetime | int | None) -> int:
    """The timestamp for librdkafka, where 0 means now."""
    if when is None:
        return 0
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise BadArgument(f"{when!r} has no time zone: say datetime(..., tzinfo=UTC)")
        when = round(when.timestamp() * 1000)
    if isinstance(when, bool) or not isinstance(when, int) or when <= 0:
        raise BadArgument(f"a timestamp is a datetime or milliseconds after 1970, not {when!r}")
    return when


def as_datetime(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
