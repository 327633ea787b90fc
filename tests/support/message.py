"""A message as every client sees it, and what a client that we did not write must be able to do with a broker.

One class per client stands behind `KafkaClient`, so that a test can say: what one wrote, another reads identically.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

# Codecs by their Kafka names.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# A topic and a partition's number.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    # None: the client's own clock says.
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None
    headers: Headers

    def is_copy_of(self, sent: Message) -> bool:
        return (
            self.value == sent.value
            and self.key == sent.key
            and self.headers == sent.headers
            and sent.timestamp_ms in (None, self.timestamp_ms)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a consumer asks for messages; clients have these under various names."""

    bytes_min: int = 1
    partition_bytes_max: int = 1_048_576
    wait_ms: int = 100


DEFAULT_FETCH = FetchSettings()


class KafkaClient(Protocol):
    name: str

    def express(self, message: Message) -> Message:
        """The message as far as this client can say it; most say all."""

    def write(
        self,
        address: str,
        place: Place,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        idempotent: bool = True,
        acks: str = "all",
    ) -> None:
        """Send them in one batch or a few, and return when they are acknowledged."""

    def read(self, address: str, places: Iterable[Place]) -> Mapping[Place, list[Received]]:
        """Everything there is, from the start to where each partition ends now."""

    def read_from(
        self,
        address: str,
        place: Place,
        offset: int,
        *,
        count: int,
        fetch: FetchSettings = DEFAULT_FETCH,
    ) -> list[Received]:
        """The next `count` messages from an offset on, waiting for those that are not there yet."""

    def bounds(self, address: str, place: Place) -> tuple[int, int]:
        """The first offset there is, and the one the next message will get."""

    def offset_at(self, address: str, place: Place, time_ms: int) -> int | None:
        """The first offset whose time is that or later; None when there is none."""
