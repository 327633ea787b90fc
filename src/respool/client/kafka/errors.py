"""The errors that requests to brokers raise. One class each, with its data as fields; all are `ClientError`.

Two kinds, by who can act on them:

- the caller: `BadArgument`, `TlsRefused`, `LoginRefused`, `UnknownTopic`, `UnknownPartition`;
- no one, but it may be transient: `BrokerUnreachable`, `NoBroker`, `NoLeader`, `ConnectionLost`. They are raised after
  retries for `retry_ms`.
"""

from collections.abc import Sequence
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.model.errors import RespoolError


class ClientError(RespoolError):
    """Base class of all errors that the client raises on purpose. It can be pickled, with all fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class BadArgument(ClientError, ValueError):
    """An argument is invalid; the message says what would be valid."""


class ClientClosed(ClientError):
    """The client was closed, possibly by another thread, so it cannot be used any more."""


# -- reaching the brokers ----------------------------------------------------------------------------------------------


class BrokerUnreachable(ClientError):
    """No connection could be made, or no known broker answers."""


class NoBroker(BrokerUnreachable):
    """Nothing listens at the bootstrap address, and no broker ever answered. `what` is the message without the hint."""

    def __init__(self, bootstrap: Bootstrap, reasons: Sequence[str]) -> None:
        self.what = bootstrap.no_broker(reasons)
        super().__init__(f"{self.what}; {bootstrap.hint}")


class ConnectionLost(BrokerUnreachable):
    """A connection ended or timed out before its reply came; it is unknown whether the request was carried out."""


class NobodyAnswers(BrokerUnreachable):
    """None of several addresses answered a request. `failures` has an error for each of them."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], failures: Sequence[BrokerUnreachable]
    ) -> None:
        named = ", ".join(f"{host}:{port}" for host, port in addresses)
        super().__init__(f"no broker answers at {named}; the last error: {failures[-1]}")
        self.failures = tuple(failures)


def nobody_listens(error: BrokerUnreachable) -> bool:
    """Whether no connection was made, as opposed to one that was lost or led to something other than a broker."""
    return isinstance(error.__cause__, OSError) and not isinstance(error, ConnectionLost)


class NoReply(ConnectionLost):
    """The broker accepted the connection, and did not answer in time."""

    def __init__(self, message: str, *, address: str, waited_s: float) -> None:
        super().__init__(message)
        self.address = address
        self.waited_s = waited_s


class NoLeader(BrokerUnreachable):
    """A partition has no leader, by the metadata of the brokers that answer."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"{topic}/{partition} has no leader")


class ProtocolBroken(ConnectionLost):
    """The broker sent something other than a valid reply to the request; the connection was closed."""


class Untrusted(ClientError):
    """TLS or the login failed."""


class TlsRefused(Untrusted):
    """The broker's certificate is not trusted, or it and this client have no TLS version or cipher in common."""


class LoginRefused(Untrusted):
    """The broker rejected the login, or could not prove its own identity."""


class VersionUnsupported(ClientError):
    """The broker supports none of this client's versions of a request."""


class BrokerRefused(ClientError):
    """A broker answered with an error. `message` is the broker's text, if any."""

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
    """The topic does not exist."""

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
    """A transaction cannot continue."""


class TransactionFenced(TransactionError):
    """Another producer took over the transactional id, or the transaction timed out and was aborted."""


class TransactionLost(TransactionError):
    """The transaction has already ended, with another outcome than the one requested."""


def _restore(
    kind: type[ClientError], arguments: tuple[Any, ...], fields: dict[str, Any]
) -> ClientError:
    """Restore without `__init__`, which would build the message again."""
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class BufferFull(ClientError):
    """A producer's buffer is full; a call that may wait raises it after the delivery timeout.

    What was written before is still being sent.
    """
