"""A consumer of the classic protocol that shares out partitions for real, also in a group of both protocols."""

from collections.abc import Mapping
from typing import Any

from coordination.consumer_world import ConsumerWorld
from coordination.group_world import GROUP, REBALANCE_MS, SESSION_MS
from respool.coordination.decision import Ticket
from respool.coordination.groups.consumer.assignors import Subscriber, assign_uniform
from respool.coordination.groups.consumer.partition_sets import PartitionSet, difference
from respool.coordination.groups.consumer.topics_view import with_ids, with_names
from respool.coordination.groups.consumer_protocol import (
    NamedPartitionSet,
    read_assignment,
    read_subscription,
    write_assignment,
)
from respool.coordination.groups.group_requests import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    Protocol,
    SyncGroup,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.errors import RequestError

EAGER, COOPERATIVE = "range", "cooperative-sticky"


def subscription_of(
    topics: tuple[str, ...], owned: NamedPartitionSet | None = None, *, version: int = 1
) -> bytes:
    """What a consumer says of itself, in version 0 or 1."""

    def strings(names: tuple[str, ...]) -> bytes:
        return b"".join(len(name).to_bytes(2, "big") + name.encode() for name in names)

    data = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + strings(topics)
    data += b"\xff\xff\xff\xff"
    if version == 0:
        return data
    owned = owned or {}
    data += len(owned).to_bytes(4, "big")
    for name, numbers in owned.items():
        data += strings((name,)) + len(numbers).to_bytes(4, "big")
        data += b"".join(number.to_bytes(4, "big") for number in sorted(numbers))
    return data


class SimClassic:
    """Eager: gives everything up before it joins again. Cooperative: only what it is told to, and then joins again."""

    def __init__(
        self,
        world: ConsumerWorld,
        name: str,
        *,
        topics: tuple[str, ...],
        protocol: str = EAGER,
        instance_id: str | None = None,
    ) -> None:
        self._world = world
        self.name = name
        self.topics = topics
        self.protocol = protocol
        self.instance_id = instance_id
        self.is_alive = True
        self.member_id = ""
        self.generation = -1
        self.uses: PartitionSet = {}
        self.ticket: Ticket | None = None
        self._asked: type = JoinGroup
        self._next: type = JoinGroup
        self._joined = JoinGroupReply()
        self._said_topics = topics

    @property
    def is_settled(self) -> bool:
        return self._next is Heartbeat

    def step(self) -> None:
        """Take the reply if it is there, and do the next thing."""
        if self.is_alive and self.take_reply() and self.is_alive:
            if self.is_settled and self.topics != self._said_topics:
                self._next = JoinGroup
            self.send()

    def send(self) -> None:
        self._asked = self._next
        request = {JoinGroup: self._join, SyncGroup: self._sync, Heartbeat: self._heartbeat}
        self.ticket = self._world.ask(request[self._next]())

    def take_reply(self) -> bool:
        if self.ticket is None:
            return True
        reply = self._world.replies.get(self.ticket)
        if reply is None:
            return False
        self.ticket = None
        on_reply = {
            JoinGroup: self._on_joined,
            SyncGroup: self._on_synced,
            Heartbeat: self._on_beat,
        }
        on_reply[self._asked](reply)
        return True

    def lose_reply(self) -> None:
        self.ticket = None
        if self._asked is SyncGroup:
            self._next = JoinGroup

    def kill(self) -> None:
        self.is_alive = False
        self.uses = {}

    def leave(self) -> None:
        self.kill()
        leaving = LeavingMember(self.member_id, self.instance_id)
        self._world.ask(LeaveGroup(group_id=GROUP, members=(leaving,)))

    # --- what it asks

    def _join(self) -> GroupRequest:
        if self.protocol == EAGER:
            self.uses = {}
        self._said_topics = self.topics
        owned = with_names(self.uses, self._world.topics)
        metadata = subscription_of(self.topics, owned, version=0 if self.protocol == EAGER else 1)
        return JoinGroup(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(Protocol(self.protocol, metadata),),
        )

    def _sync(self) -> GroupRequest:
        joined = self._joined
        shares: Mapping[str, bytes] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            shares = self._share_out(joined)
        return SyncGroup(
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=tuple(MemberAssignment(*share) for share in shares.items()),
        )

    def _heartbeat(self) -> GroupRequest:
        return Heartbeat(
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
        )

    def _share_out(self, joined: JoinGroupReply) -> dict[str, bytes]:
        topics = self._world.topics
        told = {one.member_id: read_subscription(one.metadata) for one in joined.members}
        owned = {member_id: with_ids(one.owned, topics) for member_id, one in told.items()}
        subscribers = {
            member_id: Subscriber(
                frozenset(topics[name].topic_id for name in one.topic_names if name in topics),
                owned[member_id],
            )
            for member_id, one in told.items()
        }
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        shares = assign_uniform(subscribers, counts)
        for member_id in shares:
            for other, theirs in owned.items():
                # Cooperative: what another has it must give up first; eager members have nothing.
                if other != member_id:
                    shares[member_id] = difference(shares[member_id], theirs)
        return {
            member_id: write_assignment(with_names(share, topics), version=1)
            for member_id, share in shares.items()
        }

    # --- what it is answered

    def _on_joined(self, reply: JoinGroupReply) -> None:
        if isinstance(reply.error, MemberIdRequired):
            self.member_id = reply.member_id
        elif reply.error is not None:
            self._on_error(reply.error)
        else:
            self.member_id, self.generation = reply.member_id, reply.generation
            self._joined = reply
            self._next = SyncGroup

    def _on_synced(self, reply: Any) -> None:
        if reply.error is not None:
            self._on_error(reply.error)
            return
        given = with_ids(read_assignment(reply.assignment).partitions, self._world.topics)
        gave_up = difference(self.uses, given)
        self.uses = given
        self._next = JoinGroup if gave_up else Heartbeat

    def _on_beat(self, reply: Any) -> None:
        if reply.error is not None:
            self._on_error(reply.error)

    def _on_error(self, error: RequestError) -> None:
        self._next = JoinGroup
        if isinstance(error, FencedInstanceId):
            self.kill()
        elif isinstance(error, UnknownMemberId):
            self.member_id, self.generation, self.uses = "", -1, {}
        elif not isinstance(error, RebalanceInProgress):
            self.uses = {}
