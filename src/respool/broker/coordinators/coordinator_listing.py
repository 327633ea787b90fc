"""The groups of the whole cluster, as each broker lists those that it coordinates: all of them, or an error."""

from collections.abc import Collection
from typing import Any

from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.metadata.catalog import Catalog
from respool.broker.peer_link import PeerLink
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api

LIST_GROUPS_VERSION = 5


class CoordinatorListing:
    def __init__(
        self, groups: Groups, catalog: Catalog, link: PeerLink | None, *, channel: int
    ) -> None:
        """`link` is None for a single broker."""
        self._groups = groups
        self._catalog = catalog
        self._link = link
        self._channel = channel

    def others(self) -> list[BrokerId]:
        """The brokers that coordinate the groups which this one does not.

        Raises:
            CoordinatorNotAvailable: some groups have no coordinator now. They are in no broker's list, and the groups
                that are would look like all of them.
        """
        image, me = self._catalog.image, self._catalog.me
        others = [] if self._link is None else sorted(one for one in image.brokers if one != me)
        name = self._groups.runtimes.topic
        topic = image.topics.get(name)
        for number, one in enumerate(() if topic is None else topic.partitions):
            if one.leader not in {me, *others}:
                raise CoordinatorNotAvailable(f"{name}-{number} has no leader now")
        return others

    async def of(self, broker: BrokerId, types: Collection[str]) -> list[Any]:
        """The groups of these types that another broker lists.

        Raises:
            CoordinatorNotAvailable: it does not answer, or cannot list them now.
        """
        assert self._link is not None
        try:
            reply = await self._link.ask(
                broker,
                Api.LIST_GROUPS,
                LIST_GROUPS_VERSION,
                channel=self._channel,
                states_filter=(),
                types_filter=(),
            )
        except PeerUnreachable as error:
            raise CoordinatorNotAvailable(f"broker {broker} does not answer: {error}") from error
        if reply.error_code:
            raise CoordinatorNotAvailable(f"broker {broker} cannot list its groups now")
        return [one for one in reply.groups if one.group_type in types]
