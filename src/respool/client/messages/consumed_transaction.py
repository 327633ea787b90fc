"""Consume, transform, produce, exactly once: output and consumed offsets are committed together.

    for transaction in consumer.transactions(producer):
        with transaction:
            for message in transaction:
                producer.send(...)

It commits at the end of the `with`. If the cluster prevents that (a leader or coordinator moved, the group rebalanced),
it aborts, seeks back to the first of its messages, and the loop returns them again. An exception of the caller also
aborts and seeks back, and propagates.

Why processing is exactly once despite any crash:

1. The offsets are part of the transaction, so that output and offsets are committed together or not at all.
2. Before the first read the producer has initialized its transactional id: an earlier instance is fenced, and its open
   transaction aborted.
3. The offsets carry the group generation: a member that lost its partitions without noticing is refused.
4. Reading is read_committed, and committed offsets are fetched only when no open transaction can still change them.
"""

import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Never, Self

from respool.client.messages import library
from respool.client.messages.errors import ClientError, NoTransaction, TransactionAborted
from respool.client.messages.group_reader import GroupReader
from respool.client.messages.library import KafkaException, TopicPartition, log
from respool.client.messages.message import Message, Place
from respool.client.messages.producer import Producer
from respool.client.messages.producer_transaction import LibraryTransactions, abort_after
from respool.client.messages.retry.failed_message import Bury
from respool.client.messages.retry.group_retries import Aside
from respool.client.messages.retry.retry_sender import outgoing

# After this many consecutive failures the error is not considered transient.
_ATTEMPTS_MAX = 5


class ConsumedTransaction:
    """A batch of messages and the transaction in which they are handled. Enter it once."""

    def __init__(
        self, reader: GroupReader, producer: Producer, messages: Sequence[Message]
    ) -> None:
        self._read = tuple(messages)
        # Messages that are only sent on, to the retry topic or the dead letters.
        self._aside = reader.retries.aside_of(messages) if reader.retries is not None else []
        aside = {_key(one) for one, _ in self._aside}
        self.messages = tuple(one for one in messages if _key(one) not in aside)
        self._keys = {_key(one) for one in self.messages} if reader.retries is not None else set()
        self._sent_on: list[tuple[Message, Aside]] = []
        if reader.retries is not None:
            reader.retries.limit_size(producer.message_bytes_max)
        # True if it was aborted to be repeated with fewer messages.
        self.is_narrowed = False
        # Set at the end: True if the transaction was committed.
        self.is_committed = False
        # Why it was aborted, if the cluster was the cause.
        self.aborted_by: TransactionAborted | None = None
        self.was_entered = False
        self._reader = reader
        self._producer = producer

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __enter__(self) -> Self:
        if self.was_entered:
            raise NoTransaction("this transaction is over; take the loop's next one")
        self._transactions.begin()
        self.was_entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        failed = self._send_aside() if error is None else error
        if failed is None:
            try:
                self._commit()
            except TransactionAborted as aborted:
                self._rewind(aborted)
            return True
        abort_after(self._transactions, failed)
        if isinstance(failed, TransactionAborted):
            self._rewind(failed)
            return True
        try:
            self._reader.go_back(self._read)
        except (ClientError, KafkaException) as also:
            failed.add_note(f"and when the consumer went back: {also}")
        if error is None:
            raise failed
        return False

    @property
    def _transactions(self) -> LibraryTransactions:
        return self._producer.require_transactions()

    # -- messages that failed

    def has(self, message: Message) -> bool:
        """True while the transaction is open, if it has this message."""
        return self._transactions.is_open and _key(message) in self._keys

    @property
    def sent_count(self) -> int:
        return self._producer.sent_count

    def send_on(self, message: Message, decision: Aside, *, can_wait: bool = True) -> None:
        """Send a failed message to the retry topic or the dead letters, in this transaction.

        Raises:
            BufferFull: the buffer is full, and this call cannot wait.
        """
        retries = self._reader.retries
        assert retries is not None
        put = self._producer.put_patiently if can_wait else self._producer.put
        put(
            outgoing(decision, retries.rules, retries.topics.partitions),
            lambda error, _: self._on_sent_on(message, decision, error),
        )
        self._sent_on.append((message, decision))

    def abort_without(self, message: Message, decision: Aside, error: BaseException) -> Never:
        """
        Raises:
            TransactionAborted: the loop repeats the transaction, and only sends this message on.
        """
        assert self._reader.retries is not None
        self._reader.retries.set_aside(message, decision)
        self.is_narrowed = True
        raise TransactionAborted(
            f"the handling of {message.topic}/{message.partition} offset {message.offset} failed after it had sent"
            " messages. Nothing of the transaction is committed; it is repeated without this message"
        ) from error

    def _send_aside(self) -> ClientError | None:
        try:
            for message, decision in self._aside:
                self.send_on(message, decision)
        except ClientError as error:
            return error
        return None

    def _on_sent_on(self, message: Message, decision: Aside, error: Any) -> None:
        """The commit reports other errors."""
        retries = self._reader.retries
        assert retries is not None
        if error is not None and error.code() in library.TOO_LARGE:
            smaller = retries.rules.bury_too_large(decision)
            if isinstance(smaller, Bury):
                retries.set_aside(message, smaller)
                self.is_narrowed = True

    def _commit(self) -> None:
        ends = {one.place: one.offset + 1 for one in self._read}
        self._transactions.commit(
            [TopicPartition(*place, offset) for place, offset in ends.items()],
            self._reader.kafka.consumer_group_metadata(),
        )
        self.is_committed = True
        if self._reader.retries is not None:
            self._reader.retries.on_committed(self._sent_on)

    def _rewind(self, aborted: TransactionAborted) -> None:
        level = logging.INFO if self.is_narrowed else logging.WARNING
        log.log(level, "%d messages are redelivered: %s", len(self._read), aborted)
        self.aborted_by = aborted
        self._reader.go_back(self._read)


class Attempts:
    """Counts consecutive failed transactions."""

    def __init__(self) -> None:
        self._in_vain = 0

    def on_over(self, transaction: ConsumedTransaction) -> None:
        """Raises TransactionAborted after too many failures, NoTransaction if the transaction was not used."""
        if not transaction.was_entered:
            raise NoTransaction(
                "these messages were not handled in their transaction: say `with transaction:` around it"
            )
        if transaction.aborted_by is None or transaction.is_narrowed:
            self._in_vain = 0
            return
        self._in_vain += 1
        if self._in_vain >= _ATTEMPTS_MAX:
            raise transaction.aborted_by


def _key(message: Message) -> tuple[Place, int]:
    return message.place, message.offset


def check_pair(producer: object, delivery: str) -> None:
    if delivery != "exactly-once":
        raise NoTransaction(
            f"this consumer is {delivery}: transactions need delivery='exactly-once' on both sides"
        )
    if not isinstance(producer, Producer):
        raise NoTransaction(
            f"transactions need an exactly-once producer, not {type(producer).__name__}"
        )
    producer.require_transactions()
