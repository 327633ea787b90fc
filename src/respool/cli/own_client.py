"""Our own client, for what librdkafka must not be asked: with the command line's patience, and its words for errors.

- It ends the whole process with a segmentation fault when it reads a group's offsets through its admin, and the
  coordinator has moved (NOT_COORDINATOR to OffsetFetch; seen in 2.16.0).
- When it commits offsets, confluent-kafka puts a zero byte behind what is noted beside them: a copy is not the same.
- It lists groups by metadata that may be minutes old, so that a broker that has gone is waited for in vain until then.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from respool.cli.broker_check import CONNECT_SECONDS
from respool.cli.connection_options import BrokerConnection
from respool.cli.errors import BrokerUnreachable
from respool.cli.kafka_library import CLIENT_ID, REQUEST_SECONDS
from respool.client.kafka import errors as client_errors
from respool.client.kafka.cluster import Cluster as OwnCluster
from respool.model.operator_errors import OperatorError, UsageError


def own_cluster(connection: BrokerConnection) -> OwnCluster:
    """To be closed. What may pass is tried again for as long as a request may take.

    Raises:
        UsageError: these are no addresses.
    """
    try:
        # As librdkafka takes them: a comma too many is none.
        return OwnCluster(
            ",".join(filter(None, map(str.strip, connection.bootstrap.split(",")))),
            client_id=CLIENT_ID,
            connect_timeout_ms=int(CONNECT_SECONDS * 1000),
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
            retry_ms=int(REQUEST_SECONDS * 1000),
            # Its user has seen a broker answer: one that is away now may be restarting.
            first_contact_ms=int(REQUEST_SECONDS * 1000),
            security=connection.security,
        )
    except client_errors.BadArgument as error:
        raise UsageError(f"{connection.bootstrap!r}: {error}") from error


@contextmanager
def own_errors_translated() -> Iterator[None]:
    """
    Raises:
        BrokerUnreachable, OperatorError: what the client said.
    """
    try:
        yield
    except client_errors.BrokerUnreachable as error:
        raise BrokerUnreachable(str(error)) from error
    except client_errors.ClientError as error:
        raise OperatorError(str(error)) from error
