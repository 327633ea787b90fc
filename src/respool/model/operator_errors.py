"""Failures of operations that an operator or user requests: the message says what happened, the hint what to do.

The packages behind the command line (operate, inspect, devcluster, replay, mirror) raise them; the command line prints
them and turns the class into an exit code.
"""

from respool.model.errors import RespoolError


class OperatorError(RespoolError):
    """An operation failed in an expected way."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        # What to do now; empty if there is nothing to add to the message.
        self.hint = hint


class UsageError(OperatorError):
    """Arguments contradict each other, or a value is invalid."""


class NotFound(OperatorError):
    """The named topic, partition, group, transaction, replay, broker or file does not exist."""


class Unreachable(OperatorError):
    """A server, such as a broker or etcd, does not answer."""


class EtcdUnreachable(Unreachable):
    """etcd does not answer."""
