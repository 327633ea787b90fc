"""Receive messages: `Consumer`.

Consumers read at their own speed, independently of each other. Polling for the next message marks the last one as done;
`delivery` decides when its offset is committed.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages.batching import Pace, pace_settings
from respool.client.messages.closing import noted_on
from respool.client.messages.consumed_transaction import (
    Attempts,
    ConsumedTransaction,
    check_pair,
)
from respool.client.messages.errors import (
    BadArgument,
    ClientClosed,
    NoTransaction,
    UsedByTwoThreads,
)
from respool.client.messages.group_reader import GroupReader
from respool.client.messages.guarantee import Delivery, consumer_settings
from respool.client.messages.handled_message import HandledMessage
from respool.client.messages.message import Message, Place
from respool.client.messages.producer import Producer
from respool.client.messages.retry.group_retries import GroupRetries, make_group_retries
from respool.client.messages.retry.retry_options import Retry, check_retry
from respool.client.messages.rewind import Missing, To, parse

# The polling interval if there is no idle limit.
WAIT_SECONDS = 1.0
_CLOSED = "the consumer was closed: make a new one of the same group"


class Consumer:
    """Reads topics as a member of a group, with a delivery guarantee.

    The partitions are assigned to the members of a group, so each message goes to one of them (point to point). Every
    group reads everything (publish and subscribe).

    Args:
        topics: one name, or several.
        group: the consumer group's id. A new group begins at `start`.
        delivery: "at-most-once" commits before it returns a message, "at-least-once" after the message is done,
            "exactly-once" in the transactions of a producer, see `transactions`.
        bootstrap: as for `Producer`.
        start: "earliest" or "latest", for a group without committed offsets.
        commit: "auto", or "manual" if messages are handled elsewhere and `commit` is called.
        commit_every_ms: the commit interval with at-least-once; after a crash, messages handled since the last commit
            are repeated. 0 commits after every message.
        pace: "latency", "balanced" or "throughput".
        instance: group.instance.id, stable over restarts (static membership).
        retry: what becomes of messages whose handling fails, see `handling`. The consumer then also reads the group's
            retry topic, `retry.<group>`.
        settings: other librdkafka properties.

    Raises:
        BadArgument: an argument is invalid, or contradicts another.
        RetryTopicMissing: the retry topic or the dead letters are missing, and could not be created.
        UnknownTopic, BrokerUnreachable.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        bootstrap: str | None = None,
        delivery: Delivery = "at-least-once",
        start: Literal["earliest", "latest"] = "earliest",
        commit: Literal["auto", "manual"] = "auto",
        commit_every_ms: int = 1_000,
        pace: Pace = "balanced",
        instance: str | None = None,
        retry: Retry | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.delivery = delivery
        self._pace = pace_settings(pace)
        self._busy = threading.Lock()
        self._is_closed = False
        self._transaction: ConsumedTransaction | None = None
        self._reader = make_reader(
            topics,
            group=group,
            bootstrap=bootstrap,
            delivery=delivery,
            start=start,
            commit=commit,
            commit_every_ms=commit_every_ms,
            pace=pace,
            instance=instance,
            retry=retry,
            settings=settings or {},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaving without an exception marks all returned messages as done; with one, all but the last."""
        with noted_on(error, "consumer"):
            self._close(is_done=error is None)

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    @property
    def assignment(self) -> frozenset[Place]:
        """The assigned partitions; empty until a `poll` has joined the group."""
        return self._reader.assigned

    def poll(self, timeout_s: float = WAIT_SECONDS) -> Message | None:
        """Return the next message, or None after the timeout. Marks the previous messages as done."""
        found = self.poll_batch(1, timeout_s)
        return found[0] if found else None

    def poll_batch(
        self, messages_max: int | None = None, timeout_s: float = WAIT_SECONDS
    ) -> list[Message]:
        """Return available messages, up to a maximum; waits only for the first."""
        if self.delivery == "exactly-once":
            raise NoTransaction(
                "an exactly-once consumer hands messages over in transactions: `for transaction in"
                " consumer.transactions(producer):`. Where the result is not in topics, keep the offset with it, and"
                " read at-least-once"
            )
        with self._alone():
            count = messages_max or self._pace.messages_at_once
            return self._reader.take(count, timeout_s)

    def messages(self, *, idle_s: float | None = None) -> Iterator[Message]:
        """Yield messages forever, or until none has arrived for `idle_s` seconds, or until `stop`."""
        idleness = Idleness(idle_s, is_idle=lambda: self._reader.is_idle)
        while not self._reader.stopping.is_set():
            message = self.poll(idleness.wait_s)
            if message is not None:
                yield message
                idleness.on_message()
            elif idleness.is_over():
                return

    def transactions(
        self,
        producer: Producer,
        *,
        messages_max: int | None = None,
        idle_s: float | None = None,
    ) -> Iterator[ConsumedTransaction]:
        """Yield transactions of an exactly-once producer, forever or until no message has arrived for `idle_s` seconds.

        Raises:
            NoTransaction: consumer or producer is not exactly-once.
            TransactionAborted: the same messages failed several times in a row.
            Fenced, TransactionUnsure: close this instance; the next one continues from the last commit.
        """
        check_pair(producer, self.delivery)
        count = messages_max or self._pace.transaction_messages
        attempts = Attempts()
        idleness = Idleness(idle_s, is_idle=lambda: self._reader.is_idle)
        while not self._reader.stopping.is_set():
            with self._alone():
                messages = self._reader.take(count, idleness.wait_s)
            if messages:
                self._transaction = transaction = ConsumedTransaction(
                    self._reader, producer, messages
                )
                yield transaction
                attempts.on_over(transaction)
                idleness.on_message()
            elif idleness.is_over():
                return

    @contextmanager
    def handling(self, message: Message) -> Iterator[Message]:
        """`with consumer.handling(message):` sends the message to the group's retry topic if the block raises.

        The broker shows it to the group again after the delay, and it is handled as a message with the next `attempt`.
        After the last attempt it is sent to the group's dead letters. It counts as done once that is acknowledged.

        Raises:
            Exception: the error of the block, if it says nothing of the message (the client was fenced, the
                transaction is aborted), or if there are no attempts left and `dead_letters` is False.
            TransactionAborted: exactly once, if the block had sent messages. The loop repeats the transaction.
        """
        handled = self._handled(message)
        try:
            yield message
        except Exception as error:
            send_on = handled.failed(error, is_own_work=True)
            if send_on is None:
                raise
            send_on(True)

    def retry(self, message: Message, error: BaseException) -> None:
        """Do what `handling` does with a message whose handling failed with this error.

        May be called from any thread, if other threads handle the messages.

        Raises:
            BaseException: the error itself, as `handling` does.
        """
        send_on = self._handled(message).failed(error, is_own_work=False)
        if send_on is None:
            raise error
        send_on(True)

    @property
    def retried(self) -> int:
        """How many messages this consumer has sent to the retry topic."""
        return 0 if self._reader.retries is None else self._reader.retries.counts.retried

    @property
    def buried(self) -> int:
        """How many messages this consumer has sent to the dead letters."""
        return 0 if self._reader.retries is None else self._reader.retries.counts.buried

    def commit(self, message: Message | None = None) -> None:
        """Commit all returned messages, or those of this message's partition up to it.

        Raises:
            CommitFailed: the messages may be read again.
            NoTransaction: exactly once commits in transactions only.
        """
        if self.delivery == "exactly-once":
            raise NoTransaction("exactly once commits in the producer's transactions only")
        if self.delivery == "at-most-once":
            return
        with self._alone():
            self._reader.commit(message)

    def rewind(self, to: To, *, missing: Missing = "error") -> None:
        """Seek to a time, an offset, or the start or end: `datetime`, `timedelta` (before now), offset, "earliest",
        "latest", or any of these by partition: `{0: 17}`, `{("rides", 0): 17}`.

        Seeks the assigned partitions or, if none are assigned yet, the first assignment. Also commits the offsets, so
        that another member would continue from there.

        Raises:
            OutsideRetention: part of the range has been deleted; `missing="available"` begins at the log start.
            BadArgument, OffsetBeyondEnd: no position was changed.
        """
        with self._alone():
            self._reader.rewind(parse(to, now=datetime.now(UTC), missing=missing))

    def stop(self) -> None:
        """End the loops over this consumer after the current message. May be called from any thread or a signal
        handler."""
        self._reader.stopping.set()

    def close(self) -> None:
        """Leave the group. Commits messages that are done: not the last one, unless `commit` was called.

        Raises:
            CommitFailed: the commit failed; messages may be read again.
        """
        self._close(is_done=False)

    def _handled(self, message: Message) -> HandledMessage:
        if self._is_closed:
            raise ClientClosed(_CLOSED)
        return HandledMessage(
            self._reader.retries,
            self._transaction,
            message,
            is_transactional=self.delivery == "exactly-once",
        )

    def _close(self, *, is_done: bool) -> None:
        if self._is_closed:
            return
        with self._alone():
            self._is_closed = True
            self._reader.close(is_done=is_done)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise UsedByTwoThreads(
                "a consumer is used by one thread at a time: give each thread its own, of the same group. To end one"
                " from another thread, call stop()"
            )
        try:
            if self._is_closed:
                raise ClientClosed(_CLOSED)
            yield
        finally:
            self._busy.release()


def make_reader(
    topics: str | Sequence[str],
    *,
    group: str,
    bootstrap: str | None,
    delivery: Delivery,
    start: str,
    commit: str,
    commit_every_ms: int,
    pace: Pace,
    instance: str | None,
    retry: Retry | None,
    settings: Mapping[str, object],
) -> GroupReader:
    """Validate the arguments, and join the group."""
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise BadArgument(f"topics is a name, or several, not {topics!r}")
    if not isinstance(group, str) or not group:
        raise BadArgument(f"a consumer needs group=, whose place is kept, not {group!r}")
    if start not in {"earliest", "latest"}:
        raise BadArgument(
            f"start is 'earliest' or 'latest', not {start!r}; for a time, rewind(to=)"
        )
    if commit not in {"auto", "manual"}:
        raise BadArgument(f"commit is 'auto' or 'manual', not {commit!r}")
    if commit == "manual" and delivery != "at-least-once":
        raise BadArgument(f"commit='manual' is for at-least-once; {delivery} says itself when")
    if commit_every_ms < 0:
        raise BadArgument(f"commit_every_ms is 0 or more, not {commit_every_ms}")
    check_retry(retry, delivery)
    chosen = pace_settings(pace)
    brokers = Bootstrap.resolve(bootstrap)
    made = {
        "socket.nagle.disable": True,
        **chosen.consumer,
        **consumer_settings(delivery, settings),
        "bootstrap.servers": brokers.servers,
        "group.id": group,
    }
    if instance is not None:
        made["group.instance.id"] = instance

    def make_retries(sources: Mapping[str, int]) -> GroupRetries:
        assert retry is not None
        is_transactional = delivery == "exactly-once"
        return make_group_retries(
            retry, made, group=group, sources=sources, is_transactional=is_transactional
        )

    return GroupReader(
        names,
        made,
        bootstrap=brokers,
        delivery=delivery,
        start=start,
        commits_by_itself=commit == "auto" and delivery == "at-least-once",
        commit_every_ms=commit_every_ms,
        messages_at_once=chosen.messages_at_once,
        make_retries=None if retry is None else make_retries,
    )


class Idleness:
    """Time since the last message, for loops that end when idle."""

    def __init__(
        self,
        idle_s: float | None,
        *,
        is_idle: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_idle`: messages could arrive. None can before the group has assigned partitions, which takes seconds."""
        self._idle_s = idle_s
        self._is_idle = is_idle
        self._now = now
        self._since = now()
        self.wait_s = WAIT_SECONDS if idle_s is None else min(idle_s, WAIT_SECONDS)

    def on_message(self) -> None:
        self._since = self._now()

    def is_over(self) -> bool:
        """Record an empty poll; return True if the idle limit is reached."""
        if not self._is_idle():
            self._since = self._now()
            return False
        return self._idle_s is not None and self._now() - self._since >= self._idle_s
