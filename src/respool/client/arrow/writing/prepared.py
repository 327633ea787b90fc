"""A transaction that was written, to be ended by whoever holds this: also in another process, also more than once.

All rows are in, none is visible. A job can have many workers write, each in a transaction of its own, and commit them
all when every worker is done. When whoever commits dies half-way, the next one commits them all again: those that are
committed stay so, and say so.

How one is known to have ended already, from what its coordinator says of the transactional id (`judge`):

| epoch there | state there                     | then it is                                               |
|-------------|---------------------------------|----------------------------------------------------------|
| the same    | ongoing, or empty               | open                                                     |
| the same    | prepare or complete commit      | committed (clusters without an epoch per transaction)    |
| one more    | prepare or complete commit      | committed                                                |
| the same or one more | prepare or complete abort | aborted                                                |
| any other, or another producer id |           | unknown: the id was used again since                     |

So commit or abort it before the next transaction of the same transactional id begins.
"""

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from respool.client.arrow.errors import (
    TransactionFenced,
    TransactionLost,
    TransactionUncertain,
)
from respool.client.kafka.bootstrap import LASTING_CONTACT_MS
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.codes import PRODUCER_FENCED, Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BadArgument,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    Untrusted,
)
from respool.client.kafka.partition_queue import Identity
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.kafka.versions import TRANSACTIONS_V1, TRANSACTIONS_V2
from respool.wire.api_table import Api


class Found(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A transaction has ended as asked for."""

    is_commit: bool
    # It had ended so before it was asked for this time.
    was_before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """Small, immutable, and made of plain values: pickle it, or send its `to_json`."""

    transactional_id: str
    producer_id: int
    epoch: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PreparedTransaction":
        """
        Raises:
            BadArgument: this is not what `to_json` wrote.
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
        """Make it visible. Doing it again is fine.

        Raises:
            TransactionLost: it was aborted, maybe because it took longer than its timeout.
            TransactionFenced: the transactional id was used again since; nobody knows any more what became of this.
            TransactionUncertain: no answer came within `retry_ms`; do it again.
            TlsRefused, LoginRefused: brokers were not even asked; do it again with what they trust.
        """
        return self._end(bootstrap, retry_ms, security, is_commit=True)

    def abort(
        self,
        bootstrap: str | None = None,
        *,
        retry_ms: int = RETRY_MS,
        security: Security = IN_THE_CLEAR,
    ) -> Ended:
        """Take it back. Doing it again is fine.

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
                found, _ = look_at(coordinator, self)
            except BrokerUnreachable as error:
                raise uncertain(self, error) from error
            if found is Found.OPEN:
                try:
                    end_transaction(coordinator, self, is_commit=is_commit)
                except (BrokerUnreachable, Untrusted) as error:
                    raise uncertain(self, error) from error
                return Ended(is_commit=is_commit, was_before=False)
        if found is Found.UNKNOWN:
            raise TransactionFenced(
                f"{self.transactional_id} has been used again since epoch {self.epoch}; "
                "what became of this transaction is not known any more"
            )
        if is_commit != (found is Found.COMMITTED):
            raise TransactionLost(
                f"{self.transactional_id} epoch {self.epoch} was {found.value} before, "
                f"so it cannot be {'committed' if is_commit else 'aborted'}"
            )
        return Ended(is_commit=is_commit, was_before=True)


def transaction_state(coordinator: Coordinator, name: str) -> Any:
    """What the coordinator says of it.

    Raises:
        BrokerRefused: with `Code.transactional_id_not_found`, nobody ever took the id.
    """
    reply = coordinator.ask(
        Api.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [name]},
        doing=f"the state of transaction {name}",
        code_of=lambda reply: reply.transaction_states[0].error_code,
    )
    (seen,) = reply.transaction_states
    return seen


def look_at(coordinator: Coordinator, transaction: PreparedTransaction) -> tuple[Found, Any]:
    """What became of it, and what the coordinator says of its id; None if that is unknown there."""
    try:
        seen = transaction_state(coordinator, transaction.transactional_id)
    except BrokerRefused as error:
        if error.code == Code.transactional_id_not_found:
            return Found.UNKNOWN, None
        raise
    there = Identity(int(seen.producer_id), int(seen.producer_epoch))
    return judge(transaction, there, str(seen.transaction_state)), seen


def judge(transaction: PreparedTransaction, there: Identity, state: str) -> Found:
    """What became of it, by the table above."""
    is_same = there == (transaction.producer_id, transaction.epoch)
    is_next = there == (transaction.producer_id, transaction.epoch + 1)
    if is_same and state in {"Ongoing", "Empty"}:
        return Found.OPEN
    if is_same or is_next:
        if state in {"PrepareCommit", "CompleteCommit"}:
            return Found.COMMITTED
        if state in {"PrepareAbort", "CompleteAbort"}:
            return Found.ABORTED
    return Found.UNKNOWN


def end_transaction(
    coordinator: Coordinator, transaction: PreparedTransaction, *, is_commit: bool
) -> Identity:
    """Commit or abort an open one; return who goes on writing under its name.

    Raises:
        TransactionFenced: another has its name.
        TransactionLost: it has ended otherwise.
        BrokerUnreachable, Untrusted: no answer came, or there was no trust any more to ask again.
    """
    has_epoch = coordinator.has_epoch_per_transaction()
    fields = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "committed": is_commit,
    }
    doing = f"{'committing' if is_commit else 'aborting'} {transaction.transactional_id}"
    try:
        reply = coordinator.ask(
            Api.END_TXN,
            fields,
            doing=doing,
            versions=(TRANSACTIONS_V2 if has_epoch else TRANSACTIONS_V1).end_txn,
        )
    except BrokerRefused as error:
        if error.code in PRODUCER_FENCED:
            raise TransactionFenced(
                f"{error}: another producer has the id, or the transaction took longer than its timeout"
            ) from error
        if error.code == Code.invalid_txn_state:
            raise TransactionLost(f"{error}: it has ended already, or was never begun") from error
        if error.retriable:
            # It was tried for as long as it may.
            raise BrokerUnreachable(str(error)) from error
        raise
    if has_epoch:
        return Identity(int(reply.producer_id), int(reply.producer_epoch))
    return Identity(transaction.producer_id, transaction.epoch)


def uncertain(transaction: PreparedTransaction, error: ClientError) -> TransactionUncertain:
    return TransactionUncertain(
        f"{transaction.transactional_id}: no answer came: {error}", transaction
    )
