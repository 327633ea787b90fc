"""The brokers' addresses for one client: those of the listener that it uses."""

from collections.abc import Iterator
from typing import NamedTuple

from respool.model.cluster import BrokerEndpoint, ClusterImage
from respool.model.ids import BrokerId
from respool.model.security.principal import CLIENT_LISTENER, ClientSession


class ReachedBroker(NamedTuple):
    id: BrokerId
    host: str
    port: int
    rack: str | None


def reached(one: BrokerEndpoint, session: ClientSession) -> ReachedBroker | None:
    """The broker as the client reaches it; None: the broker does not have the client's listener."""
    address = one.address(session.listener or CLIENT_LISTENER)
    return None if address is None else ReachedBroker(one.id, *address, one.rack)


def reached_brokers(image: ClusterImage, session: ClientSession) -> Iterator[ReachedBroker]:
    for one in image.brokers.values():
        found = reached(one, session)
        if found is not None:
            yield found
