"""Removes a broker from the cluster for a client, by the rule that `respool cluster remove` follows."""

from respool.broker.metadata.catalog import TRIES_MAX, Catalog
from respool.cluster import broker_requests
from respool.cluster.view import ClusterView
from respool.model.errors import BrokerIdNotRegistered, RequestTimedOut
from respool.model.ids import BrokerId
from respool.ports.metadata_store import GuardFailed, StoreUnavailable


async def unregister(catalog: Catalog, broker: BrokerId) -> None:
    """Remove the broker, which must be stopped and must have no replicas.

    Raises:
        RequestError: the broker may not be removed, or the store does not answer.
    """
    try:
        for _ in range(TRIES_MAX):
            # Refusals need no write, so they too are decided on the store's current content.
            view = await catalog.read_view()
            _check_not_removed(view, broker)
            try:
                for write in broker_requests.remove(view, broker):
                    await catalog.write(write)
            except GuardFailed:
                continue
            return
    except StoreUnavailable as error:
        raise RequestTimedOut(f"the metadata store does not answer: {error}") from error
    raise RequestTimedOut(f"others have changed the cluster {TRIES_MAX} times meanwhile")


def _check_not_removed(view: ClusterView, broker: BrokerId) -> None:
    """
    Raises:
        BrokerIdNotRegistered: the broker was removed before. Kafka forgets such a broker.
    """
    entry = view.registry.get(broker)
    if entry is not None and entry.is_removed:
        raise BrokerIdNotRegistered(f"broker {broker} was removed from the cluster before")
