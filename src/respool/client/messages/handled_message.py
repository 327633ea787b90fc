"""One message while it is handled, and what becomes of it if that fails: behind `handling` and `retry` of consumers."""

from collections.abc import Callable

from respool.client.messages.consumed_transaction import ConsumedTransaction
from respool.client.messages.errors import BadArgument, NoTransaction
from respool.client.messages.message import Message
from respool.client.messages.retry.failed_message import Raise
from respool.client.messages.retry.group_retries import GroupRetries

# Sends the message on. If it cannot wait and the buffer is full, it raises BufferFull.
SendOn = Callable[[bool], None]


class HandledMessage:
    def __init__(
        self,
        retries: GroupRetries | None,
        transaction: ConsumedTransaction | None,
        message: Message,
        *,
        is_transactional: bool,
    ) -> None:
        """
        Raises:
            BadArgument: the consumer has no `retry=`.
            NoTransaction: exactly once, outside of the transaction that has this message.
        """
        if retries is None:
            raise BadArgument(
                "this consumer does not retry: give it retry=respool.Retry(delays=('10s', '1m', '10m'))"
            )
        if is_transactional and (transaction is None or not transaction.has(message)):
            raise NoTransaction(
                "exactly once, a message is handled, and sent again if that fails, inside `with transaction:`"
            )
        self._retries = retries
        self._transaction = transaction if is_transactional else None
        self._message = message
        self._sent_before = None if self._transaction is None else self._transaction.sent_count

    def failed(self, error: BaseException, *, is_own_work: bool) -> SendOn | None:
        """Decide what becomes of it; return what sends it on, or None if the error is to be raised.

        Args:
            is_own_work: everything that was sent in the transaction since this object was made was sent by the handler
                of this message, so that it must not be committed.

        Raises:
            TransactionAborted: the transaction is to be repeated without this message.
        """
        decision = self._retries.decide(self._message, error)
        if isinstance(decision, Raise):
            return None
        transaction = self._transaction
        if transaction is None:
            sender = self._retries.sender
            assert sender is not None
            return lambda can_wait: sender.send(self._message, decision, can_wait=can_wait)
        if is_own_work and transaction.sent_count != self._sent_before:
            transaction.abort_without(self._message, decision, error)
        return lambda can_wait: transaction.send_on(self._message, decision, can_wait=can_wait)
