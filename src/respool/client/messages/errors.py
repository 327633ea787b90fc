"""Errors of producers and consumers. All are `ClientError`.

A message says what happened, why, and what to do. The cause of an error from librdkafka is a `KafkaException`
(`error.__cause__.args[0]` is the `KafkaError`).

- errors of the caller: `BadArgument`, `UnknownTopic`, `UnknownPartition`, `OutsideRetention`, `OffsetBeyondEnd`,
  `NoTransaction`, `SettingContradicts`, `UsedByTwoThreads`, `ClientClosed`, `MessagesNeedExtra`;
- transient errors: `BrokerUnreachable`, `NoBroker`, `CommitFailed`, `TransactionAborted`;
- sent messages may be lost: `DeliveryFailed`, and `TransactionUnsure`, which a restart resolves;
- another instance has taken over: `Fenced`;
- retries: `RetryTopicMissing`, `RetryRefused`, `ForeignRetry`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    NoBroker,
    UnknownPartition,
    UnknownTopic,
)
from respool.client.kafka.reading.read_errors import OffsetBeyondEnd, OutsideRetention
from respool.model.extras import how_to_install
from respool.model.retry.group_topics import retry_topic

__all__ = [
    "BadArgument",
    "BrokerUnreachable",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "DeliveryFailed",
    "Fenced",
    "ForeignRetry",
    "MessagesNeedExtra",
    "NoBroker",
    "NoTransaction",
    "OffsetBeyondEnd",
    "OutsideRetention",
    "ReceiveFailed",
    "RetryRefused",
    "RetryTopicMissing",
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
            f"messages need confluent-kafka, which is not installed: {how_to_install('client')}",
            name=cause.name,
        )


class SettingContradicts(BadArgument):
    """A raw setting would break the guarantee of `delivery`, or duplicates an argument."""


class UsedByTwoThreads(ClientError):
    """A consumer was called by two threads at once."""


# -- sending -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """One message that was not acknowledged, and why. Its value is omitted to save memory."""

    topic: str
    partition: int | None
    key: bytes | None
    reason: str


class DeliveryFailed(ClientError):
    """Sent messages were not acknowledged. `failures` lists the first of them, `count` is their number."""

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
    """The broker or librdkafka reports that reading cannot continue."""


class CommitFailed(ClientError):
    """The group's offsets were not committed; messages since the last commit will be read again."""


# -- transactions ------------------------------------------------------------------------------------------------------


class NoTransaction(ClientError):
    """A transaction is required here, or one is open already."""


class TransactionAborted(ClientError):
    """Nothing of this transaction was committed. Retrying it from its first message may succeed."""


class TransactionUnsure(ClientError):
    """The commit was not answered, so the transaction is either committed or aborted; the next start resolves it."""


class Fenced(ClientError):
    """Another instance has taken over. The open transaction is aborted; close this instance."""


# -- retries -----------------------------------------------------------------------------------------------------------


class RetryTopicMissing(ClientError):
    """The group has no retry topic or no topic of dead letters, and the consumer could not create it; or it cannot be
    used as one."""


class RetryRefused(ClientError):
    """A message whose handling failed was not written to the retry topic or the dead letters. It is read again."""


class ForeignRetry(ClientError):
    """The retry topic has a message of a topic that this consumer does not read. It is left where it is."""

    def __init__(self, *, origin: str, group: str, partition: int, offset: int) -> None:
        topic = retry_topic(group)
        super().__init__(
            f"{topic}/{partition} has at offset {offset} a message of topic {origin!r}, which this consumer does not"
            f" read. All members of group {group!r} handle each other's retries: if two applications use this group id,"
            f" give each its own; if {origin!r} was read until now, read it until its retries are handled. To skip the"
            f" message: consumer.rewind({{({topic!r}, {partition}): {offset + 1}}})"
        )
        self.origin = origin
        self.partition = partition
        self.offset = offset
