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

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from respool.client.messages.errors import ClientError, NoTransaction, TransactionAborted
from respool.client.messages.group_reader import GroupReader
from respool.client.messages.library import KafkaException, TopicPartition, log
from respool.client.messages.message import Message
from respool.client.messages.producer import Producer
from respool.client.messages.producer_transaction import LibraryTransactions, abort_after

# After this many consecutive failures the error is not considered transient.
_ATTEMPTS_MAX = 5


class ConsumedTransaction:
    """A batch of messages and the transaction in which they are handled. Enter it once."""

    def __init__(
        self, reader: GroupReader, producer: Producer, messages: Sequence[Message]
    ) -> None:
        self.messages = tuple(messages)
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
        if error is None:
            try:
                self._commit()
            except TransactionAborted as aborted:
                self._rewind(aborted)
            return True
        abort_after(self._transactions, error)
        if isinstance(error, TransactionAborted):
            self._rewind(error)
            return True
        try:
            self._reader.go_back(self.messages)
        except (ClientError, KafkaException) as also:
            error.add_note(f"and when the consumer went back: {also}")
        return False

    @property
    def _transactions(self) -> LibraryTransactions:
        return self._producer.require_transactions()

    def _commit(self) -> None:
        ends = {one.place: one.offset + 1 for one in self.messages}
        self._transactions.commit(
            [TopicPartition(*place, offset) for place, offset in ends.items()],
            self._reader.kafka.consumer_group_metadata(),
        )
        self.is_committed = True

    def _rewind(self, aborted: TransactionAborted) -> None:
        log.warning("%d messages are redelivered: %s", len(self.messages), aborted)
        self.aborted_by = aborted
        self._reader.go_back(self.messages)


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
        if transaction.aborted_by is None:
            self._in_vain = 0
            return
        self._in_vain += 1
        if self._in_vain >= _ATTEMPTS_MAX:
            raise transaction.aborted_by


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
