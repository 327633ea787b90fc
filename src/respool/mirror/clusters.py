"""Connections to the two clusters of a mirror, and the Kafka client's errors in an operator's words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from respool.client.kafka import errors as client_errors
from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.records.mirrored_batches import MIRROR_CLIENT_ID

# Timeouts that may replace the mirror's own: arguments of `Cluster`.
TIMEOUTS = ("connect_timeout_ms", "request_timeout_ms", "retry_ms")
NO_TIMEOUTS: Mapping[str, int] = MappingProxyType({})


@contextmanager
def connected(
    source: str,
    target: str,
    *,
    from_security: Security = IN_THE_CLEAR,
    to_security: Security = IN_THE_CLEAR,
    from_timeouts: Mapping[str, int] = NO_TIMEOUTS,
    to_timeouts: Mapping[str, int] = NO_TIMEOUTS,
) -> Iterator[tuple[Cluster, Cluster]]:
    """Connect to source and target as `connect_both` does, and close both afterwards."""
    clusters = connect_both(
        source,
        target,
        from_security=from_security,
        to_security=to_security,
        from_timeouts=from_timeouts,
        to_timeouts=to_timeouts,
    )
    try:
        yield clusters
    finally:
        for cluster in clusters:
            cluster.close()


def connect_both(
    source: str,
    target: str,
    *,
    from_security: Security,
    to_security: Security,
    from_timeouts: Mapping[str, int] = NO_TIMEOUTS,
    to_timeouts: Mapping[str, int] = NO_TIMEOUTS,
) -> tuple[Cluster, Cluster]:
    """
    Raises:
        Unreachable: one does not answer.
        UsageError: an address is invalid, a timeout has another name, or they are the same cluster.
        OperatorError: TLS or the login failed.
    """
    # Other arguments, like the client id, are the mirror's own: brokers know it by them.
    _check_timeouts("from_timeouts", from_timeouts)
    _check_timeouts("to_timeouts", to_timeouts)
    first = connect("the source", source, from_security, from_timeouts)
    try:
        second = connect("the target", target, to_security, to_timeouts)
    except BaseException:
        first.close()
        raise
    if first.id is not None and first.id == second.id:
        first.close()
        second.close()
        raise UsageError(
            f"{source} and {target} are brokers of the same cluster, {first.id}",
            hint="a mirror is a copy in another cluster",
        )
    return first, second


def connect(
    name: str,
    bootstrap: str,
    security: Security,
    settings: Mapping[str, Any] = NO_TIMEOUTS,
) -> Cluster:
    """Connect to a cluster, which must answer. The caller closes the client.

    `settings` are arguments of `Cluster` that replace the defaults; for one that does not mirror, also the client id.
    """
    defaults: dict[str, Any] = {
        "client_id": MIRROR_CLIENT_ID,
        "connect_timeout_ms": 5_000,
        "request_timeout_ms": 10_000,
        "retry_ms": 10_000,
        # It has answered before, so an unreachable broker may only be restarting.
        "first_contact_ms": 10_000,
    }
    with as_operator_errors():
        # In messages: from source, from target.
        origin = Bootstrap(bootstrap, name.removeprefix("the "))
        cluster = Cluster(origin, security=security, **{**defaults, **settings})
    try:
        cluster.refresh_brokers()
    except client_errors.BrokerUnreachable as error:
        cluster.close()
        why = error.what if isinstance(error, client_errors.NoBroker) else f"{name}: {error}"
        raise Unreachable(why, hint=_REACH_HINT) from error
    except client_errors.ClientError as error:
        cluster.close()
        raise OperatorError(f"{name}: {error}") from error
    return cluster


def _check_timeouts(argument: str, timeouts: Mapping[str, int]) -> None:
    for name in timeouts:
        if name not in TIMEOUTS:
            raise UsageError(
                f"{argument} has {name!r}, which is not a timeout of a mirror",
                hint=f"it may have {', '.join(TIMEOUTS)}",
            )


@contextmanager
def as_operator_errors() -> Iterator[None]:
    """
    Raises:
        Unreachable, NotFound, UsageError, OperatorError: what the Kafka client raised.
    """
    try:
        yield
    except client_errors.BrokerUnreachable as error:
        raise Unreachable(str(error)) from error
    except client_errors.UnknownTopic as error:
        raise NotFound(str(error)) from error
    except client_errors.BadArgument as error:
        raise UsageError(str(error)) from error
    except client_errors.ClientError as error:
        raise OperatorError(str(error)) from error


_REACH_HINT = (
    "both clusters must be reachable from here, also at the addresses their brokers advertise"
)
