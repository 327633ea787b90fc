"""A producer's transactions, with or without a consumer's offsets.

librdkafka has three kinds of errors: retriable, abortable, fatal. Here they become a retry, `TransactionAborted`, and
`Fenced` or `ClientError`. An unanswered commit is a fourth kind: `TransactionUnsure`.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library
from respool.client.messages.errors import (
    ClientError,
    NoTransaction,
    TransactionAborted,
    TransactionUnsure,
)
from respool.client.messages.failures import Failures
from respool.client.messages.library import KafkaException

# Maximum wait of one call, so that Ctrl-C is noticed in between.
_CALL_SECONDS = 5.0
# The coordinator's first reply may take a while: it aborts the transaction of an earlier instance.
_TAKE_PLACE_SECONDS = 60.0


class LibraryTransactions:
    """The transactions of one producer, one after the other."""

    def __init__(self, kafka: Any, *, timeout_s: float) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self.is_open = False
        # Set once: a fatal error, or an unknown outcome.
        self._ended_by: ClientError | None = None

    def take_place(self, bootstrap: Bootstrap) -> None:
        """Initialize the transactional id: fences an earlier producer and aborts its open transaction."""
        library.check_reachable(bootstrap)
        try:
            self._insist(self._kafka.init_transactions, seconds=_TAKE_PLACE_SECONDS)
        except KafkaException as error:
            kafka_error = error.args[0]
            if library.is_fencing(kafka_error):
                raise library.fenced("a producer cannot take its place", error) from error
            if kafka_error.code() in library.PASSING:
                raise library.unreachable(bootstrap.servers, _TAKE_PLACE_SECONDS, error) from error
            raise ClientError(
                f"the transactional producer cannot start: {library.reason(error)}"
            ) from error

    def begin(self) -> None:
        self._check_usable()
        if self.is_open:
            raise NoTransaction("a transaction is open already; a producer has one at a time")
        try:
            self._kafka.begin_transaction()
        except KafkaException as error:
            raise self._ended("a transaction cannot begin", error) from error
        self.is_open = True

    def commit(self, offsets: list[Any] | None = None, group: Any = None) -> None:
        """Commit the transaction, together with the group's `offsets`.

        Raises:
            TransactionAborted: nothing was committed.
            TransactionUnsure: no reply came.
            Fenced: another instance uses the transactional id.
        """
        self._check_usable()
        doing = "a transaction cannot be committed"
        try:
            # This also serves the delivery callbacks.
            self._kafka.flush(self._timeout_s)
            if offsets:
                self._insist(
                    lambda wait_s: self._kafka.send_offsets_to_transaction(offsets, group, wait_s)
                )
        except KafkaException as error:
            raise self._undo(doing, error) from error
        try:
            self._insist(self._kafka.commit_transaction)
        except KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.retriable() and not kafka_error.txn_requires_abort():
                self.is_open = False
                self._ended_by = TransactionUnsure(
                    f"no answer to a commit within {self._timeout_s:g} s: {library.reason(error)}. All of it counts or"
                    " nothing does. Start again with the same transactional_id: that resolves it, and what the group"
                    " has committed tells which it was"
                )
                raise self._ended_by from error
            raise self._undo(doing, error) from error
        self.is_open = False

    def abort(self) -> None:
        """Abort the open transaction.

        Raises:
            Fenced, ClientError: nothing is committed, but this producer cannot be used again.
        """
        if not self.is_open or self._ended_by is not None:
            self.is_open = False
            return
        try:
            self._insist(self._kafka.abort_transaction)
        except KafkaException as error:
            raise self._ended("a transaction cannot be aborted", error) from error
        finally:
            self.is_open = False
        # Serve the callbacks of purged messages now, not in the next transaction.
        self._kafka.poll(0)

    def close(self) -> None:
        """Abort an open transaction, so that consumers do not wait; if that fails, its timeout aborts it."""
        try:
            self.abort()
        except ClientError as error:
            library.log.warning("%s", error)

    def aborted(self, doing: str, error: Any) -> ClientError:
        """The error for a transaction that failed and is not aborted yet."""
        if library.is_fencing(error.args[0]):
            return library.fenced(doing, error)
        return TransactionAborted(
            f"{doing}: {library.reason(error)}. Nothing of it counts; do it again from its first message on"
        )

    def _undo(self, doing: str, error: Any) -> ClientError:
        """Abort if possible, and return the error to raise."""
        if error.args[0].fatal():
            self.is_open = False
            return self._ended(doing, error)
        # Even if the consumer was fenced: an open transaction would delay consumers.
        try:
            self.abort()
        except ClientError as worse:
            return worse
        return self.aborted(doing, error)

    def _ended(self, doing: str, error: Any) -> ClientError:
        if library.is_fencing(error.args[0]):
            self._ended_by = library.fenced(doing, error)
        else:
            self._ended_by = ClientError(
                f"{doing}: {library.reason(error)}. This producer can do no more: start again with the same"
                " transactional_id, which aborts what is open"
            )
        return self._ended_by

    def _check_usable(self) -> None:
        if self._ended_by is not None:
            raise type(self._ended_by)(*self._ended_by.args)

    def _insist(self, act: Callable[[float], None], *, seconds: float | None = None) -> None:
        """Retry retriable errors until the transaction would time out."""
        deadline = time.monotonic() + (self._timeout_s if seconds is None else seconds)
        while True:
            try:
                return act(_CALL_SECONDS)
            except KafkaException as error:
                reason = error.args[0]
                if not reason.retriable() or reason.fatal() or time.monotonic() > deadline:
                    raise


class Transaction:
    """Use it as `with producer.transaction():`."""

    def __init__(self, transactions: LibraryTransactions, failures: Failures) -> None:
        self._transactions = transactions
        self._failures = failures

    def __enter__(self) -> Self:
        self._failures.forget()
        self._transactions.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._transactions.commit()
        else:
            abort_after(self._transactions, error)


def abort_after(transactions: LibraryTransactions, error: BaseException) -> None:
    """Abort after an exception of the caller, which takes precedence over an error of the abort."""
    try:
        transactions.abort()
    except ClientError as also:
        error.add_note(f"and when the transaction was aborted: {also}")
