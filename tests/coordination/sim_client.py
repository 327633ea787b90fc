"""A consumer as clients behave: it joins, syncs, sends heartbeats, and reacts to errors as the Java client does.

It owns what its last sync gave it until something tells it that this is over.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from coordination.group_world import GROUP, TOPIC, join_of, subscription
from respool.coordination.decision import Ticket
from respool.coordination.groups.group_requests import (
    GroupRequest,
    Heartbeat,
    JoinGroupReply,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    TopicToCommit,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.errors import RequestError
from respool.model.ids import Offset

PARTITIONS = range(6)


class Vice(Enum):
    """What a badly made client does: it sends heartbeats all the same, and is gone once it is told off."""

    NONE = "none"
    NEVER_SYNCS = "never syncs"
    NEVER_REJOINS = "never joins again"


class SimClient:
    def __init__(
        self,
        ask: Callable[[GroupRequest], Ticket],
        *,
        instance_id: str | None,
        protocols: tuple[str, ...],
        rebalance_timeout_ms: int,
        is_old: bool,
        vice: Vice = Vice.NONE,
    ) -> None:
        self._ask = ask
        self.instance_id = instance_id
        self.protocols = protocols
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.is_old = is_old
        self.vice = vice
        self.is_alive = True
        self.member_id = ""
        self.generation = -1
        # The request it waits for, and what to do with the reply.
        self.ticket: Ticket | None = None
        self._on_reply: Callable[[Any], None] | None = None
        # What it joined, until it is synced.
        self._joined: JoinGroupReply | None = None
        # None: it owns nothing and knows it.
        self.owned: frozenset[int] | None = None

    @property
    def is_settled(self) -> bool:
        return self.owned is not None

    def step(self) -> None:
        """Do the next thing. Nothing, while it waits."""
        if not self.is_alive or self.ticket is not None:
            return
        if self.owned is not None or (self.vice is Vice.NEVER_SYNCS and self._joined is not None):
            self._send(
                Heartbeat(
                    group_id=GROUP,
                    member_id=self.member_id,
                    generation=self.generation,
                    instance_id=self.instance_id,
                ),
                self._on_heartbeat,
            )
        elif self._joined is not None:
            self._sync(self._joined)
        else:
            self._join()

    def on_reply(self, reply: Any) -> None:
        assert self._on_reply is not None
        react, self.ticket, self._on_reply = self._on_reply, None, None
        react(reply)

    def lose_connection(self) -> None:
        """The reply, if any, never arrives. It will ask again."""
        self.ticket = self._on_reply = None

    def commit(self, partition: int, offset: int) -> None:
        one = OffsetToCommit(partition, Offset(offset))
        request = OffsetCommit(
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            topics=(TopicToCommit(TOPIC, (one,)),),
        )
        self._send(request, self._on_committed)

    def leave(self) -> None:
        self.is_alive = False
        leaving = LeavingMember(self.member_id, self.instance_id)
        self.lose_connection()
        self._ask(LeaveGroup(group_id=GROUP, members=(leaving,)))

    def _send(self, request: GroupRequest, on_reply: Callable[[Any], None]) -> None:
        self._on_reply = on_reply
        self.ticket = self._ask(request)

    def _join(self) -> None:
        request = join_of(
            self.member_id,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            protocols=tuple(Protocol(name, subscription(TOPIC)) for name in self.protocols),
            requires_known_member_id=not self.is_old,
            supports_skipping_assignment=not self.is_old,
        )
        self._send(request, self._on_joined)

    def _on_joined(self, reply: JoinGroupReply) -> None:
        if isinstance(reply.error, MemberIdRequired):
            self.member_id = reply.member_id
        elif reply.error is not None:
            self._on_error(reply.error)
        else:
            assert reply.protocol_name in self.protocols
            self.member_id, self.generation = reply.member_id, reply.generation
            self._joined = reply

    def _sync(self, joined: JoinGroupReply) -> None:
        shares: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        names = list(shares)
        if names and not joined.skip_assignment:
            for partition in PARTITIONS:
                shares[names[partition % len(names)]].append(partition)
        else:
            shares = {}
        request = SyncGroup(
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            protocol_type=None if self.is_old else joined.protocol_type,
            protocol_name=None if self.is_old else joined.protocol_name,
            assignments=tuple(MemberAssignment(name, bytes(own)) for name, own in shares.items()),
        )
        self._send(request, self._on_synced)

    def _on_synced(self, reply: Any) -> None:
        self._joined = None
        if reply.error is not None:
            self._on_error(reply.error)
        else:
            self.owned = frozenset(reply.assignment)

    def _on_heartbeat(self, reply: Any) -> None:
        if reply.error is not None:
            self._on_error(reply.error)

    def _on_committed(self, reply: Any) -> None:
        error = reply.topics[0].partitions[0].error
        if error is not None:
            self._on_error(error)

    def _on_error(self, error: RequestError) -> None:
        if (
            self.vice is Vice.NEVER_REJOINS
            and isinstance(error, RebalanceInProgress)
            and self.owned
        ):
            return
        was_in = self._joined is not None or self.owned is not None
        self.owned = self._joined = None
        if isinstance(error, FencedInstanceId) or (self.vice is not Vice.NONE and was_in):
            self.is_alive = False
        elif isinstance(error, UnknownMemberId):
            self.member_id = ""
            self.generation = -1
