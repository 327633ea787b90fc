"""The retries of one member of a group: what its consumer calls when messages arrive, fail, and are committed.

At least once, a failed message is sent by a producer of its own, and commits stop below it until it is acknowledged.

Exactly once, it is sent in the transaction that commits its offset. If its handler has sent messages before it failed,
those are in the transaction, too, and cannot be removed from it. So the transaction is aborted, and repeated without
that message, which is only sent on then: it is *set aside*.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from respool.client.messages.errors import RetryRefused
from respool.client.messages.message import (
    Message,
    MessageOrigin,
    Place,
    UndecodedMessage,
    as_datetime,
)
from respool.client.messages.producer import Producer
from respool.client.messages.retry.failed_message import Bury, Raise, SendAgain
from respool.client.messages.retry.failure_decisions import Retries, SizeLimits, attempt_of
from respool.client.messages.retry.retry_options import Retry
from respool.client.messages.retry.retry_sender import RetryCounts, RetrySender
from respool.client.messages.retry.retry_topics import (
    RetryTopics,
    connection_settings,
    prepare_retry_topics,
    sizes_of_producer,
)
from respool.model.retry.failure_headers import FailureRecord, UnreadableFailure
from respool.model.times import EPOCH_MS_MAX
from respool.pacing.token_bucket import NO_LIMIT, TokenBucket

Aside = SendAgain | Bury


class GroupRetries:
    def __init__(
        self,
        rules: Retries,
        retry: Retry,
        topics: RetryTopics,
        sender: RetrySender | None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sender`: None exactly once."""
        self.rules = rules
        self.topics = topics
        self.sender = sender
        self.counts = RetryCounts() if sender is None else sender.counts
        self._now = now
        self._bucket = TokenBucket(
            rate_per_s=NO_LIMIT if retry.retry_rate_max is None else retry.retry_rate_max,
            capacity_min=1.0,
        )
        self._aside: dict[tuple[Place, int], Aside] = {}

    @property
    def topic(self) -> str:
        """The retry topic."""
        return self.rules.retry_topic

    # -- a message arrives

    def received(self, message: Message) -> Message | None:
        """The message with its attempt and origin; None if it cannot be handled and was buried.

        Exactly once, such a message is returned, too, but set aside for the transaction.

        Raises:
            ForeignRetry, RetryRefused: it is left where it is.
        """
        if isinstance(message, UndecodedMessage):
            return self._bury(
                message, self.rules.bury_undecoded(message), "its headers cannot be read"
            )
        if message.topic != self.topic:
            return message
        try:
            failure = self.rules.failure_of(message)
        except UnreadableFailure as error:
            return self._bury(message, self.rules.bury_unreadable(message, error), str(error))
        assert failure is not None
        return replace(message, attempt=attempt_of(failure), retry_of=_origin_of(failure))

    def _bury(self, message: Message, decision: Bury | Raise, reason: str) -> Message | None:
        if isinstance(decision, Raise):
            topic, partition = message.place
            raise RetryRefused(
                f"{topic}/{partition} has at offset {message.offset} a message that cannot be handled, {reason};"
                " without dead_letters=True it stays there. To skip it:"
                f" consumer.rewind({{({topic!r}, {partition}): {message.offset + 1}}})"
            )
        if self.sender is None:
            self.set_aside(message, decision)
            return message
        self.sender.send(message, decision)
        return None

    # -- a message has failed

    def decide(self, message: Message, error: BaseException) -> SendAgain | Bury | Raise:
        """Decide, and count the failure for `retry_rate_max`."""
        decision = self.rules.decide(message, error, datetime.now(UTC))
        if not isinstance(decision, Raise):
            self._bucket.take(1, now_ms=self._now() * 1000)
        return decision

    def wait_s(self) -> float:
        """How long to hand out no messages, because too many have failed."""
        return self._bucket.wait_ms(now_ms=self._now() * 1000) / 1000

    @property
    def needs_wait(self) -> bool:
        """True if a consumer must wait, or an error must be raised, before it returns messages."""
        return self.wait_s() > 0 or (self.sender is not None and self.sender.has_refused)

    # -- at least once

    def serve(self) -> None:
        """Handle the answers that have arrived."""
        if self.sender is not None:
            self.sender.serve()

    def wait(self, timeout_s: float) -> None:
        """Wait until everything sent is acknowledged or refused."""
        if self.sender is not None:
            self.sender.wait(timeout_s)

    def limited(self, offsets: dict[Place, int]) -> dict[Place, int]:
        """The offsets that may be committed."""
        return offsets if self.sender is None else self.sender.limited(offsets)

    def take_refused(self) -> tuple[dict[Place, int], RetryRefused] | None:
        """Where to read again, and the error to raise, if failed messages could not be written."""
        refused = [] if self.sender is None else self.sender.take_refused()
        if not refused:
            return None
        shown = "; ".join(
            f"{topic}/{partition} offset {offset}: {reason}"
            for (topic, partition), offset, reason in refused[:3]
        )
        error = RetryRefused(
            f"failed messages were not written to {self.topic} or {self.rules.dead_letter_topic}, so they are read"
            f" again, with what follows them: {shown}"
        )
        return {one.place: one.offset for one in refused}, error

    def forget(self, places: Collection[Place]) -> None:
        """These partitions are read from elsewhere now, by this member or another."""
        if self.sender is not None:
            self.sender.forget(places)
        self._aside = {key: one for key, one in self._aside.items() if key[0] not in places}

    # -- exactly once

    def limit_size(self, message_bytes_max: int) -> None:
        """The transaction's producer sends no larger messages."""
        limits = self.topics.limits
        self.rules.limits = SizeLimits(
            retry_bytes_max=min(limits.retry_bytes_max, message_bytes_max),
            dead_letter_bytes_max=min(limits.dead_letter_bytes_max, message_bytes_max),
        )

    def set_aside(self, message: Message, decision: Aside) -> None:
        """The next transaction with this message sends it on, and does not hand it out."""
        self._aside[message.place, message.offset] = decision

    def aside_of(self, messages: Iterable[Message]) -> list[tuple[Message, Aside]]:
        """Those of these messages that were set aside."""
        return [
            (one, self._aside[one.place, one.offset])
            for one in messages
            if (one.place, one.offset) in self._aside
        ]

    def on_committed(self, sent: Iterable[tuple[Message, Aside]]) -> None:
        for message, decision in sent:
            self._aside.pop((message.place, message.offset), None)
            self.counts.add(decision)


def make_group_retries(
    retry: Retry,
    settings: Mapping[str, object],
    *,
    group: str,
    sources: Mapping[str, int],
    is_transactional: bool,
) -> GroupRetries:
    """Prepare the topics. `settings` are the consumer's; `sources` its topics, with their numbers of partitions.

    Raises:
        RetryTopicMissing, BadArgument
    """
    rules = Retries(retry, group=group, topics=sources)
    topics = prepare_retry_topics(settings, group=group, retry=retry, sources=sources)
    rules.limits = topics.limits
    connection = connection_settings(settings)
    servers = str(connection.pop("bootstrap.servers"))
    largest = max(topics.limits.retry_bytes_max, topics.limits.dead_letter_bytes_max)

    def make_producer() -> Producer:
        return Producer(servers, settings={**connection, **sizes_of_producer(largest)})

    sender = None if is_transactional else RetrySender(rules, topics, make_producer)
    return GroupRetries(rules, retry, topics, sender)


def _origin_of(failure: FailureRecord) -> MessageOrigin:
    timestamp_ms = failure.origin_timestamp_ms
    is_time = timestamp_ms is not None and timestamp_ms <= EPOCH_MS_MAX
    return MessageOrigin(
        topic=failure.topic,
        partition=failure.partition,
        offset=failure.offset,
        timestamp=as_datetime(timestamp_ms) if timestamp_ms is not None and is_time else None,
    )
