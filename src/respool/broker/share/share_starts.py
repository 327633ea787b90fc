"""Where all share groups begin in the partitions of topics, whichever brokers coordinate the groups."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from respool.broker.coordinators.coordinator_listing import CoordinatorListing
from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.metadata.catalog import Catalog
from respool.broker.peer_link import PeerLink
from respool.coordination.groups.group_requests import ListGroups
from respool.coordination.groups.share.share_group_requests import FindShareStates
from respool.coordination.share.share_state import ShareKey
from respool.coordination.share_states.share_state_requests import StateSummary
from respool.model.coordinator_errors import CoordinatorNotAvailable, GroupIdNotFound
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, Offset, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api

# A channel of its own, so that nothing else waits for these requests.
CHANNEL = 8
DESCRIBE_OFFSETS_VERSION = 0
GROUPS_PER_REQUEST = 200
SHARE_TYPE = "share"
# A group that has state of a partition, and has not decided where it begins.
UNDECIDED = Offset(-1)

# The starts of all groups in each partition; views have the offsets of their parents.
Starts = dict[TopicPartition, list[Offset]]


class StateSummaries(Protocol):
    async def summarize(
        self, keys: Collection[ShareKey]
    ) -> Mapping[ShareKey, StateSummary | RequestError]: ...


class ShareStarts:
    def __init__(
        self,
        *,
        groups: Groups,
        catalog: Catalog,
        states: StateSummaries,
        link: PeerLink | None,
    ) -> None:
        """`link` is None for a single broker."""
        self._groups = groups
        self._catalog = catalog
        self._states = states
        self._link = link
        self._listing = CoordinatorListing(groups, catalog, link, channel=CHANNEL)

    async def of_topics(self, names: Collection[str]) -> Starts:
        """The starts in partitions of these topics.

        Raises:
            RequestError: some groups cannot be asked for now.
        """
        image = self._catalog.image
        others = self._listing.others()
        asked = [self._here(), *(self._elsewhere(one) for one in others)]
        starts: Starts = {}
        for found in await asyncio.gather(*asked):
            for (topic, number), offset in found:
                log_name = image.log_name(topic)
                if log_name in names:
                    starts.setdefault(TopicPartition(log_name, number), []).append(offset)
        return starts

    async def _here(self) -> list[tuple[tuple[str, int], Offset]]:
        runtimes = self._groups.runtimes
        if not runtimes.has_topic:
            return []
        keys: list[ShareKey] = []
        for reply in await runtimes.ask_all(ListGroups()):
            for listed in reply.groups:
                if listed.type != SHARE_TYPE:
                    continue
                found = await runtimes.ask(
                    listed.group_id, FindShareStates(group_id=listed.group_id)
                )
                if found.error is not None:
                    if isinstance(found.error, GroupIdNotFound):
                        # Deleted since.
                        continue
                    raise found.error
                keys += [
                    ShareKey(listed.group_id, topic_id, number)
                    for topic_id, numbers in found.initialized.items()
                    for number in numbers
                ]
        starts = []
        for key, summary in (await self._states.summarize(keys)).items():
            topic = self._catalog.image.readable_by_id(key.topic_id)
            if topic is None or isinstance(summary, GroupIdNotFound):
                continue
            if isinstance(summary, RequestError):
                raise summary
            starts.append(((topic.name, key.partition), summary.start_offset))
        return starts

    async def _elsewhere(self, broker: BrokerId) -> list[tuple[tuple[str, int], Offset]]:
        try:
            return await self._ask(broker)
        except PeerUnreachable as error:
            raise CoordinatorNotAvailable(f"broker {broker} does not answer: {error}") from error

    async def _ask(self, broker: BrokerId) -> list[tuple[tuple[str, int], Offset]]:
        link = self._link
        assert link is not None
        groups = [one.group_id for one in await self._listing.of(broker, {SHARE_TYPE})]
        starts: list[tuple[tuple[str, int], Offset]] = []
        for at in range(0, len(groups), GROUPS_PER_REQUEST):
            described = await link.ask(
                broker,
                Api.DESCRIBE_SHARE_GROUP_OFFSETS,
                DESCRIBE_OFFSETS_VERSION,
                channel=CHANNEL,
                groups=[
                    {"group_id": one, "topics": None}
                    for one in groups[at : at + GROUPS_PER_REQUEST]
                ],
            )
            for group in described.groups:
                parts = [
                    (topic.topic_name, one) for topic in group.topics for one in topic.partitions
                ]
                if group.error_code or any(one.error_code for _, one in parts):
                    raise CoordinatorNotAvailable(
                        f"broker {broker} cannot say now where group {group.group_id} begins"
                    )
                starts += [
                    ((name, one.partition_index), Offset(one.start_offset)) for name, one in parts
                ]
        return starts
