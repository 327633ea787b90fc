"""Whether a broker listens at all: asked before a command starts what would report it late, and in other words."""

from respool.cli.errors import BrokerUnreachable
from respool.client.kafka.bootstrap import Bootstrap, failed_connections
from respool.model.errors import SettingsError
from respool.model.operator_errors import UsageError

CONNECT_SECONDS = 3.0


def check_broker(broker: str) -> None:
    """Try a TCP connection to each address until one is accepted.

    Raises:
        UsageError: one of them is no HOST:PORT.
        BrokerUnreachable: nobody listens at any of them.
    """
    bootstrap = Bootstrap.chosen(broker, option="--broker HOST:PORT")
    try:
        reasons = failed_connections(bootstrap, timeout_s=CONNECT_SECONDS)
    except SettingsError as error:
        raise UsageError(str(error)) from None
    if reasons:
        raise BrokerUnreachable(bootstrap.no_broker(reasons), hint=bootstrap.hint)
