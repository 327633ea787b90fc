"""The group coordinator's state machine for one partition of `__consumer_offsets`: groups, members and offsets.

`decision.py` describes the interface. A request is answered by its own decision or, if a member must wait for others,
by a later one.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from respool.coordination.decision import CoordinatorRecord, Decision, Ticket, TimerKey
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_groups import CLASSIC_TIMER, ClassicGroups
from respool.coordination.groups.committed_offsets import CommittedOffsets
from respool.coordination.groups.consumer.consumer_groups import ConsumerGroups
from respool.coordination.groups.consumer.consumer_records import CONSUMER_RECORD_KINDS
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupRequest,
)
from respool.coordination.groups.consumer.consumer_timers import CONSUMER_TIMER
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.group_admin import GroupAdmin
from respool.coordination.groups.group_protocols import GroupProtocols
from respool.coordination.groups.group_records import RecordKind, kind_of, read_group_key
from respool.coordination.groups.group_requests import (
    DeleteGroups,
    DescribeGroups,
    FenceGroup,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)
from respool.coordination.groups.offset_requests import OffsetRequests
from respool.coordination.groups.share.share_group_records import SHARE_RECORD_KINDS
from respool.coordination.groups.share.share_group_requests import (
    AlterShareStarts,
    DeleteShareGroup,
    DeleteShareStates,
    FindShareStates,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    ShareGroupRequest,
    ShareStatesInitialized,
    ShareStatesRemoved,
)
from respool.coordination.groups.share.share_groups import SHARE_TIMER, ShareGroups
from respool.model.coordinator_settings import GroupSettings
from respool.model.group_config import GroupConfig, group_times
from respool.model.ids import NO_PRODUCER_ID, ProducerId
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.model.share.share_group_config import share_group_settings
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)

EXPIRY_TIMER: TimerKey = ("offset expiry",)

# Enough for finding the coordinator and for two heartbeats at the usual interval.
HEARD_AGAIN_MS = 10_000


class GroupCoordinatorShard:
    writing_requests = (
        OffsetCommit,
        TxnOffsetCommit,
        OffsetDelete,
        DeleteGroups,
        FenceGroup,
        AlterShareStarts,
        DeleteShareStates,
        DeleteShareGroup,
    )

    def __init__(
        self,
        settings: GroupSettings,
        *,
        rng: RandomSource,
        config_of: Callable[[str], GroupConfig | None] = lambda _: None,
        shares: ShareBrokerSettings | None = None,
    ) -> None:
        """`config_of` returns a group's own configuration; None: there is none."""
        shares = shares or ShareBrokerSettings()
        self._check_interval_ms = settings.offsets_retention_check_interval_ms
        self._offsets = CommittedOffsets(metadata_length_max=settings.offset_metadata_max_bytes)
        self._classic = ClassicGroups(settings, rng=rng)
        self._consumers = ConsumerGroups(
            settings,
            rng=rng,
            times_of=lambda group_id: group_times(config_of(group_id), settings),
        )
        self._shares = ShareGroups(
            shares,
            settings_of=lambda group_id: share_group_settings(config_of(group_id), shares),
            is_other_group=self._is_other_than_share,
        )
        protocols = GroupProtocols(
            classic=self._classic, consumers=self._consumers, shares=self._shares
        )
        self._group_offsets = OffsetRequests(
            settings,
            offsets=self._offsets,
            classic=self._classic,
            consumers=self._consumers,
            shares=self._shares,
        )
        self._admin = GroupAdmin(
            offsets=self._offsets,
            classic=self._classic,
            consumers=self._consumers,
            shares=self._shares,
        )
        self._skipped_kinds: set[int] = set()
        # Requests that may have to wait build their own decisions, and so does the most frequent request.
        self._deciders: dict[type, Callable[[Any, Ticket, Draft], Decision]] = {
            JoinGroup: protocols.join,
            SyncGroup: protocols.sync,
            Heartbeat: protocols.heartbeat,
            LeaveGroup: protocols.leave,
            ConsumerGroupHeartbeat: protocols.consumer_heartbeat,
            ShareGroupHeartbeat: _answering(self._shares.heartbeat),
            AlterShareStarts: _answering(self._shares.change_states),
            DeleteShareStates: _answering(self._shares.change_states),
            DeleteShareGroup: _answering(self._shares.change_states),
        }
        # All others are answered at once.
        self._repliers: dict[type, Callable[[Any, Draft], Any]] = {
            OffsetCommit: self._group_offsets.commit,
            TxnOffsetCommit: self._group_offsets.commit_in_transaction,
            OffsetFetch: lambda request, _: self._group_offsets.fetch(request),
            OffsetDelete: self._group_offsets.delete,
            ListGroups: lambda request, _: self._admin.list(request),
            DescribeGroups: lambda request, _: self._admin.describe(request),
            ConsumerGroupDescribe: lambda request, _: self._admin.describe_consumers(request),
            ShareGroupDescribe: lambda request, _: self._admin.describe_shares(request),
            FindShareStates: lambda request, _: self._admin.find_share_states(request),
            ShareStatesInitialized: self._shares.on_initialized,
            ShareStatesRemoved: self._shares.on_removed,
            DeleteGroups: self._admin.delete,
            FenceGroup: self._admin.fence,
        }

    @property
    def offsets(self) -> CommittedOffsets:
        """The committed offsets, for read access."""
        return self._offsets

    def decide(
        self,
        request: GroupRequest | ConsumerGroupRequest | ShareGroupRequest,
        *,
        ticket: Ticket,
        now_ms: int,
        wall_ms: int | None = None,
    ) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        decider = self._deciders.get(type(request))
        if decider is not None:
            return decider(request, ticket, draft)
        draft.answer(ticket, self._repliers[type(request)](request, draft))
        return draft.decision()

    def on_timer(self, key: TimerKey, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        if key[0] == CLASSIC_TIMER:
            return self._classic.on_timer(key, draft)
        if key[0] == CONSUMER_TIMER:
            self._consumers.on_timer(str(key[1]), draft)
            return draft.decision()
        if key[0] == SHARE_TIMER:
            self._shares.on_timer(str(key[1]), draft)
            return draft.decision()
        assert key == EXPIRY_TIMER, key
        has_more = self._group_offsets.expire(draft)
        draft.set_timer(EXPIRY_TIMER, now_ms if has_more else now_ms + self._check_interval_ms)
        return draft.decision()

    def on_loaded(self, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        """After the whole log was replayed: start the timers of members and offsets."""
        draft = Draft(now_ms, wall_ms=wall_ms)
        draft.set_timer(EXPIRY_TIMER, now_ms + self._check_interval_ms)
        self._classic.on_loaded(draft)
        self._consumers.on_loaded(draft)
        self._shares.on_loaded(draft)
        return draft.decision()

    def on_heard_again(self, *, now_ms: int) -> None:
        """Extend sessions after an outage of the coordinator, in which members could not send heartbeats.

        Members get some time, but not a whole new session: librdkafka leaves the group by itself after a session
        timeout without a reply, and joins as a new member, which then waits until the old one has timed out.
        """
        self._classic.on_heard_again(until_ms=now_ms + HEARD_AGAIN_MS)
        self._consumers.on_heard_again(until_ms=now_ms + HEARD_AGAIN_MS)
        self._shares.on_heard_again(until_ms=now_ms + HEARD_AGAIN_MS)

    def on_topics_changed(
        self, topics: TopicsView, *, now_ms: int, wall_ms: int | None = None
    ) -> Decision:
        """Set the existing topics. Called before loading, and whenever a topic is created, deleted or enlarged.

        Before loading, the decision is empty.
        """
        draft = Draft(now_ms, wall_ms=wall_ms)
        self._consumers.on_topics_changed(topics, draft)
        self._shares.on_topics_changed(topics, draft)
        return draft.decision()

    def on_topics_deleted(self, names: Collection[str], *, now_ms: int) -> Decision:
        """Delete the offsets of deleted topics: a new topic of the same name starts without committed offsets."""
        draft = Draft(now_ms)
        self._offsets.delete_topics(names, draft=draft)
        return draft.decision()

    def on_partitions_retired(self, first_gone: Mapping[str, int], *, now_ms: int) -> Decision:
        """Delete the offsets of partitions that are gone: new ones of these numbers begin without."""
        draft = Draft(now_ms)
        self._offsets.delete_partitions(first_gone, draft=draft)
        return draft.decision()

    def replay(
        self, record: CoordinatorRecord, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a record; with a producer id, it is part of a transaction.

        Raises:
            CoordinatorRecordDamaged: the record cannot be read.
        """
        kind = kind_of(record.key)
        if RecordKind.OFFSET_OLD <= kind <= RecordKind.OFFSET:
            self._offsets.replay(record.key, record.value, producer_id=producer_id)
        elif kind == RecordKind.CLASSIC_GROUP:
            self._classic.replay(read_group_key(record.key), record.value)
        elif kind in CONSUMER_RECORD_KINDS:
            self._consumers.replay(record)
        elif kind in SHARE_RECORD_KINDS:
            self._shares.replay(record)
        elif kind not in self._skipped_kinds:
            self._skipped_kinds.add(kind)
            logger.warning("records of kind %d are unknown here and skipped", kind)

    def _is_other_than_share(self, group_id: str) -> bool:
        """True if the name is taken by a group of another kind, or by one that only has offsets."""
        return (
            group_id in self._classic.groups
            or group_id in self._consumers.groups
            or self._offsets.has_group(group_id)
        )

    def replay_end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        """Apply a transaction marker: the transaction's offsets take effect, or are discarded."""
        self._offsets.end_transaction(producer_id, is_committed=is_committed)


def _answering(
    handle: Callable[[Any, Ticket, Draft], None],
) -> Callable[[Any, Ticket, Draft], Decision]:
    """A decider from what writes its answers, if there are some already, into the draft."""

    def decide(request: Any, ticket: Ticket, draft: Draft) -> Decision:
        handle(request, ticket, draft)
        return draft.decision()

    return decide
