"""The consumer groups (KIP-848) of one shard, including members that use the classic protocol.

`GroupCoordinatorShard` forwards requests for these groups, together with the classic group of the same name if there
is one. Groups change only by `replay`; deadlines and the set of known topics may change at any time.
"""

import logging
from collections.abc import Collection, Iterable

from respool.coordination.decision import CoordinatorRecord, Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.consumer.classic_members import ClassicMembers
from respool.coordination.groups.consumer.consumer_draft import ConsumerDraft, end_of_group
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_heartbeat import (
    ConsumerHeartbeats,
    check_request,
)
from respool.coordination.groups.consumer.consumer_member import JOIN_EPOCH
from respool.coordination.groups.consumer.consumer_rebalance import ConsumerRebalance
from respool.coordination.groups.consumer.consumer_record_bytes import (
    read_consumer_key,
    read_consumer_value,
)
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKind,
)
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
)
from respool.coordination.groups.consumer.consumer_timers import ConsumerTimers, TimesOf
from respool.coordination.groups.consumer.group_upgrade import (
    downgrade,
    may_downgrade,
    replacing_empty,
    upgraded,
)
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    SyncGroup,
    SyncGroupReply,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    GroupIdNotFound,
    MemberIdRequired,
    RebalanceInProgress,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)


class ConsumerGroups:
    def __init__(self, settings: GroupSettings, *, rng: RandomSource, times_of: TimesOf) -> None:
        self._settings = settings
        self._rng = rng
        self._rebalance = ConsumerRebalance()
        self._time = ConsumerTimers(times_of=times_of)
        self._heartbeats = ConsumerHeartbeats(
            settings, rebalance=self._rebalance, times_of=times_of
        )
        self._classic = ClassicMembers(settings, rebalance=self._rebalance, time=self._time)
        self.groups: dict[str, ConsumerGroup] = {}

    @property
    def topics(self) -> TopicsView:
        return self._rebalance.topics

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of one of `CONSUMER_RECORD_KINDS`.

        Raises:
            CoordinatorRecordDamaged: the record cannot be read.
        """
        key = read_consumer_key(record.key)
        group = self.groups.get(key.group_id)
        if record.value is None:
            if key.kind is ConsumerRecordKind.GROUP:
                self.groups.pop(key.group_id, None)
                self._time.forget(key.group_id)
            elif group is not None:
                group.replay(key, None)
            return
        if group is None:
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        group.replay(key, read_consumer_value(key.kind, record.value))

    def on_loaded(self, draft: Draft) -> None:
        """After the log was replayed: start the members' deadlines; topics may have changed since."""
        for group in self.groups.values():
            self._time.start(group, draft.now_ms)
            self._time.arm(group.group_id, draft)
        self._refresh(self.groups.values(), draft, list(self._rebalance.names_for_patterns()))

    def on_heard_again(self, *, until_ms: int) -> None:
        """Extend all deadlines of members to this time, after a while without replies."""
        self._time.put_off(until_ms)

    def on_topics_changed(self, topics: TopicsView, draft: Draft) -> None:
        """Bump the epochs of groups whose subscribed topics were created, deleted or enlarged."""
        before = self._rebalance.topics
        self._rebalance.topics = topics
        changed = {
            name for name in before.keys() | topics.keys() if before.get(name) != topics.get(name)
        }
        new_names = [name for name in self._rebalance.names_for_patterns() if name in changed]
        concerned = [
            group
            for group in self.groups.values()
            if group.resolved or not changed.isdisjoint(group.topic_names())
        ]
        self._refresh(concerned, draft, new_names)

    def on_timer(self, group_id: str, draft: Draft) -> None:
        """Remove the members whose deadlines have passed, and set the timer for the next deadline."""
        group = self.groups.get(group_id)
        if group is None:
            self._time.forget(group_id)
            return
        silent = self._time.take_silent(group, draft.now_ms)
        if silent:
            logger.info(
                "group %s: out of time: %s",
                group_id,
                ", ".join(f"{member_id} ({due.value})" for member_id, due in silent.items()),
            )
            self._remove(group, silent, draft)
        self._time.arm(group_id, draft)

    # --- members of the new protocol

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeat,
        ticket: Ticket,
        draft: Draft,
        *,
        classic: ClassicGroup | None,
    ) -> None:
        """Reply to a heartbeat. A classic group of the same name is replaced if empty, else converted."""
        try:
            check_request(request)
            change = self._change_for(request, classic)
            if request.member_epoch < JOIN_EPOCH:
                reply = self._heartbeats.leave(change, request, wall_ms=draft.wall_ms)
            else:
                member_id = request.member_id or str(self._rng.uuid())
                reply = self._heartbeats.heartbeat(
                    change, request, member_id=member_id, wall_ms=draft.wall_ms
                )
        except RequestError as error:
            draft.answer(ticket, ConsumerGroupHeartbeatReply(error=error))
            return
        if classic is not None:
            self._take_over(classic, change, draft)
        self._keep_time(change, reply.member_id or NO_MEMBER_ID, draft.now_ms)
        self._carry_out(change, draft)
        draft.answer(ticket, reply)

    # --- members of the classic protocol

    def join(self, request: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        change = ConsumerDraft(self.groups[request.group_id])
        is_new = request.member_id == NO_MEMBER_ID
        member_id = f"{request.client_id[:255]}-{self._rng.uuid()}" if is_new else request.member_id
        try:
            self._classic.check_join(change.group, request)
            if is_new and request.instance_id is None and request.requires_known_member_id:
                error = MemberIdRequired(f"join group {request.group_id} again as {member_id}")
                reply = JoinGroupReply(error=error, member_id=member_id)
            else:
                reply = self._classic.join(
                    change, request, member_id=member_id, wall_ms=draft.wall_ms
                )
        except RequestError as refusal:
            draft.answer(ticket, JoinGroupReply(error=refusal, member_id=request.member_id))
            return
        self._keep_time(change, member_id, draft.now_ms)
        self._carry_out(change, draft)
        draft.answer(ticket, reply)

    def sync(self, request: SyncGroup, ticket: Ticket, draft: Draft) -> bool:
        """Reply to a sync; return True if the group becomes a classic one."""
        group = self.groups[request.group_id]
        try:
            reply = self._classic.sync(group, request, draft.now_ms)
        except RequestError as error:
            reply = SyncGroupReply(error=error)
        draft.answer(ticket, reply)
        return self._maybe_downgrade(group, draft)

    def classic_heartbeat(self, request: Heartbeat, ticket: Ticket, draft: Draft) -> bool:
        """Reply to a heartbeat; return True if the group becomes a classic one."""
        group = self.groups[request.group_id]
        reply = HeartbeatReply()
        try:
            self._classic.heartbeat(group, request, draft.now_ms)
        except RequestError as error:
            reply = HeartbeatReply(error=error)
        draft.answer(ticket, reply)
        return self._maybe_downgrade(group, draft)

    def leave(self, request: LeaveGroup, ticket: Ticket, draft: Draft) -> None:
        change = ConsumerDraft(self.groups[request.group_id])
        draft.answer(ticket, self._classic.leave(change, request, draft.wall_ms))
        self._carry_out(change, draft)

    # --- whole groups

    def remove_all(self, group_id: str, draft: Draft) -> tuple[str, ...]:
        """Remove all members of a group; return their ids."""
        group = self.groups[group_id]
        removed = tuple(group.members)
        if removed:
            self._remove(group, removed, draft)
        return removed

    def delete(self, group_id: str, draft: Draft) -> None:
        """Delete a group without members."""
        group = self.groups[group_id]
        assert not group.members, group_id
        change = ConsumerDraft(group)
        change.end(list(end_of_group(group)))
        change.flush(draft)

    # --- steps

    def _change_for(
        self, request: ConsumerGroupHeartbeat, classic: ClassicGroup | None
    ) -> ConsumerDraft:
        group = self.groups.get(request.group_id)
        if group is not None:
            return ConsumerDraft(group)
        if request.member_epoch != JOIN_EPOCH:
            raise GroupIdNotFound(f"there is no consumer group {request.group_id}")
        if classic is None:
            return ConsumerDraft(ConsumerGroup(request.group_id))
        if not classic.members:
            return replacing_empty(classic)
        return upgraded(classic, topics=self.topics, settings=self._settings)

    def _take_over(self, classic: ClassicGroup, change: ConsumerDraft, draft: Draft) -> None:
        """Answer the classic group's waiting requests: joins from the new group, syncs with RebalanceInProgress."""
        logger.info("group %s: a consumer group from now on", classic.group_id)
        members = change.group.members
        for member_id in members.keys() & classic.members.keys():
            self._time.keep_session(classic.group_id, members[member_id], draft.now_ms)
        joins, classic.joins_waiting = classic.joins_waiting, {}
        for member_id, ticket in joins.items():
            if member_id in members:
                reply = self._classic.joined(change, member_id)
                self._keep_time(change, member_id, draft.now_ms)
            else:
                fenced = FencedInstanceId(f"another member has taken the place of {member_id}")
                reply = JoinGroupReply(error=fenced, member_id=member_id)
            draft.answer(ticket, reply)
        syncs, classic.syncs_waiting = classic.syncs_waiting, {}
        for ticket in syncs.values():
            error = RebalanceInProgress("the group goes over to the consumer protocol")
            draft.answer(ticket, SyncGroupReply(error=error))

    def _maybe_downgrade(self, group: ConsumerGroup, draft: Draft) -> bool:
        if not may_downgrade(group, self._settings):
            self._time.arm(group.group_id, draft)
            return False
        logger.info("group %s: a classic group from now on", group.group_id)
        change = ConsumerDraft(group)
        downgrade(change, topics=self.topics, wall_ms=draft.wall_ms)
        change.flush(draft)
        return True

    def _refresh(
        self, groups: Iterable[ConsumerGroup], draft: Draft, new_names: Collection[str]
    ) -> None:
        for group in groups:
            if group.members:
                change = ConsumerDraft(group)
                self._rebalance.on_topics_changed(change, draft.wall_ms, new_names=new_names)
                change.flush(draft)

    def _remove(self, group: ConsumerGroup, member_ids: Iterable[str], draft: Draft) -> None:
        change = ConsumerDraft(group)
        self._rebalance.remove(change, member_ids, draft.wall_ms)
        self._carry_out(change, draft)

    def _keep_time(self, change: ConsumerDraft, member_id: str, now_ms: int) -> None:
        group = change.group
        before = self.groups.get(group.group_id)
        known = None if before is None else before.members.get(member_id)
        member = group.members.get(member_id)
        if member is not None:
            self._time.on_joined(group.group_id, known, member, now_ms)

    def _carry_out(self, change: ConsumerDraft, draft: Draft) -> None:
        group_id = change.group.group_id
        before = self.groups.get(group_id)
        if before is not None and not change.is_empty:
            for member_id in before.members.keys() - change.group.members.keys():
                self._time.of(group_id).drop_member(member_id)
        change.flush(draft)
        self._time.arm(group_id, draft)
