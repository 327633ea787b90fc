"""How a replay can fail. All errors are `ReplayError`, whose `hint` says what to do about it.

The command line derives the exit code from the second base class.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from respool.client.kafka import errors as client_errors
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError


class ReplayError(OperatorError):
    """Every expected failure of a replay."""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ReplayFailed(ReplayError):
    """The replay cannot continue; the message says why. Its position is not lost."""


class InvalidReplay(ReplayError, UsageError, ValueError):
    """Arguments contradict each other, or a value is invalid."""


class ReplayNotFound(ReplayError, NotFound):
    """The named topic or replay does not exist."""


class ReplayUnreachable(ReplayError, Unreachable):
    """No broker answers, or the broker stopped answering for too long."""


class LeaderMissing(ReplayError):
    """A partition has no leader. `absent` are its replicas' brokers that are not in the cluster's metadata."""

    def __init__(self, topic: str, partition: int, *, absent: Sequence[int] = ()) -> None:
        message = f"partition {partition} of {topic} is offline: it has no leader"
        if not absent:
            super().__init__(
                message,
                hint="the broker's log says why; damage in its data folder is shown by: respool log verify DATA",
            )
            return
        super().__init__(
            f"{message}; brokers that have a replica and are absent: {', '.join(map(str, absent))}",
            hint="it is back when they are; their state is shown by: respool cluster status --etcd HOST:PORT",
        )


class GroupTaken(ReplayError):
    """The group has members, or offsets that this replay did not set."""


class CopiedAlready(ReplayError):
    """A finished replay of the same request has copied a part of the range."""


class PositionLost(Exception):
    """The target expects another sequence number: another run of this replay has written. Read its end again.

    Internal to this package.
    """


@contextmanager
def client_errors_translated() -> Iterator[None]:
    """
    Raises:
        ReplayUnreachable, ReplayNotFound, ReplayFailed: translated from the Kafka client's error.
    """
    try:
        yield
    except client_errors.BrokerUnreachable as error:
        raise ReplayUnreachable(str(error)) from error
    except client_errors.UnknownTopic as error:
        raise ReplayNotFound(str(error)) from error
    except client_errors.BadArgument as error:
        raise InvalidReplay(str(error)) from error
    except client_errors.ClientError as error:
        raise ReplayFailed(str(error)) from error
