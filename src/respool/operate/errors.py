"""Failures of operations on a cluster, and the translation of client errors into them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from respool.client.kafka import errors as client_errors
from respool.client.kafka.codes import Code
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError

_LEADERLESS = (Code.not_leader_or_follower, Code.leader_not_available)


class TopicExists(OperatorError):
    """A topic of this name exists already."""


class PartitionOffline(OperatorError):
    """The partition has no leader, although the broker answers.

    `absent` are the partition's replicas whose brokers are not in the metadata.
    """

    def __init__(self, topic: str, partition: int, *, absent: Sequence[int] = ()) -> None:
        where = f"partition {partition} of {topic} is offline: it has no leader"
        if not absent:
            super().__init__(
                where,
                hint="the broker's log says why; what is damaged in its folder is shown by: respool log verify DATA",
            )
            return
        named = ", ".join(map(str, absent))
        super().__init__(
            f"{where}; replicas on absent brokers: {named}",
            hint="it is back when they are; their state is shown by: respool cluster status "
            "--etcd HOST:PORT",
        )


class NobodyLeads(OperatorError):
    """The broker no longer leads the partition, and no other leader is known."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the partition has no leader: {reason}",
            hint="in a cluster this may be temporary, during a failover: try again. If it persists, "
            "the brokers may have lost etcd; see: respool cluster status --etcd HOST:PORT",
        )


@contextmanager
def client_errors_translated() -> Iterator[None]:
    """
    Raises:
        OperatorError: the translated client error.
    """
    try:
        yield
    except client_errors.ClientError as error:
        raise operator_error_of(error) from error


def operator_error_of(error: client_errors.ClientError) -> OperatorError:
    found: OperatorError
    match error:
        case client_errors.NoBroker():
            found = Unreachable(error.what, hint=str(error).removeprefix(f"{error.what}; "))
        case client_errors.NoLeader():
            found = NobodyLeads(str(error))
        case client_errors.BrokerUnreachable():
            found = Unreachable(str(error))
        case client_errors.UnknownTopic():
            found = NotFound(f"there is no topic {error.topic!r}", hint="see: respool topic list")
        case client_errors.UnknownPartition():
            found = NotFound(str(error))
        case client_errors.BadArgument():
            found = UsageError(str(error))
        case client_errors.BrokerRefused():
            found = _refusal(error)
        case _:
            found = OperatorError(str(error))
    return found


def _refusal(error: client_errors.BrokerRefused) -> OperatorError:
    text = f"{error.message} ({error.name})" if error.message else str(error)
    match error.code:
        case Code.unknown_topic_or_partition:
            return NotFound(text, hint="see: respool topic list")
        case Code.topic_already_exists:
            return TopicExists(text)
        case Code.invalid_config | Code.invalid_topic_exception | Code.invalid_partitions:
            return UsageError(text)
        case code if code in _LEADERLESS:
            return NobodyLeads(text)
        case _:
            return OperatorError(text)
