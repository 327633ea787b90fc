"""The headers of a message whose handling failed, the same in `retry.<group>` and in `dlq.<group>`. Pure.

The first six are those of Kafka 4.4's dead letters (KIP-1191), so that one reader understands both. All are text:

    __dlq.errors.topic               the topic that it was first read from
    __dlq.errors.partition
    __dlq.errors.offset
    __dlq.errors.group               the group that failed
    __dlq.errors.delivery.count      how often it has been handled in vain; 0 for a dead letter that was put back
    __dlq.errors.message             the last error, at most 1 KiB
    __dlq.errors.truncated           what a dead letter leaves out: "value" or "record" did not fit (the record is key,
                                     value and the message's headers), "headers" could not be read
    respool-error-class              the last error's class
    respool-first-failed-at          milliseconds since 1970
    respool-origin-timestamp         the message's timestamp when it was first read

They follow the message's own headers, and are replaced at each failure, never added to: a message does not grow with
its attempts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from respool.model.delays.delay_headers import STRIPPED_HEADERS
from respool.model.errors import InvalidTopic, RespoolError
from respool.model.ids import check_topic_name

Headers = tuple[tuple[str, bytes | None], ...]

TOPIC = "__dlq.errors.topic"
PARTITION = "__dlq.errors.partition"
OFFSET = "__dlq.errors.offset"
GROUP = "__dlq.errors.group"
DELIVERY_COUNT = "__dlq.errors.delivery.count"
MESSAGE = "__dlq.errors.message"
TRUNCATED = "__dlq.errors.truncated"
ERROR_CLASS = "respool-error-class"
FIRST_FAILED_AT = "respool-first-failed-at"
ORIGIN_TIMESTAMP = "respool-origin-timestamp"

FAILURE_HEADERS = frozenset(
    {
        TOPIC,
        PARTITION,
        OFFSET,
        GROUP,
        DELIVERY_COUNT,
        MESSAGE,
        TRUNCATED,
        ERROR_CLASS,
        FIRST_FAILED_AT,
        ORIGIN_TIMESTAMP,
    }
)
ERROR_TEXT_BYTES_MAX = 1024
ERROR_CLASS_BYTES_MAX = 256
GROUP_BYTES_MAX = 1024
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_COUNT_MAX = 2**31 - 1
# Longer numbers are not converted: that is quadratic in their length.
_NUMBER = re.compile(rb"[0-9]{1,19}")


class UnreadableFailure(RespoolError):
    """A message has no headers that say where it comes from and how often it failed, or they cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """Where a message comes from, and how its handling failed last."""

    topic: str
    partition: int
    offset: int
    group: str
    # None: unknown.
    deliveries: int | None
    error_text: str = ""
    error_class: str = ""
    first_failed_at_ms: int | None = None
    origin_timestamp_ms: int | None = None
    # The parts that a dead letter omits; may be empty.
    truncated: str = ""

    def to_headers(self) -> Headers:
        found = [
            (TOPIC, self.topic.encode()),
            (PARTITION, b"%d" % self.partition),
            (OFFSET, b"%d" % self.offset),
            (GROUP, shortened(self.group, GROUP_BYTES_MAX)),
            (MESSAGE, shortened(self.error_text, ERROR_TEXT_BYTES_MAX)),
            (ERROR_CLASS, shortened(self.error_class, ERROR_CLASS_BYTES_MAX)),
        ]
        if self.deliveries is not None:
            found.append((DELIVERY_COUNT, b"%d" % self.deliveries))
        if self.first_failed_at_ms is not None:
            found.append((FIRST_FAILED_AT, b"%d" % self.first_failed_at_ms))
        if self.origin_timestamp_ms is not None:
            found.append((ORIGIN_TIMESTAMP, b"%d" % self.origin_timestamp_ms))
        if self.truncated:
            found.append((TRUNCATED, self.truncated.encode()))
        return tuple(found)


def read_failure(headers: Iterable[tuple[str, bytes | None]]) -> FailureRecord:
    """Read the headers of a message in a retry topic or among dead letters.

    Raises:
        UnreadableFailure: the origin or the delivery count is missing or malformed. The other headers are for people:
        if one of them cannot be read, it counts as missing.
    """
    # If several headers have one name, the last one counts, as with Kafka's clients.
    found = {name: value for name, value in headers if name in FAILURE_HEADERS and value}
    return FailureRecord(
        topic=_topic(found),
        partition=_required(found, PARTITION, _PARTITION_MAX),
        offset=_required(found, OFFSET, _OFFSET_MAX),
        group=_text(found, GROUP),
        deliveries=_required(found, DELIVERY_COUNT, _COUNT_MAX),
        error_text=_text(found, MESSAGE),
        error_class=_text(found, ERROR_CLASS),
        first_failed_at_ms=_number(found.get(FIRST_FAILED_AT), _OFFSET_MAX),
        origin_timestamp_ms=_number(found.get(ORIGIN_TIMESTAMP), _OFFSET_MAX),
        truncated=_text(found, TRUNCATED),
    )


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """The headers that the message had before it failed, without those that delayed it.

    They say when it was delivered last, or were a matter of the topic it comes from; the broker refuses some of them.
    """
    added = FAILURE_HEADERS | STRIPPED_HEADERS
    return tuple((name, value) for name, value in headers if name not in added)


def shortened(text: str, bytes_max: int) -> bytes:
    """UTF-8 of at most `bytes_max` bytes, ending with `...` if it was shortened, and with no character divided."""
    # An error's text may have half of a surrogate pair; half a megabyte of it is not encoded first.
    encoded = text[: bytes_max + 1].encode(errors="backslashreplace")
    if len(encoded) <= bytes_max:
        return encoded
    return encoded[: bytes_max - 3].decode(errors="ignore").encode() + b"..."


def _topic(found: dict[str, bytes]) -> str:
    topic = _text(found, TOPIC)
    try:
        check_topic_name(topic)
    except InvalidTopic as error:
        raise UnreadableFailure(f"header {TOPIC}: {error}") from None
    return topic


def _required(found: dict[str, bytes], name: str, number_max: int) -> int:
    number = _number(found.get(name), number_max)
    if number is None:
        value = found.get(name)
        what = "is missing" if value is None else f"is no number: {value[:40]!r}"
        raise UnreadableFailure(f"header {name} {what}")
    return number


def _number(value: bytes | None, number_max: int) -> int | None:
    if value is None or not _NUMBER.fullmatch(value):
        return None
    number = int(value)
    return number if number <= number_max else None


def _text(found: dict[str, bytes], name: str) -> str:
    return (found.get(name) or b"").decode(errors="replace")
