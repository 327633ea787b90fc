"""What requests to brokers can end with. One class each, with the numbers inside; all are `ClientError`.

Two kinds, by who can do something about it:

- the caller: `BadArgument`, `TlsRefused`, `LoginRefused`, `UnknownTopic`, `UnknownPartition`;
- nobody, but it may pass: `BrokerUnreachable`, `NoBroker`, `ConnectionLost`. They come after the client has retried for
  `retry_ms`.
"""

from collections.abc import Sequence
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.model.errors import RespoolError


class ClientError(RespoolError):
    """Everything the columnar client raises on purpose. It can be sent to other processes, numbers and all."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class BadArgument(ClientError, ValueError):
    """An argument cannot be; the message says what would be right."""


class ClientClosed(ClientError):
    """It was closed, maybe by another thread, so there is nothing more to be had from it."""


# -- the way to the brokers --------------------------------------------------------------------------------------------


class BrokerUnreachable(ClientError):
    """No connection could be made, or no broker that is known answers."""


class NoBroker(BrokerUnreachable):
    """Nobody listens at the bootstrap address, and no broker has ever answered. `what` is that, without the hint."""

    def __init__(self, bootstrap: Bootstrap, reasons: Sequence[str]) -> None:
        self.what = bootstrap.no_broker(reasons)
        super().__init__(f"{self.what}; {bootstrap.hint}")


class ConnectionLost(BrokerUnreachable):
    """A connection ended, or was silent for too long, before its reply came; what became of the request is unknown."""


class ProtocolBroken(ConnectionLost):
    """What came is no reply to what was asked; the connection was closed."""


class Untrusted(ClientError):
    """There is no trust between this client and a broker."""


class TlsRefused(Untrusted):
    """The broker's certificate is not to be trusted, or it and this client have no way of TLS in common."""


class LoginRefused(Untrusted):
    """The broker does not take the login, or could not prove that it is the one it should be."""


class VersionUnsupported(ClientError):
    """The broker does not speak a version of a request that this client does."""


class BrokerRefused(ClientError):
    """A broker answered with an error. `message` is what it said beside the code."""

    def __init__(
        self, doing: str, code: int, name: str, *, retriable: bool, message: str = ""
    ) -> None:
        told = f": {message}" if message else ""
        super().__init__(f"{doing} failed: {name} ({code}){told}")
        self.code = code
        # As Kafka spells it: NOT_LEADER_OR_FOLLOWER.
        self.name = name
        self.retriable = retriable
        self.message = message


class UnknownTopic(ClientError):
    """There is no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic!r}: create it, or ask which there are with `respool topic list`"
        )
        self.topic = topic


class UnknownPartition(ClientError):
    """The topic has no such partition."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}; it has {count}: 0 to {count - 1}"
        )
        self.topic = topic
        self.partition = partition


class TransactionError(ClientError):
    """A transaction cannot go on."""


class TransactionFenced(TransactionError):
    """Another producer has taken the transactional id over, or the transaction took too long and was aborted."""


class TransactionLost(TransactionError):
    """It has ended already, and not as asked for."""


def _restore(
    kind: type[ClientError], arguments: tuple[Any, ...], fields: dict[str, Any]
) -> ClientError:
    """Its own `__init__` makes the message, which is there already."""
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(fields)
    return error
