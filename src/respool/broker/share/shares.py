"""The share partitions that this broker leads, and the sessions of the members that fetch them."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.partitions.partition import Partition
from respool.broker.share.dead_letter_writer import DeadLetterBroker, DeadLetters
from respool.broker.share.finished_records import DeletingBroker, FinishedRecords
from respool.broker.share.persister import SharePersister
from respool.broker.share.share_partition import SharePartition, Spawn
from respool.broker.share.share_sessions import (
    SessionKey,
    ShareSession,
    ShareSessions,
    ShareTarget,
)
from respool.broker.share.share_starts import ShareStarts, StateSummaries
from respool.broker.steady_clock import SteadyClock
from respool.broker.world import World
from respool.coordination.share.share_state import ShareKey
from respool.coordination.share.transitions import ShareCounts
from respool.model.cluster import TopicImage
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import NotLeader, RequestError, UnknownTopicId, UnknownTopicOrPartition
from respool.model.ids import Offset, TopicId
from respool.model.internal_topics import SHARE_GROUP_STATE
from respool.model.share.share_group_config import share_group_settings
from respool.model.share.share_settings import ShareGroupSettings
from respool.ports.record_scan import KeyHasher

# A share partition that no session has any more is unloaded; if something is still under way, after this long.
BUSY_S = 1.0


class ShareBroker(DeadLetterBroker, DeletingBroker, Protocol):
    """What share groups need of the broker: `Broker`."""

    steady_clock: SteadyClock
    world: World
    groups: Groups

    def may_act(self) -> bool: ...


class ShareStateStore(SharePersister, StateSummaries, Protocol):
    """The state of share partitions, wherever it is."""


class Shares:
    def __init__(self, broker: ShareBroker, *, persister: ShareStateStore, spawn: Spawn) -> None:
        self._broker = broker
        self.persister = persister
        self._spawn = spawn
        self._partitions: dict[tuple[str, ShareTarget], SharePartition] = {}
        # Of what is loaded no more, by group and topic.
        self.counts: dict[tuple[str, TopicId], ShareCounts] = {}
        self._dead_letters = DeadLetters(broker, spawn=spawn)
        starts = ShareStarts(
            groups=broker.groups, catalog=broker.catalog, states=persister, link=broker.link
        )
        self.finished = FinishedRecords(broker, starts)
        self.sessions = ShareSessions(
            sessions_max=broker.settings.shares.group_share_max_share_sessions,
            on_closed=self._on_closed,
            on_target=self._on_target,
        )

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(list(self._partitions.values()))

    def settings_of(self, group: str) -> ShareGroupSettings:
        broker = self._broker
        return share_group_settings(broker.image.group_configs.get(group), broker.settings.shares)

    def topic_of(self, target: ShareTarget) -> TopicImage:
        """The topic or view of this id.

        Raises:
            UnknownTopicId: there is none.
        """
        topic = self._broker.image.readable_by_id(target.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {target.topic_id}")
        return topic

    def find(self, group: str, target: ShareTarget) -> SharePartition:
        """The share partition, which may be loading.

        Raises:
            RequestError: this broker does not lead the partition, or there is no such partition.
        """
        topic = self.topic_of(target)
        if SHARE_GROUP_STATE not in self._broker.image.topics:
            raise GroupIdNotFound(f"there are no share groups, and so no group {group}")
        partition = self._broker.partitions.find_leader(topic.log_name, target.partition)
        log_id = topic.id if topic.view is None else topic.view.parent_id
        if partition.topic_id != log_id:
            raise UnknownTopicOrPartition(f"the topic of view {topic.name} was deleted")
        found = self._partitions.get((group, target))
        if found is not None and not found.is_of(partition):
            found.discard(NotLeader(f"{partition.name} has another leader epoch"))
            found = None
        return found or self._new(group, target, partition)

    def _new(self, group: str, target: ShareTarget, partition: Partition) -> SharePartition:
        broker = self._broker
        found = SharePartition(
            ShareKey(group, target.topic_id, target.partition),
            partition,
            settings_of=self.settings_of,
            persister=self.persister,
            clock=broker.steady_clock,
            offload=broker.offload,
            new_hasher=self._new_hasher,
            spawn=self._spawn,
            may_act=broker.may_act,
            on_discarded=self._on_discarded,
            on_dying=self._dead_letters.on_dying,
        )
        found.session_count = self.sessions.count(group, target)
        self._partitions[group, target] = found
        return found

    def _new_hasher(self) -> KeyHasher:
        # With a secret, nobody can make keys that collide.
        world = self._broker.world
        return world.scanner.key_hasher(secret=world.rng.uuid().bytes)

    # -- events ------------------------------------------------------------------------------------------------------

    def on_disconnected(self, connection: object) -> None:
        """Called after its request was cancelled: a fetch must not acquire what its member has just released."""
        self.sessions.on_disconnected(connection)

    def on_role(self, partition: Partition) -> None:
        """This broker has become the partition's leader, or has ceased to be."""
        for one in self:
            if one.partition is partition and not (partition.is_leading and one.is_of(partition)):
                one.discard(NotLeader(f"{partition.name} has another leader"))

    def on_log_start(self, partition: Partition, log_start: Offset) -> None:
        for one in self:
            if one.partition is partition:
                one.after_log_start(log_start)

    def forget(self, group: str, target: ShareTarget, error: RequestError) -> None:
        """The stored state was altered or deleted: the next request reads it again."""
        self.counts.pop((group, target.topic_id), None)
        found = self._partitions.get((group, target))
        if found is not None:
            found.discard(error)

    def stop(self) -> None:
        for one in self:
            one.discard(NotLeader("the broker stops"))

    def _on_discarded(self, one: SharePartition) -> None:
        self.counts.setdefault((one.key.group, one.key.topic_id), ShareCounts()).add(one.counts)
        target = ShareTarget(one.key.topic_id, one.key.partition)
        if self._partitions.get((one.key.group, target)) is one:
            del self._partitions[one.key.group, target]

    def _on_closed(self, session: ShareSession, is_orderly: bool) -> None:
        now_ms = self._broker.steady_clock.now_ms()
        for one in self:
            # Also what the member acquired of partitions that it has forgotten since.
            if one.key.group != session.key.group or one.is_gone or not one.is_loaded:
                continue
            machine = one.machine()
            if machine.release_member(session.key.member, is_orderly=is_orderly, now_ms=now_ms):
                one.after_change()

    def _on_target(self, key: SessionKey, target: ShareTarget, by: int) -> None:
        found = self._partitions.get((key.group, target))
        if found is None:
            return
        found.session_count += by
        if by > 0:
            found.check_state()
        elif not found.session_count:
            # Not at once: what the session held is released first.
            asyncio.get_running_loop().call_soon(self._unload_if_idle, found)

    def _unload_if_idle(self, one: SharePartition) -> None:
        """Unload it: offsets of a group without members may be altered."""
        if one.session_count or one.is_gone:
            return
        if one.is_idle:
            one.discard(NotLeader("nobody used it"))
        else:
            asyncio.get_running_loop().call_later(BUSY_S, self._unload_if_idle, one)
