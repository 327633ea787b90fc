"""This broker's addresses as clients and other brokers see them."""

from collections.abc import Mapping

from respool.model.cluster import BrokerEndpoint
from respool.model.ids import BrokerId
from respool.model.security.principal import CLIENT_LISTENER
from respool.model.settings import Settings


def own_endpoint(
    settings: Settings, addresses: Mapping[str, tuple[str, int]] | None = None
) -> BrokerEndpoint:
    """The advertised endpoint, given the addresses that the listeners are bound to; None: those of the settings."""
    advertised = {
        one.name: one.advertised_for(
            *(one.listen_address if addresses is None else addresses[one.name])
        )
        for one in settings.listeners
    }
    host, port = advertised.pop(CLIENT_LISTENER)
    return BrokerEndpoint(
        id=BrokerId(settings.broker_id),
        host=host,
        port=port,
        rack=settings.rack or None,
        listeners=tuple((name, *address) for name, address in advertised.items()),
    )
