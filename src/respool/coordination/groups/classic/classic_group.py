"""A group of the classic protocol: its members, their protocols, and the requests that wait for a reply.

```
          first member joins                all joined, or timeout
  Empty ---------------------> Preparing --------------------------> Completing
    ^                          Rebalance <-------------------------- Rebalance
    |   no member joined          |  ^    a member joins, leaves, changes  |
    +-----------------------------+  |                                    | the leader sends
                                     +------------- Stable <--------------+ the assignment
```
`stored` is the state in the log: it changes only by `replay`. Everything else is the live group, which is ahead of the
log during a rebalance. Both agree again when the group is Stable or Empty, since a record is written then. If the
coordinator fails in between, the group restarts from `stored`, and members of the unfinished generation have to
rejoin.
"""

from collections import Counter

from respool.coordination.decision import Ticket
from respool.coordination.groups.classic.classic_member import ClassicMember
from respool.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from respool.coordination.groups.group_records import StoredGroup
from respool.coordination.groups.group_requests import NO_MEMBER_ID, GroupState, Protocol
from respool.model.coordinator_errors import FencedInstanceId, UnknownMemberId


class ClassicGroup:
    __slots__ = (
        "_subscribed",
        "_supporters",
        "generation",
        "group_id",
        "initial_join_left_ms",
        "is_initial",
        "join_due_ms",
        "joins_waiting",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "stored",
        "sync_due_ms",
        "syncs_waiting",
        "wake_at_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # The state that a restart would load.
        self.stored: StoredGroup | None = None

        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader: str | None = None
        # In the order in which they joined.
        self.members: dict[str, ClassicMember] = {}
        # Instance id -> member id. Invariant: exactly the members that have an instance id.
        self.static_members: dict[str, str] = {}
        # Member ids that were assigned, with the deadline of their joins. Not members yet.
        self.pending_joins: dict[str, int] = {}
        # Members whose join or sync waits for its reply. Invariant: all are members.
        self.joins_waiting: dict[str, Ticket] = {}
        self.syncs_waiting: dict[str, Ticket] = {}
        # Members of this generation that have not sent a SyncGroup yet.
        self.pending_syncs: set[str] = set()

        # The deadline of the join phase; None outside of it.
        self.join_due_ms: int | None = None
        # The deadline by which all members must sync; None if all have.
        self.sync_due_ms: int | None = None
        # The rebalance began with an empty group: it waits a little for more members, and keeps waiting while members
        # join and time is left.
        self.is_initial = False
        self.initial_join_left_ms = 0
        self.new_member_added = False
        # When the group's only timer fires. It may fire early and is then set again, so a heartbeat need not move it.
        # Invariant: not later than any deadline of the group.
        self.wake_at_ms: int | None = None

        # The number of members that support each protocol.
        self._supporters: Counter[str] = Counter()
        self._subscribed: frozenset[str] | None = frozenset()

    # --- queries

    @property
    def has_all_joined(self) -> bool:
        return len(self.joins_waiting) == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_forgettable(self) -> bool:
        """True if the group is neither in the log nor known to any client, so it can be dropped."""
        return self.stored is None and not self.members and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_waiting(self, member: ClassicMember) -> bool:
        return member.member_id in self.joins_waiting or member.member_id in self.syncs_waiting

    def reads(self, topic: str) -> bool:
        """True if a member subscribes to the topic, or if the subscriptions are unknown."""
        if not self.members or not self.uses_consumer_protocol:
            return False
        return self._subscribed is None or topic in self._subscribed

    @property
    def knows_subscriptions(self) -> bool:
        return self.uses_consumer_protocol and self._subscribed is not None

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """True if all members and one with these protocols have a protocol in common."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters[protocol.name] == len(self.members) for protocol in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that a request comes from.

        Raises:
            FencedInstanceId: another member has taken the static member's place.
            UnknownMemberId: there is no such member.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                raise FencedInstanceId(
                    f"{instance_id} of group {self.group_id} is member {current} now, not {member_id}"
                )
            if current is None:
                member_id = NO_MEMBER_ID
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id or instance_id}")
        return member

    def choose_protocol(self) -> str:
        """The protocol with most votes among those that all members support; on a tie, the first one voted for."""
        everyone = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # --- changes of the live group

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, member.instance_id
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member. The caller has answered its waiting request."""
        assert member_id not in self.joins_waiting, member_id
        assert member_id not in self.syncs_waiting, member_id
        member = self.members.pop(member_id)
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self.pending_syncs.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Give the old member's instance id and assignment to the new one, and its leadership if it was the leader."""
        led = self.leader == old.member_id
        self.remove(old.member_id)
        self.add(new)
        new.assignment = old.assignment
        new.is_new = False
        if led:
            self.leader = new.member_id

    def update_protocols(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def begin_generation(self, protocol_name: str) -> None:
        self.generation += 1
        self.protocol_name = protocol_name
        self.state = GroupState.COMPLETING_REBALANCE
        self._learn_subscriptions()

    def become_empty(self) -> None:
        """Start a generation without members. The caller has removed them."""
        assert not self.members
        self.generation += 1
        self.protocol_name = None
        self.leader = None
        self.state = GroupState.EMPTY
        self.join_due_ms = self.sync_due_ms = None
        self.is_initial = False
        self._learn_subscriptions()

    def wake_by(self, deadline_ms: int) -> None:
        if self.wake_at_ms is None or deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    # --- replay

    def replay(self, stored: StoredGroup) -> None:
        """Apply a record: the group becomes Stable with these members, or Empty.

        State outside the log is kept for these members: waiting requests, pending syncs, their other protocols.
        """
        self.stored = stored
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type
        self.protocol_name = stored.protocol_name
        self._replay_members(stored)
        if stored.leader in self.members:
            self.leader = stored.leader
        self.state = GroupState.STABLE if stored.members else GroupState.EMPTY
        self.join_due_ms = None
        self.is_initial = False
        self._learn_subscriptions()

    def _replay_members(self, stored: StoredGroup) -> None:
        before = self.members
        self.members = {}
        self.static_members = {}
        self._supporters.clear()
        self.leader = None
        for one in stored.members:
            assert stored.protocol_name is not None
            member = ClassicMember.from_stored(one, protocol_name=stored.protocol_name)
            known = before.get(one.member_id)
            if known is not None:
                member.expires_at_ms = known.expires_at_ms
                member.is_new = known.is_new
                if (
                    known.supports(stored.protocol_name)
                    and known.metadata_for(stored.protocol_name) == one.subscription
                ):
                    member.protocols = known.protocols
            self.add(member)
        for gone in before.keys() - self.members.keys():
            assert gone not in self.joins_waiting, gone
            assert gone not in self.syncs_waiting, gone
            assert gone not in self.pending_syncs, gone

    def _learn_subscriptions(self) -> None:
        if not self.uses_consumer_protocol:
            self._subscribed = None
        elif self.protocol_name is None:
            self._subscribed = frozenset()
        else:
            name = self.protocol_name
            self._subscribed = subscribed_topics(
                member.metadata_for(name) for member in self.members.values()
            )

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]
