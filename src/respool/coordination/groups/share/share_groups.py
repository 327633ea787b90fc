"""The share groups (KIP-932) of one shard: requests, deadlines, and results of the share coordinator.

Groups change only by `replay`. Deadlines, held replies and what is under way at the share coordinator are in memory
only: a new coordinator restarts them.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from respool.coordination.decision import CoordinatorRecord, Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.consumer_member import LEAVE_EPOCH
from respool.coordination.groups.consumer.consumer_timers import Due, MemberDeadlines
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.share.share_group import (
    ShareGroup,
    ShareGroupDraft,
    partitions_of,
)
from respool.coordination.groups.share.share_group_records import (
    ShareRecordKind,
    read_share_key,
    read_share_value,
)
from respool.coordination.groups.share.share_group_requests import (
    AlterShareStarts,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatReply,
    ShareStateChange,
    ShareStatesChanged,
    ShareStatesInitialized,
    ShareStatesRemoved,
)
from respool.coordination.groups.share.share_heartbeat import (
    assign,
    assignable,
    check_heartbeat,
    join_or_stay,
    leave,
    reconcile,
)
from respool.coordination.groups.share.share_state_changes import (
    ShareStateChanges,
    is_waiting_for,
)
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidGroupId,
)
from respool.model.errors import RequestError
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.model.share.share_settings import ShareGroupSettings

logger = logging.getLogger(__name__)

# Every group has one timer; the second part of its key is the group id.
SHARE_TIMER = "share group"
# How long a heartbeat waits until the partitions of its member have state.
HELD_MS_MAX = 1_000
# After an attempt to initialize or delete state that failed.
RETRY_MS = 1_000
_NO_MEMBER = ""

# By group id: an operator may change them at any time.
SettingsOf: TypeAlias = Callable[[str], ShareGroupSettings]


class ShareGroups:
    def __init__(
        self,
        settings: ShareBrokerSettings,
        *,
        settings_of: SettingsOf,
        is_other_group: Callable[[str], bool],
    ) -> None:
        """`is_other_group` is true of the name of a group of another kind."""
        self._size_max = settings.group_share_max_size
        self._settings_of = settings_of
        self._is_other_group = is_other_group
        self._states = ShareStateChanges()
        self._deadlines: dict[str, MemberDeadlines] = {}
        # Heartbeats that wait for state, by group and member: the newest one of each.
        self._held: dict[str, dict[str, Ticket]] = {}
        self.topics: TopicsView = {}
        self.groups: dict[str, ShareGroup] = {}

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of one of `SHARE_RECORD_KINDS`.

        Raises:
            CoordinatorRecordDamaged: the record cannot be read.
        """
        key = read_share_key(record.key)
        group = self.groups.get(key.group_id)
        if record.value is None:
            if key.kind is ShareRecordKind.GROUP:
                self.groups.pop(key.group_id, None)
                self._deadlines.pop(key.group_id, None)
            elif group is not None:
                group.replay(key, None)
            return
        if group is None:
            group = self.groups[key.group_id] = ShareGroup(key.group_id)
        group.replay(key, read_share_value(key.kind, record.value))

    def on_loaded(self, draft: Draft) -> None:
        """After the log was replayed: start sessions, and do again what was under way. Topics may have changed."""
        for group in self.groups.values():
            for member_id in group.members:
                self._keep_session(group.group_id, member_id, draft.now_ms)
        self._refresh(self.groups.values(), draft)

    def on_heard_again(self, *, until_ms: int) -> None:
        """Extend all sessions to this time, after a while without replies."""
        for deadlines in self._deadlines.values():
            deadlines.put_off(until_ms)

    def on_topics_changed(self, topics: TopicsView, draft: Draft) -> None:
        before, self.topics = self.topics, topics
        changed = {
            name for name in before.keys() | topics.keys() if before.get(name) != topics.get(name)
        }
        ids = {view[name].topic_id for view in (before, topics) for name in changed if name in view}
        concerned = [
            group
            for group in self.groups.values()
            if not changed.isdisjoint(group.topic_names())
            or not ids.isdisjoint(group.states.initialized)
            or not ids.isdisjoint(group.states.initializing)
        ]
        self._refresh(concerned, draft)

    def on_timer(self, group_id: str, draft: Draft) -> None:
        """Remove members whose sessions have ended, answer heartbeats that waited too long, and try again."""
        group = self.groups.get(group_id)
        deadlines = self._deadlines.get(group_id)
        if group is None or deadlines is None:
            return
        change = ShareGroupDraft(group)
        silent = []
        for due, member_id in deadlines.take_overdue(draft.now_ms):
            if due is Due.SESSION and member_id in group.members:
                silent.append(member_id)
            elif due is Due.REPLY:
                self._answer_held(change, draft, [member_id])
        if silent:
            logger.info("group %s: out of time: %s", group_id, ", ".join(silent))
            for member_id in silent:
                change.end_member(member_id)
                deadlines.drop_member(member_id)
            change.begin_epoch(self.topics)
        self._finish(change, draft)

    # --- members

    def heartbeat(self, request: ShareGroupHeartbeat, ticket: Ticket, draft: Draft) -> None:
        try:
            check_heartbeat(request)
            change = self._change_for(request)
            if request.member_epoch == LEAVE_EPOCH:
                self._leave(change, request, ticket, draft)
                return
            must_hear = join_or_stay(change, request, topics=self.topics, size_max=self._size_max)
        except RequestError as error:
            draft.answer(ticket, ShareGroupHeartbeatReply(error=error))
            return
        member_id = request.member_id
        self._keep_session(request.group_id, member_id, draft.now_ms)
        if must_hear:
            self._states.need(change, self.topics)
        if must_hear and self._is_waiting(change.group, member_id):
            self._hold(request.group_id, member_id, ticket, draft)
        else:
            self._reply(change, member_id, ticket, draft, must_hear=must_hear)
        self._finish(change, draft)

    def _leave(
        self, change: ShareGroupDraft, request: ShareGroupHeartbeat, ticket: Ticket, draft: Draft
    ) -> None:
        leave(change, request, topics=self.topics)
        self._drop_held(request.group_id, request.member_id, draft)
        self._deadlines_of(request.group_id).drop_member(request.member_id)
        draft.answer(
            ticket,
            ShareGroupHeartbeatReply(member_id=request.member_id, member_epoch=LEAVE_EPOCH),
        )
        self._finish(change, draft)

    def _change_for(self, request: ShareGroupHeartbeat) -> ShareGroupDraft:
        group = self.groups.get(request.group_id)
        if group is not None:
            return ShareGroupDraft(group)
        if request.member_epoch != 0 or self._is_other_group(request.group_id):
            raise GroupIdNotFound(f"there is no share group {request.group_id}")
        return ShareGroupDraft(ShareGroup(request.group_id))

    def _reply(
        self,
        change: ShareGroupDraft,
        member_id: str,
        ticket: Ticket,
        draft: Draft,
        *,
        must_hear: bool,
    ) -> None:
        before = change.group.members[member_id]
        assign(change, topics=self.topics, wall_ms=draft.wall_ms)
        member = reconcile(change, member_id)
        is_new = must_hear or member.epoch != before.epoch
        interval_ms = self._settings_of(change.group.group_id).heartbeat_interval_ms
        draft.answer(
            ticket,
            ShareGroupHeartbeatReply(
                member_id=member_id,
                member_epoch=member.epoch,
                heartbeat_interval_ms=interval_ms,
                assignment=member.assigned if is_new else None,
            ),
        )

    # --- held replies

    def _is_waiting(self, group: ShareGroup, member_id: str) -> bool:
        """True if partitions of the member get their state soon."""
        member = group.members.get(member_id)
        return member is not None and is_waiting_for(
            group, partitions_of(member.topic_names, self.topics)
        )

    def _hold(self, group_id: str, member_id: str, ticket: Ticket, draft: Draft) -> None:
        self._drop_held(group_id, member_id, draft)
        self._held.setdefault(group_id, {})[member_id] = ticket
        self._deadlines_of(group_id).put(Due.REPLY, member_id, draft.now_ms + HELD_MS_MAX)

    def _drop_held(self, group_id: str, member_id: str, draft: Draft) -> None:
        """Answer an older heartbeat of the member, whose client does not wait for it any more."""
        held = self._held.get(group_id, {})
        ticket = held.pop(member_id, None)
        if ticket is not None:
            error = CoordinatorNotAvailable(f"member {member_id} has sent a newer request")
            draft.answer(ticket, ShareGroupHeartbeatReply(error=error))
        if not held:
            self._held.pop(group_id, None)

    def _answer_held(
        self, change: ShareGroupDraft, draft: Draft, member_ids: Iterable[str]
    ) -> None:
        held = self._held.get(change.group.group_id, {})
        for member_id in member_ids:
            ticket = held.pop(member_id, None)
            self._deadlines_of(change.group.group_id).drop(Due.REPLY, member_id)
            if ticket is not None and member_id in change.group.members:
                self._reply(change, member_id, ticket, draft, must_hear=True)
        if not held:
            self._held.pop(change.group.group_id, None)

    # --- state at the share coordinator

    def change_states(self, request: ShareStateChange, ticket: Ticket, draft: Draft) -> None:
        """Alter or delete offsets of an empty group, or delete the group."""
        group = self.groups.get(request.group_id)
        error: RequestError | None = None
        if group is None and (
            not isinstance(request, AlterShareStarts) or self._is_other_group(request.group_id)
        ):
            error = GroupIdNotFound(f"there is no share group {request.group_id}")
        elif not request.group_id or not fits_a_string(request.group_id):
            error = InvalidGroupId(f"a group id of {len(request.group_id)} characters")
        if error is not None:
            draft.answer(ticket, ShareStatesChanged(error=error))
            return
        change = ShareGroupDraft(group or ShareGroup(request.group_id))
        self._states.ask(change, request, ticket, draft, self.topics)
        self._finish(change, draft)

    def on_initialized(self, result: ShareStatesInitialized, draft: Draft) -> None:
        change = ShareGroupDraft(self.groups.get(result.group_id) or ShareGroup(result.group_id))
        before = assignable(change.group, self.topics)
        self._states.initialized(change, result, draft, self.topics)
        if change.group.is_assigned and assignable(change.group, self.topics) != before:
            change.begin_epoch(self.topics)
        self._on_result(change, result.error, draft)

    def on_removed(self, result: ShareStatesRemoved, draft: Draft) -> None:
        change = ShareGroupDraft(self.groups.get(result.group_id) or ShareGroup(result.group_id))
        self._states.removed(change, result, draft, self.topics)
        self._on_result(change, result.error, draft)

    def _on_result(self, change: ShareGroupDraft, error: RequestError | None, draft: Draft) -> None:
        group = change.group
        if group.members:
            self._states.need(change, self.topics)
            ready = [
                member_id
                for member_id in self._held.get(group.group_id, ())
                if not self._is_waiting(change.group, member_id)
            ]
            self._answer_held(change, draft, ready)
        for ticket, request in self._states.take_waiting(group.group_id):
            if change.group.epoch == 0 and not isinstance(request, AlterShareStarts):
                gone = GroupIdNotFound(f"there is no share group {group.group_id}")
                draft.answer(ticket, ShareStatesChanged(error=gone))
            else:
                self._states.ask(change, request, ticket, draft, self.topics)
        if error is None:
            self._finish(change, draft)
            return
        logger.warning("group %s: its state at the share coordinator: %s", group.group_id, error)
        self._deadlines_of(group.group_id).put(Due.RETRY, _NO_MEMBER, draft.now_ms + RETRY_MS)
        self._flush(change, draft)

    # --- steps

    def _refresh(self, groups: Iterable[ShareGroup], draft: Draft) -> None:
        for group in list(groups):
            change = ShareGroupDraft(group)
            self._states.drop_deleted_topics(change, self.topics)
            self._states.need(change, self.topics)
            if group.members and group.hash_of_topics(self.topics) != group.metadata_hash:
                change.begin_epoch(self.topics)
            self._finish(change, draft)

    def _finish(self, change: ShareGroupDraft, draft: Draft) -> None:
        self._states.carry_on(change.group, draft)
        self._flush(change, draft)

    def _flush(self, change: ShareGroupDraft, draft: Draft) -> None:
        change.flush(draft)
        group_id = change.group.group_id
        deadlines = self._deadlines.get(group_id)
        at_ms = None if deadlines is None else deadlines.timer_to_set()
        if at_ms is not None:
            draft.set_timer((SHARE_TIMER, group_id), at_ms)

    def _deadlines_of(self, group_id: str) -> MemberDeadlines:
        deadlines = self._deadlines.get(group_id)
        if deadlines is None:
            deadlines = self._deadlines[group_id] = MemberDeadlines()
        return deadlines

    def _keep_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._settings_of(group_id).session_timeout_ms
        self._deadlines_of(group_id).put(Due.SESSION, member_id, now_ms + timeout_ms)
