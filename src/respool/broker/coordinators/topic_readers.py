"""How far consumer groups have read a topic, whichever brokers coordinate them.

A group reads the topic if its members subscribe to it, or if it has committed an offset of it; views count, whose
offsets are the topic's.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from respool.broker.coordinators.coordinator_listing import CoordinatorListing
from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.layouts.group_reading import GroupReading
from respool.broker.metadata.catalog import Catalog
from respool.broker.peer_link import PeerLink
from respool.coordination.groups.consumer.consumer_requests import ConsumerGroupDescribe
from respool.coordination.groups.consumer_protocol import read_subscription
from respool.coordination.groups.group_requests import DescribeGroups, GroupState, ListGroups
from respool.model.cluster import TopicImage
from respool.model.coordinator_errors import CoordinatorNotAvailable, InconsistentGroupProtocol
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, Offset
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api

logger = logging.getLogger(__name__)

# A channel of its own, so that nothing else waits for these requests.
CHANNEL = 6
DESCRIBE_GROUPS_VERSION = 6
CONSUMER_GROUP_DESCRIBE_VERSION = 1
# The last version with names of topics.
OFFSET_FETCH_VERSION = 9
GROUPS_PER_REQUEST = 200
CLASSIC_TYPE, CONSUMER_TYPE = "classic", "consumer"
# Members of other groups share partitions, and promise no order.
_IN_ORDER = frozenset({CLASSIC_TYPE, CONSUMER_TYPE})
_MEMBERLESS = frozenset({GroupState.EMPTY, GroupState.DEAD})


class _Described(NamedTuple):
    group_id: str
    has_members: bool
    topic_names: frozenset[str]


class TopicReaders:
    def __init__(self, groups: Groups, catalog: Catalog, link: PeerLink | None) -> None:
        """`link` is None for a single broker."""
        self._groups = groups
        self._catalog = catalog
        self._link = link
        self._listing = CoordinatorListing(groups, catalog, link, channel=CHANNEL)

    async def readers(self, topic: TopicImage) -> list[GroupReading]:
        """All groups that read the topic.

        Raises:
            RequestError: some groups cannot be asked for now.
        """
        image = self._catalog.image
        names = frozenset({topic.name, *(one.name for one in image.views_of(topic.id))})
        others = self._listing.others()
        asked = [self._here(names), *(self._elsewhere(one, names) for one in others)]
        found = [one for part in await asyncio.gather(*asked) for one in part]
        return sorted(found, key=lambda one: one.group_id)

    # -- groups that this broker coordinates ---------------------------------------------------------------------------

    async def _here(self, names: Collection[str]) -> list[GroupReading]:
        runtimes = self._groups.runtimes
        if not runtimes.has_topic:
            return []
        replies = await runtimes.ask_all(ListGroups())
        described: dict[str, _Described] = {}
        for listed in (one for reply in replies for one in reply.groups):
            if listed.type not in _IN_ORDER:
                continue
            described[listed.group_id] = await self._describe_here(listed)
        found = []
        for offsets in self._groups.committed():
            for group_id in {*offsets.group_ids()} & described.keys():
                committed: dict[str, dict[int, Offset]] = {}
                for name, number, offset in offsets.committed_of(group_id):
                    if name in names:
                        committed.setdefault(name, {})[number] = offset
                found.append((described.pop(group_id), committed))
        found += [(one, {}) for one in described.values()]
        return _reading(found, names)

    async def _describe_here(self, listed: Any) -> _Described:
        group_id = listed.group_id
        if listed.state in _MEMBERLESS:
            return _Described(group_id, False, frozenset())
        runtimes = self._groups.runtimes
        if listed.type == CONSUMER_TYPE:
            reply = await runtimes.ask(group_id, ConsumerGroupDescribe(group_ids=(group_id,)))
            members = reply.groups[0].members
            return _Described(group_id, bool(members), _assigned_topics(members))
        reply = await runtimes.ask(group_id, DescribeGroups(group_ids=(group_id,)))
        members = reply.groups[0].members
        return _Described(group_id, bool(members), _subscribed(one.metadata for one in members))

    # -- groups that other brokers coordinate --------------------------------------------------------------------------

    async def _elsewhere(self, broker: BrokerId, names: Collection[str]) -> list[GroupReading]:
        try:
            return await self._ask(broker, names)
        except PeerUnreachable as error:
            raise CoordinatorNotAvailable(f"broker {broker} does not answer: {error}") from error

    async def _ask(self, broker: BrokerId, names: Collection[str]) -> list[GroupReading]:
        listed = await self._listing.of(broker, _IN_ORDER)
        found: list[tuple[_Described, dict[str, dict[int, Offset]]]] = []
        for at in range(0, len(listed), GROUPS_PER_REQUEST):
            some = listed[at : at + GROUPS_PER_REQUEST]
            described = await self._describe(broker, some)
            committed = await self._committed(broker, [one.group_id for one in some], names)
            found += [
                (described[one.group_id], committed.get(one.group_id, {}))
                for one in some
                if one.group_id in described
            ]
        return _reading(found, names)

    async def _describe(self, broker: BrokerId, listed: Iterable[Any]) -> dict[str, _Described]:
        link = self._link
        assert link is not None
        found: dict[str, _Described] = {}
        classic: list[str] = []
        consumer: list[str] = []
        for one in listed:
            if one.group_state in _MEMBERLESS:
                found[one.group_id] = _Described(one.group_id, False, frozenset())
            else:
                (consumer if one.group_type == CONSUMER_TYPE else classic).append(one.group_id)
        if classic:
            reply = await link.ask(
                broker,
                Api.DESCRIBE_GROUPS,
                DESCRIBE_GROUPS_VERSION,
                channel=CHANNEL,
                groups=classic,
                include_authorized_operations=False,
            )
            for group in reply.groups:
                _check(group, broker)
                names = _subscribed(one.member_metadata for one in group.members)
                found[group.group_id] = _Described(group.group_id, bool(group.members), names)
        if consumer:
            reply = await link.ask(
                broker,
                Api.CONSUMER_GROUP_DESCRIBE,
                CONSUMER_GROUP_DESCRIBE_VERSION,
                channel=CHANNEL,
                group_ids=consumer,
                include_authorized_operations=False,
            )
            for group in reply.groups:
                _check(group, broker)
                names = frozenset(
                    name
                    for member in group.members
                    for name in (
                        *(member.subscribed_topic_names or ()),
                        *(one.topic_name for one in member.assignment.topic_partitions),
                    )
                )
                found[group.group_id] = _Described(group.group_id, bool(group.members), names)
        return found

    async def _committed(
        self, broker: BrokerId, group_ids: Iterable[str], names: Collection[str]
    ) -> dict[str, dict[str, dict[int, Offset]]]:
        link = self._link
        assert link is not None
        reply = await link.ask(
            broker,
            Api.OFFSET_FETCH,
            OFFSET_FETCH_VERSION,
            channel=CHANNEL,
            groups=[
                {"group_id": one, "member_id": None, "member_epoch": -1, "topics": None}
                for one in group_ids
            ],
            require_stable=False,
        )
        found: dict[str, dict[str, dict[int, Offset]]] = {}
        for group in reply.groups:
            _check(group, broker)
            for topic in group.topics:
                if topic.name in names:
                    found.setdefault(group.group_id, {})[topic.name] = {
                        one.partition_index: Offset(one.committed_offset)
                        for one in topic.partitions
                    }
        return found


def _reading(
    found: Iterable[tuple[_Described, Mapping[str, Mapping[int, Offset]]]], names: Collection[str]
) -> list[GroupReading]:
    readings = []
    for group, committed in found:
        read = {*committed, *group.topic_names.intersection(names)}
        if read:
            readings.append(
                GroupReading(
                    group.group_id,
                    group.has_members,
                    {name: committed.get(name, {}) for name in sorted(read)},
                )
            )
    return readings


def _subscribed(metadata: Iterable[bytes]) -> frozenset[str]:
    """The topics that members of a classic group subscribe to, as far as this is known now."""
    names: set[str] = set()
    for one in metadata:
        try:
            names |= read_subscription(bytes(one)).topic_names if one else frozenset()
        except InconsistentGroupProtocol:
            # Not consumers.
            continue
    return frozenset(names)


def _assigned_topics(members: Iterable[Any]) -> frozenset[str]:
    return frozenset(
        name
        for member in members
        for name in (*member.topic_names, *(one.topic_name for one in member.assignment))
    )


def _check(answer: Any, broker: BrokerId) -> None:
    """
    Raises:
        RequestError: the broker cannot answer for this group.
    """
    if answer.error_code:
        error: RequestError = CoordinatorNotAvailable(
            f"broker {broker} answered with error {answer.error_code} about a group"
        )
        raise error
