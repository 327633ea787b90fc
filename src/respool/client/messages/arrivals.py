"""The messages and errors that librdkafka returns to a group member."""

from operator import methodcaller
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import ClientError, Fenced, ReceiveFailed, UnknownTopic
from respool.client.messages.library import KafkaException, log
from respool.client.messages.message import Message, Place, UndecodedMessage, as_datetime

# If a header's name is not UTF-8, confluent-kafka returns a list and sets an exception as well. A plain call, once the
# interpreter has specialised it, returns that list; a call from C always checks, and raises SystemError.
_headers_of = methodcaller("headers")


class Arrivals:
    def __init__(self, kafka: Any) -> None:
        self._kafka = kafka
        self._error: ClientError | None = None
        # Partitions without a start offset: nothing was committed, or the offset has been deleted.
        self._unplaced: set[Place] = set()
        # Partitions read to their end since they were assigned.
        self._ended: set[Place] = set()

    @property
    def has_unplaced(self) -> bool:
        """True if some partitions need a start offset."""
        return bool(self._unplaced)

    def take_unplaced(self) -> set[Place]:
        """Return and clear those partitions; the caller sets their offsets, or puts them back."""
        taken, self._unplaced = self._unplaced, set()
        return taken

    def put_back(self, places: set[Place]) -> None:
        self._unplaced |= places

    def forget(self, places: set[Place]) -> None:
        """Forget these partitions: another member reads them."""
        self._unplaced -= places
        self._ended -= places

    def is_read(self, place: Place) -> bool:
        """True once librdkafka has read this partition to its end."""
        return place in self._ended

    def take(self, wait_s: float, count: int) -> list[Message]:
        """Return available messages, waiting for the first one only. librdkafka's callbacks run in here.

        Raises:
            ReceiveFailed: reading failed.
        """
        try:
            found = self._kafka.consume(1, wait_s)
            if found and count > 1:
                found += self._kafka.consume(count - 1, 0)
        except KafkaException as error:
            raise ReceiveFailed(f"messages cannot be read: {library.reason(error)}") from error
        messages = []
        for one in found:
            if one.error() is None:
                messages.append(_message(one))
            else:
                self._on_error(one)
        return messages

    def raise_error(self) -> None:
        """
        Raises:
            ClientError: a permanent error occurred. Raised once, unless this member was fenced.
        """
        if self._error is not None:
            error = self._error
            if not isinstance(error, Fenced):
                self._error = None
            raise error

    def _on_error(self, found: Any) -> None:
        """Transient errors are logged; permanent ones are kept for `raise_error`."""
        error = found.error()
        code = error.code()
        if code == library.PARTITION_EOF:
            self._ended.add((found.topic(), found.partition()))
            return
        if code == library.OFFSET_GONE:
            self._unplaced.add((found.topic(), found.partition()))
            return
        cause = KafkaException(error)
        if code == library.MAX_POLL_EXCEEDED:
            log.warning(
                "no message was asked for within max.poll.interval.ms, so the group has given this consumer's"
                " partitions to others; they redeliver the messages in progress. Handle messages faster, or raise it"
            )
        elif library.is_fencing(error):
            self._error = library.fenced("a consumer cannot continue", cause)
        elif code in library.UNKNOWN_TOPIC:
            self._error = UnknownTopic(found.topic() or "?")
        elif code in library.PASSING | library.REBALANCED and not error.fatal():
            log.info("%s", library.reason(cause))
        else:
            self._error = ReceiveFailed(
                f"messages cannot be read: {library.reason(cause)}. What was committed is kept; start again from there"
            )
        if self._error is not None:
            self._error.__cause__ = cause


def _message(found: Any) -> Message:
    kind, timestamp_ms = found.timestamp()
    kind_of_message, headers = Message, None
    try:
        headers = _headers_of(found)
    except (SystemError, UnicodeDecodeError):
        kind_of_message = UndecodedMessage
    return kind_of_message(
        topic=found.topic(),
        partition=found.partition(),
        offset=found.offset(),
        timestamp=as_datetime(timestamp_ms) if kind and timestamp_ms >= 0 else None,
        key=found.key(),
        value=found.value(),
        headers=tuple(headers) if headers else (),
    )
