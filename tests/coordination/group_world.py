"""A group coordinator without a broker; see `ShardWorld`."""

import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from coordination.shard_world import ShardWorld
from respool.coordination.decision import Ticket
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.group_requests import (
    DescribedGroup,
    DescribeGroups,
    FetchedOffset,
    GroupState,
    GroupToFetch,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncGroupReply,
    TopicToCommit,
    TopicToFetch,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError
from respool.model.group_config import GroupConfig
from respool.model.ids import Offset

FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
GROUP = "riders"
TOPIC = "rides"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class CountingRandomSource:
    def __init__(self) -> None:
        self._count = 0

    def uuid(self) -> UUID:
        self._count += 1
        return UUID(int=self._count)

    def below(self, limit: int) -> int:
        return 0


class GroupWorld(ShardWorld[GroupCoordinatorShard]):
    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)  # type: ignore[arg-type]
        self.rng = CountingRandomSource()
        # Groups' own configuration.
        self.configs: dict[str, GroupConfig] = {}
        super().__init__()

    def new_shard(self) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(self.settings, rng=self.rng, config_of=self.configs.get)

    # --- short words for stories

    def join(self, member_id: str = "", **fields: Any) -> Ticket:
        return self.ask(join_of(member_id, **fields))

    def joined(self, ticket: Ticket) -> JoinGroupReply:
        reply = self.replies[ticket]
        assert isinstance(reply, JoinGroupReply)
        return reply

    def sync(self, member_id: str, generation: int, **fields: Any) -> Ticket:
        fields.setdefault("group_id", GROUP)
        shares = fields.pop("shares", {})
        return self.ask(
            SyncGroup(
                member_id=member_id,
                generation=generation,
                assignments=tuple(MemberAssignment(*share) for share in shares.items()),
                **fields,
            )
        )

    def synced(self, ticket: Ticket) -> SyncGroupReply:
        reply = self.replies[ticket]
        assert isinstance(reply, SyncGroupReply)
        return reply

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> HeartbeatReply:
        fields.setdefault("group_id", GROUP)
        reply = self.now(Heartbeat(member_id=member_id, generation=generation, **fields))
        assert isinstance(reply, HeartbeatReply)
        return reply

    def leave(self, *members: LeavingMember | str, group_id: str = GROUP) -> LeaveGroupReply:
        leaving = tuple(
            one if isinstance(one, LeavingMember) else LeavingMember(one) for one in members
        )
        reply = self.now(LeaveGroup(group_id=group_id, members=leaving))
        assert isinstance(reply, LeaveGroupReply)
        return reply

    def commit(
        self, offset: int, *, partition: int = 0, topic: str = TOPIC, **fields: Any
    ) -> RequestError | None:
        """Commit one offset; return what is wrong with that."""
        fields.setdefault("group_id", GROUP)
        metadata = fields.pop("metadata", "")
        one = OffsetToCommit(partition, Offset(offset), metadata=metadata)
        reply = self.now(OffsetCommit(topics=(TopicToCommit(topic, (one,)),), **fields))
        error = reply.topics[0].partitions[0].error
        assert error is None or isinstance(error, RequestError)
        return error

    def fetch(
        self,
        partition: int = 0,
        *,
        topic: str = TOPIC,
        group_id: str = GROUP,
        require_stable: bool = False,
    ) -> FetchedOffset:
        asked = GroupToFetch(group_id, (TopicToFetch(topic, (partition,)),))
        reply = self.now(OffsetFetch(groups=(asked,), require_stable=require_stable))
        fetched = reply.groups[0].topics[0].partitions[0]
        assert isinstance(fetched, FetchedOffset)
        return fetched

    def committed(self, partition: int = 0, *, topic: str = TOPIC, group_id: str = GROUP) -> int:
        return self.fetch(partition, topic=topic, group_id=group_id).offset

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        described = self.now(DescribeGroups(group_ids=(group_id,))).groups[0]
        assert isinstance(described, DescribedGroup)
        return described

    @property
    def state(self) -> GroupState:
        return self.describe().state

    def new_members(self, count: int, **fields: Any) -> list[str]:
        """Members that have joined and synced: a stable group, each with its own name as assignment."""
        tickets = [self.join(requires_known_member_id=False, **fields) for _ in range(count)]
        self.advance(DELAY_MS * (count + 1))
        replies = [self.joined(ticket) for ticket in tickets]
        ids = [reply.member_id for reply in replies]
        self.share_out(ids, replies[0].generation)
        return ids

    def new_static_members(self, *instance_ids: str, **fields: Any) -> list[str]:
        tickets = [self.join(instance_id=one, **fields) for one in instance_ids]
        self.advance(DELAY_MS * (len(instance_ids) + 1))
        replies = [self.joined(ticket) for ticket in tickets]
        ids = [reply.member_id for reply in replies]
        self.share_out(ids, replies[0].generation)
        return ids

    def share_out(self, member_ids: Sequence[str], generation: int) -> None:
        """Everybody syncs; the first is the leader."""
        shares = {one: one.encode() for one in member_ids}
        for follower in member_ids[1:]:
            self.sync(follower, generation)
        self.sync(member_ids[0], generation, shares=shares)
        assert self.state is GroupState.STABLE

    def rejoin(self, *member_ids: str, **fields: Any) -> list[JoinGroupReply]:
        """Everybody joins again; all must be answered by the last one's join."""
        tickets = [self.join(one, **fields) for one in member_ids]
        return [self.joined(ticket) for ticket in tickets]


def join_of(member_id: str = "", **fields: Any) -> JoinGroup:
    words: dict[str, Any] = {
        "group_id": GROUP,
        "client_id": "app",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": (Protocol("range", subscription(TOPIC)),),
    }
    return JoinGroup(member_id=member_id, **(words | fields))


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def error_of(reply: Any) -> type[RequestError] | None:
    return None if reply.error is None else type(reply.error)
