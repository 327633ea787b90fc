"""What becomes of a message whose handling failed: `SendAgain`, `Bury` or `Raise`. Pure."""

from dataclasses import dataclass, replace
from hashlib import sha256

from respool.model.delays.delay_headers import DELAY, SCHEDULE_ID
from respool.model.retry.failure_headers import ERROR_CLASS, FailureRecord, Headers
from respool.model.times import format_duration_ms

# The size of a batch with this record alone, uncompressed, with all numbers at their maximum length.
_BATCH_BYTES = 61
_RECORD_BYTES = 40
_HEADER_BYTES = 10
# As the broker allows.
_ID_BYTES_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """Its bytes, whole: what it was read from may be deleted before it is handled again."""

    key: bytes | None
    value: bytes | None
    # Those that it had before it failed.
    headers: Headers
    failure: FailureRecord
    # The partition it was first read from; modulo the number of partitions, it is its partition here.
    source_partition: int

    def headers_to_send(self) -> Headers:
        return self.headers + self.failure.to_headers()

    @property
    def size(self) -> int:
        """How many bytes it has at most, as `max.message.bytes` counts them."""
        size = _BATCH_BYTES + _RECORD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers_to_send():
            size += _HEADER_BYTES + len(name.encode()) + len(value or b"")
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAgain(FailedMessage):
    """Send it to the group's retry topic, where the broker shows it after the delay."""

    delay_ms: int

    def headers_to_send(self) -> Headers:
        # `super()` does not work in a class with slots that a decorator made again.
        headers = FailedMessage.headers_to_send(self)
        delay = format_duration_ms(self.delay_ms).encode()
        return (*headers, (DELAY, delay), (SCHEDULE_ID, self._schedule_id().encode()))

    def _schedule_id(self) -> str:
        """One id for an attempt at a message: a retry that is sent twice replaces the first, if that still waits.

        It has the timestamp, because a topic that was deleted and created has the same offsets again.
        """
        one = self.failure
        place = f"{one.partition}/{one.offset}/{one.deliveries}/{one.origin_timestamp_ms or 0}"
        name = f"{one.topic}/{place}"
        if len(name) <= _ID_BYTES_MAX:
            return name
        return f"{sha256(one.topic.encode()).hexdigest()}/{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury(FailedMessage):
    """Send it to the group's dead letters."""

    # Where it comes from cannot be read: it keeps its headers as they are.
    is_unreadable: bool = False

    def headers_to_send(self) -> Headers:
        if self.is_unreadable and not self.failure.truncated:
            kept = tuple(one for one in self.headers if one[0] != ERROR_CLASS)
            return (*kept, (ERROR_CLASS, self.failure.error_class.encode()))
        return FailedMessage.headers_to_send(self)

    def fitted(self, bytes_max: int) -> "Bury":
        """Without its value, if it is too large with it: the headers say where it is found.

        A message may be as large as its topic allows, and the headers of its failure are added to that.
        """
        if self.size <= bytes_max:
            return self
        pointer = self._without_value()
        return pointer if pointer.size <= bytes_max else self._without_anything()

    def smaller(self) -> "Bury | None":
        """The next smaller form, if a broker refused this one for its size; None: there is no smaller one."""
        match self.failure.truncated:
            case "" | "headers":
                return self._without_value()
            case "value":
                return self._without_anything()
        return None

    def _without_value(self) -> "Bury":
        return replace(self, value=None, failure=replace(self.failure, truncated="value"))

    def _without_anything(self) -> "Bury":
        failure = replace(self.failure, truncated="record")
        return replace(self, key=None, value=None, headers=(), failure=failure)


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the error: the message is not done, and stays where it is."""
