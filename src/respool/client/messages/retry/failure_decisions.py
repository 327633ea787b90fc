"""Decides what becomes of a message whose handling failed: `Retries`. Pure: the caller brings the time.

How often a message has failed stands in its headers, not in memory: any member of the group, and the same one after a
crash, counts on from there. So a message has one attempt more than there are delays.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from respool.client.messages.errors import (
    BadArgument,
    ClientClosed,
    Fenced,
    ForeignRetry,
    NoTransaction,
    RetryRefused,
    TransactionAborted,
    TransactionUnsure,
    UsedByTwoThreads,
)
from respool.client.messages.message import Message, UndecodedMessage
from respool.client.messages.retry.failed_message import Bury, Raise, SendAgain
from respool.client.messages.retry.retry_options import Retry
from respool.model.retry.failure_headers import (
    FailureRecord,
    UnreadableFailure,
    own_headers,
    read_failure,
)
from respool.model.retry.group_topics import dead_letter_topic, retry_topic

# These say that the client cannot continue, or has to start its transaction again. The message is not to blame.
_NOT_OF_THE_MESSAGE = (
    ClientClosed,
    Fenced,
    ForeignRetry,
    NoTransaction,
    RetryRefused,
    TransactionAborted,
    TransactionUnsure,
    UsedByTwoThreads,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNLIMITED = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """`max.message.bytes` of both topics, or of the producer if that is smaller."""

    retry_bytes_max: int = _UNLIMITED
    dead_letter_bytes_max: int = _UNLIMITED


class Retries:
    """The rules of one group."""

    def __init__(
        self,
        retry: Retry,
        *,
        group: str,
        topics: Collection[str],
        limits: SizeLimits | None = None,
    ) -> None:
        """`topics`: those that the consumer reads, without the retry topic.

        Raises:
            BadArgument: the consumer reads its own retries or dead letters as messages.
        """
        self.retry_topic = retry_topic(group)
        self.dead_letter_topic = dead_letter_topic(group)
        for topic in topics:
            if topic in {self.retry_topic, self.dead_letter_topic}:
                raise BadArgument(
                    f"group {group!r} cannot read {topic!r} as one of its topics: what fails there would be sent there"
                    " again. The retry topic is read without being named; to handle dead letters, choose another group"
                )
        self._retry = retry
        self._group = group
        self._topics = frozenset(topics)
        self.limits = limits or SizeLimits()

    def decide(
        self, message: Message, error: BaseException, now: datetime
    ) -> SendAgain | Bury | Raise:
        """What becomes of the message, now that its handling raised this error.

        Raises:
            UnreadableFailure, ForeignRetry: it comes from the retry topic, and `failure_of` was not asked before.
        """
        if not isinstance(error, Exception) or isinstance(error, _NOT_OF_THE_MESSAGE):
            return Raise()
        before = self.failure_of(message)
        failure = self._failure_after(before, message, error, now)
        attempt = attempt_of(before)
        delays_ms = self._retry.delays_ms
        if attempt <= len(delays_ms) and not isinstance(error, self._retry.give_up):
            retried = SendAgain(
                key=message.key,
                value=message.value,
                headers=own_headers(message.headers),
                failure=failure,
                source_partition=failure.partition,
                delay_ms=delays_ms[attempt - 1],
            )
            if retried.size <= self.limits.retry_bytes_max:
                return retried
        return self._bury(message, failure) if self._retry.dead_letters else Raise()

    def failure_of(self, message: Message) -> FailureRecord | None:
        """What its headers say of earlier failures; None for a message that comes from its topic, whatever its headers.

        Raises:
            UnreadableFailure: they do not say where it comes from; `bury_unreadable` it.
            ForeignRetry: it comes from a topic that this consumer does not read.
        """
        if message.topic != self.retry_topic:
            return None
        failure = read_failure(message.headers)
        if failure.topic not in self._topics:
            raise ForeignRetry(
                origin=failure.topic,
                group=self._group,
                partition=message.partition,
                offset=message.offset,
            )
        return failure

    def bury_unreadable(self, message: Message, error: UnreadableFailure) -> Bury | Raise:
        """It is kept as it is, for people to look at: how often it failed is unknown, so it is not handled again."""
        if not self._retry.dead_letters:
            return Raise()
        return Bury(
            key=message.key,
            value=message.value,
            headers=message.headers,
            failure=self._failure_here(message, error),
            source_partition=message.partition,
            is_unreadable=True,
        ).fitted(self.limits.dead_letter_bytes_max)

    def bury_undecoded(self, message: UndecodedMessage) -> Bury | Raise:
        """It is buried without its headers, which this client cannot read, and so could not send."""
        if not self._retry.dead_letters:
            return Raise()
        error = UnreadableFailure(
            "a header's name is not UTF-8, and confluent-kafka cannot read it"
        )
        return Bury(
            key=message.key,
            value=message.value,
            headers=(),
            failure=replace(self._failure_here(message, error), truncated="headers"),
            source_partition=message.partition,
        ).fitted(self.limits.dead_letter_bytes_max)

    def _failure_here(self, message: Message, error: Exception) -> FailureRecord:
        """The failure of a message that was never handled: how often it failed is unknown."""
        return FailureRecord(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            group=self._group,
            deliveries=None,
            error_text=str(error),
            error_class=_class_name(error),
        )

    def bury_too_large(self, refused: SendAgain | Bury) -> Bury | Raise:
        """The broker refused it for its size, although it should have fitted: its topic was changed."""
        if not self._retry.dead_letters:
            return Raise()
        if isinstance(refused, Bury):
            return refused.smaller() or Raise()
        buried = Bury(
            key=refused.key,
            value=refused.value,
            headers=refused.headers,
            failure=refused.failure,
            source_partition=refused.source_partition,
        )
        return buried.fitted(self.limits.dead_letter_bytes_max)

    def _bury(self, message: Message, failure: FailureRecord) -> Bury:
        return Bury(
            key=message.key,
            value=message.value,
            headers=own_headers(message.headers),
            failure=failure,
            source_partition=failure.partition,
        ).fitted(self.limits.dead_letter_bytes_max)

    def _failure_after(
        self, before: FailureRecord | None, message: Message, error: Exception, now: datetime
    ) -> FailureRecord:
        timestamp = message.timestamp
        origin = before or FailureRecord(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            group=self._group,
            deliveries=0,
            origin_timestamp_ms=None if timestamp is None else (timestamp - _EPOCH) // _MILLISECOND,
        )
        first_failed_at_ms = origin.first_failed_at_ms
        return FailureRecord(
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            group=self._group,
            deliveries=attempt_of(before),
            error_text=_text_of(error),
            error_class=_class_name(error),
            first_failed_at_ms=(now - _EPOCH) // _MILLISECOND
            if first_failed_at_ms is None
            else first_failed_at_ms,
            origin_timestamp_ms=origin.origin_timestamp_ms,
        )


def attempt_of(failure: FailureRecord | None) -> int:
    """1 for a message that is handled for the first time."""
    if failure is None:
        return 1
    assert failure.deliveries is not None
    return failure.deliveries + 1


def _class_name(error: Exception) -> str:
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error of the handler's own class runs the handler's code here
        return "(the error has no text)"
