"""A transaction whose rows are written, which any holder of this object may end: in any process, and repeatedly.

All rows are written, none is visible. A job can have many workers write, each in its own transaction, and commit them
all when every worker is done. If the committing process dies half-way, the next one commits them all again: those
already committed are unchanged, and `Ended.was_before` says so.

Commit or abort it before the next transaction of the same transactional id begins.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from respool.client.kafka.bootstrap import LASTING_CONTACT_MS
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    TransactionError,
    TransactionFenced,
    TransactionLost,
    Untrusted,
)
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.kafka.transactions import TransactionOutcome, end_transaction, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A transaction has ended as requested."""

    is_commit: bool
    # It had already ended the same way before this call.
    was_before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """Small, immutable, with plain fields: pickle it, or send its `to_json`."""

    transactional_id: str
    producer_id: int
    epoch: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PreparedTransaction":
        """
        Raises:
            BadArgument: the text was not written by `to_json`.
        """
        try:
            fields: Any = json.loads(text)
            made = cls(
                transactional_id=str(fields["transactional_id"]),
                producer_id=int(fields["producer_id"]),
                epoch=int(fields["epoch"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadArgument(f"no prepared transaction: {text[:100]!r}") from error
        return made

    def commit(
        self,
        bootstrap: str | None = None,
        *,
        retry_ms: int = RETRY_MS,
        security: Security = IN_THE_CLEAR,
    ) -> Ended:
        """Make the transaction visible. May be repeated.

        Raises:
            TransactionLost: it was aborted, perhaps because it exceeded its timeout.
            TransactionFenced: the transactional id has been used again since, so the outcome is unknown.
            TransactionUncertain: no answer came within `retry_ms`; try again.
            TlsRefused, LoginRefused: no request was sent; try again with valid credentials.
        """
        return self._end(bootstrap, retry_ms, security, is_commit=True)

    def abort(
        self,
        bootstrap: str | None = None,
        *,
        retry_ms: int = RETRY_MS,
        security: Security = IN_THE_CLEAR,
    ) -> Ended:
        """Abort the transaction. May be repeated.

        Raises:
            TransactionLost: it was committed.
            TransactionFenced, TransactionUncertain, TlsRefused, LoginRefused: as for `commit`.
        """
        return self._end(bootstrap, retry_ms, security, is_commit=False)

    def _end(
        self, bootstrap: str | None, retry_ms: int, security: Security, *, is_commit: bool
    ) -> Ended:
        with Cluster(
            bootstrap, retry_ms=retry_ms, first_contact_ms=LASTING_CONTACT_MS, security=security
        ) as cluster:
            coordinator = Coordinator(cluster, self.transactional_id, is_transaction=True)
            try:
                found, _ = outcome_of(coordinator, self)
            except BrokerUnreachable as error:
                raise uncertain(self, error) from error
            if found is TransactionOutcome.OPEN:
                try:
                    end_transaction(coordinator, self, is_commit=is_commit)
                except (BrokerUnreachable, Untrusted) as error:
                    raise uncertain(self, error) from error
                return Ended(is_commit=is_commit, was_before=False)
        if found is TransactionOutcome.UNKNOWN:
            raise TransactionFenced(
                f"{self.transactional_id} has been used again since epoch {self.epoch}; "
                "what became of this transaction is not known any more"
            )
        if is_commit != (found is TransactionOutcome.COMMITTED):
            raise TransactionLost(
                f"{self.transactional_id} epoch {self.epoch} was {found.value} before, "
                f"so it cannot be {'committed' if is_commit else 'aborted'}"
            )
        return Ended(is_commit=is_commit, was_before=True)


class TransactionUncertain(TransactionError):
    """It is unknown whether the transaction has ended. `transaction` can repeat the commit or abort in any process."""

    def __init__(self, message: str, transaction: PreparedTransaction) -> None:
        super().__init__(message)
        self.transaction = transaction


def uncertain(transaction: PreparedTransaction, error: ClientError) -> TransactionUncertain:
    return TransactionUncertain(
        f"{transaction.transactional_id}: no answer came: {error}", transaction
    )
