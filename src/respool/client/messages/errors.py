"""What sending and receiving messages can end with. One class each; all are `ClientError`.

A message says what happened, why, and what to do. Where librdkafka said it first, its own error is the cause
(`error.__cause__.args[0]` is the `KafkaError`).

- the caller: `BadArgument`, `UnknownTopic`, `UnknownPartition`, `OutsideRetention`, `OffsetBeyondEnd`, `NoTransaction`,
  `SettingContradicts`, `UsedByTwoThreads`, `ClientClosed`, `MissingExtra`;
- nobody, but it may pass: `BrokerUnreachable`, `NoBroker`, `CommitFailed`, `TransactionAborted`;
- what was sent may be lost: `DeliveryFailed`, and `TransactionUnsure`, of which only a restart finds out;
- somebody else is at work in this one's place: `Fenced`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.client.arrow.errors import OffsetBeyondEnd, OutsideRetention
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    NoBroker,
    UnknownPartition,
    UnknownTopic,
)

__all__ = [
    "BadArgument",
    "BrokerUnreachable",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "DeliveryFailed",
    "Fenced",
    "MessagesNeedExtra",
    "NoBroker",
    "NoTransaction",
    "OffsetBeyondEnd",
    "OutsideRetention",
    "ReceiveFailed",
    "SettingContradicts",
    "TransactionAborted",
    "TransactionUnsure",
    "Undelivered",
    "UnknownPartition",
    "UnknownTopic",
    "UsedByTwoThreads",
]

SHOWN_MAX = 3


class MessagesNeedExtra(ClientError, ImportError):
    """confluent-kafka is not installed."""

    def __init__(self, cause: ImportError) -> None:
        super().__init__(
            "messages need confluent-kafka, which is not installed: pip install 'respool[client]'",
            name=cause.name,
        )


class SettingContradicts(BadArgument):
    """A raw setting would break what `delivery` promises, or belongs to an argument."""


class UsedByTwoThreads(ClientError):
    """A consumer was called while another thread was in a call of it."""


# -- sending -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """One message that was not confirmed, and why. Its value is not kept: there may be many."""

    topic: str
    partition: int | None
    key: bytes | None
    reason: str


class DeliveryFailed(ClientError):
    """Messages that were sent are not confirmed. `failures` are the first of them, `count` is how many there are."""

    def __init__(self, failures: Sequence[Undelivered], count: int, *, hint: str = "") -> None:
        shown = "; ".join(
            f"{one.topic}/{'?' if one.partition is None else one.partition} key {one.key!r}: {one.reason}"
            for one in failures[:SHOWN_MAX]
        )
        more = f" (the first {SHOWN_MAX})" if count > SHOWN_MAX else ""
        super().__init__(
            f"{count} message{'s' * (count != 1)} not confirmed{more}: {shown}."
            f" {hint or 'One that timed out may still be in the log: send again only what may be there twice.'}"
        )
        self.failures = tuple(failures)
        self.count = count


# -- receiving ---------------------------------------------------------------------------------------------------------


class ReceiveFailed(ClientError):
    """The broker, or the library, says that it cannot go on reading."""


class CommitFailed(ClientError):
    """The group's place was not written down; the messages since the last commit will come again."""


# -- transactions ------------------------------------------------------------------------------------------------------


class NoTransaction(ClientError):
    """Exactly once needs a transaction here, or one is open already where another was asked for."""


class TransactionAborted(ClientError):
    """Nothing of this transaction counts. Done again from its first message on, it may succeed."""


class TransactionUnsure(ClientError):
    """No answer came to the commit. All of the transaction counts or nothing does; the next start finds out."""


class Fenced(ClientError):
    """Another one has taken this one's place. Nothing of what was open counts; end this one."""
