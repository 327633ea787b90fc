"""The rebalance of a classic group: the join phase, the choice of leader and protocol, and the sync phase.

Every method leaves the group in a state that ends with a member's request or a deadline.
"""

import logging
from collections.abc import Iterable, Mapping

from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_member import ClassicMember
from respool.coordination.groups.group_records import (
    StoredGroup,
    write_group_key,
    write_group_value,
)
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    GroupState,
    JoinedMember,
    JoinGroupReply,
    SyncGroupReply,
)
from respool.model.coordinator_errors import RebalanceInProgress, UnknownMemberId
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError

# Names and reasons come from clients: %r escapes line breaks, so that they cannot forge log lines.
logger = logging.getLogger(__name__)

# A client may send a rebalance timeout of 0. That may shorten the join phase, but members need time to sync; and if
# only silent static members are left, their session timeouts must expire before the next check.
WAIT_MS_MIN = 1_000


class Rebalance:
    def __init__(self, settings: GroupSettings) -> None:
        self._initial_delay_ms = settings.group_initial_rebalance_delay_ms

    # --- the join phase

    def begin_or_advance(self, group: ClassicGroup, draft: Draft, *, reason: str) -> None:
        """Start a rebalance for a change that needs a new generation, unless a rebalance is in its join phase."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.maybe_end_join_phase(group, draft)
        else:
            self.begin(group, draft, reason=reason)

    def begin(self, group: ClassicGroup, draft: Draft, *, reason: str) -> None:
        """Start a rebalance: all members have to join again."""
        logger.info(
            "group %r: rebalance after generation %d: %r", group.group_id, group.generation, reason
        )
        for member_id in list(group.syncs_waiting):
            self.answer_sync(
                group, member_id, draft, error=RebalanceInProgress("the group rebalances again")
            )
        group.pending_syncs.clear()
        group.sync_due_ms = None
        was_empty = group.state is GroupState.EMPTY
        group.state = GroupState.PREPARING_REBALANCE
        if was_empty:
            self._begin_initial(group, draft)
        elif group.has_all_joined or not group.members:
            self.end_join_phase(group, draft)
        else:
            self._wait_for_joins(group, draft.now_ms + group.rebalance_timeout_ms)

    def _begin_initial(self, group: ClassicGroup, draft: Draft) -> None:
        if not self._initial_delay_ms:
            self.end_join_phase(group, draft)
            return
        group.is_initial = True
        group.new_member_added = False
        group.initial_join_left_ms = max(0, group.rebalance_timeout_ms - self._initial_delay_ms)
        self._wait_for_joins(group, draft.now_ms + self._initial_delay_ms)

    def on_join_due(self, group: ClassicGroup, draft: Draft) -> None:
        """End the join phase; for the initial rebalance of an empty group, extend it as long as members join."""
        extension_ms = min(self._initial_delay_ms, group.initial_join_left_ms)
        if group.is_initial and group.new_member_added and extension_ms:
            group.new_member_added = False
            group.initial_join_left_ms -= extension_ms
            self._wait_for_joins(group, draft.now_ms + extension_ms)
        else:
            self.end_join_phase(group, draft)

    def maybe_end_join_phase(self, group: ClassicGroup, draft: Draft) -> None:
        # The initial rebalance is delayed on purpose.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_initial
            and group.has_all_joined
        ):
            self.end_join_phase(group, draft)

    def end_join_phase(self, group: ClassicGroup, draft: Draft) -> None:
        """Continue with the members that have joined. Static members stay until their sessions time out."""
        absent = [
            member.member_id
            for member in group.members.values()
            if member.instance_id is None and member.member_id not in group.joins_waiting
        ]
        if absent:
            logger.info("group %r: did not join in time: %r", group.group_id, ", ".join(absent))
            self.remove(group, absent, draft)
        group.join_due_ms = None
        group.is_initial = False
        if not group.members:
            self.empty(group, draft)
        elif not group.joins_waiting:
            self._wait_for_joins(group, draft.now_ms + max(WAIT_MS_MIN, group.rebalance_timeout_ms))
        else:
            self._begin_generation(group, draft)

    def _begin_generation(self, group: ClassicGroup, draft: Draft) -> None:
        if group.leader not in group.joins_waiting:
            group.leader = next(iter(group.joins_waiting))
        group.begin_generation(group.choose_protocol())
        logger.info(
            "group %r: generation %d with %d members, protocol %r, leader %r",
            group.group_id,
            group.generation,
            len(group.members),
            group.protocol_name,
            group.leader,
        )
        for member in group.members.values():
            self.answer_join(group, member, draft, reply=self.joined(group, member))
            member.is_new = False
            self.restart_session(group, member, draft.now_ms)
        self.expect_syncs(group, group.members, draft)

    def joined(self, group: ClassicGroup, member: ClassicMember) -> JoinGroupReply:
        """The join reply for the current generation; the leader's contains the members."""
        assert group.leader is not None
        is_leader = group.leader == member.member_id
        return JoinGroupReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader,
            members=members_for_leader(group) if is_leader else (),
        )

    # --- the sync phase

    def expect_syncs(self, group: ClassicGroup, member_ids: Iterable[str], draft: Draft) -> None:
        group.pending_syncs.update(member_ids)
        group.sync_due_ms = draft.now_ms + max(WAIT_MS_MIN, group.rebalance_timeout_ms)
        group.wake_by(group.sync_due_ms)

    def on_sync_due(self, group: ClassicGroup, draft: Draft) -> None:
        """Remove members that joined but did not sync, since nobody reads their partitions, and rebalance."""
        group.sync_due_ms = None
        silent = sorted(group.pending_syncs)
        self.remove(group, silent, draft)
        self.begin(group, draft, reason=f"did not sync in time: {', '.join(silent)}")

    def on_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            group.sync_due_ms = None

    # --- leaving

    def remove(self, group: ClassicGroup, member_ids: Iterable[str], draft: Draft) -> None:
        """Remove members. Their waiting requests get an error that makes live members join as new ones."""
        for member_id in member_ids:
            gone = UnknownMemberId(f"{member_id} is not in group {group.group_id} any more")
            self.answer_join(
                group,
                group.members[member_id],
                draft,
                reply=JoinGroupReply(error=gone, member_id=NO_MEMBER_ID),
            )
            self.answer_sync(group, member_id, draft, error=gone)
            group.remove(member_id)

    def on_removed(self, group: ClassicGroup, draft: Draft, *, reason: str) -> None:
        """After members or pending members were removed: rebalance, or stop waiting for them."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.begin(group, draft, reason=reason)
        else:
            self.maybe_end_join_phase(group, draft)

    def empty(self, group: ClassicGroup, draft: Draft) -> None:
        """The last member has left: write a record of the empty group, if the group is in the log."""
        group.become_empty()
        logger.info("group %r: empty in generation %d", group.group_id, group.generation)
        if group.stored is None:
            return
        stored = StoredGroup(
            protocol_type=group.protocol_type,
            generation=group.generation,
            protocol_name=None,
            leader=None,
            since_ms=draft.wall_ms,
            members=(),
        )
        draft.write(write_group_key(group.group_id), write_group_value(stored))

    # --- helpers

    def write_stable(
        self, group: ClassicGroup, assignments: Mapping[str, bytes], draft: Draft
    ) -> None:
        """Write the generation and its assignments; replaying the record makes the group Stable."""
        assert group.protocol_name is not None
        stored = StoredGroup(
            protocol_type=group.protocol_type,
            generation=group.generation,
            protocol_name=group.protocol_name,
            leader=group.leader,
            since_ms=draft.wall_ms,
            members=tuple(
                member.to_stored(
                    protocol_name=group.protocol_name,
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ),
        )
        draft.write(write_group_key(group.group_id), write_group_value(stored))

    def answer_join(
        self, group: ClassicGroup, member: ClassicMember, draft: Draft, *, reply: JoinGroupReply
    ) -> None:
        ticket = group.joins_waiting.pop(member.member_id, None)
        if ticket is not None:
            draft.answer(ticket, reply)

    def answer_sync(
        self, group: ClassicGroup, member_id: str, draft: Draft, *, error: RequestError
    ) -> None:
        ticket = group.syncs_waiting.pop(member_id, None)
        if ticket is not None:
            draft.answer(ticket, SyncGroupReply(error=error))
            self.restart_session(group, group.members[member_id], draft.now_ms)

    def restart_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        member.expires_at_ms = now_ms + member.session_timeout_ms
        group.wake_by(member.expires_at_ms)

    def _wait_for_joins(self, group: ClassicGroup, until_ms: int) -> None:
        group.join_due_ms = until_ms
        group.wake_by(until_ms)


def members_for_leader(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    assert group.protocol_name is not None
    name = group.protocol_name
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata_for(name))
        for member in group.members.values()
    )
