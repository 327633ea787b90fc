"""Clients of a topic that is shrunk and grown: an operator who does it, and a group member to whom order matters."""

from collections.abc import Callable
from typing import Any

from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord
from respool.sim.checks.layout_history import ShownOrder
from respool.sim.clients.consumers import AssignedConsumer
from respool.sim.clients.group_member import UNKNOWN_MEMBER_ID, GroupMember
from respool.sim.clients.producers import IdempotentProducer
from respool.sim.clients.sim_client import (
    COORDINATOR_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    OK,
    RETRIABLE,
    SimClient,
)
from respool.wire.api_table import Api
from respool.wire.layout_change import LAYOUT_CHANGE_VERSION, LayoutChangeKind

INVALID_PARTITIONS = 37
POLICY_VIOLATION = 44
REASSIGNMENT_IN_PROGRESS = 60
# Longer than a run: a group has a member all the time.
NEVER_MS = 1_800_000
TRIES_MAX = 20


class LayoutOperator(SimClient):
    """Shrinks, grows and retires, and asks again while replicas are being aligned."""

    def __init__(
        self,
        name: str,
        *,
        topic: str,
        counts: tuple[int, ...],
        retires: bool,
        may_begin: Callable[[], bool],
        **client: Any,
    ) -> None:
        """`counts`: the numbers of partitions, the largest first. `retires`: also those with records."""
        super().__init__(name, **client)
        self._may_begin = may_begin
        self._topic = topic
        self._counts = counts
        self._retires = retires

    async def work(self) -> None:
        while not self.is_winding_down:
            await self.pause(3_000)
            if not self._may_begin():
                continue
            whim = self.rng.random()
            if self._retires and whim < 0.2:
                kind = self.rng.choice((LayoutChangeKind.RETIRE, LayoutChangeKind.RETIRE_FORCED))
                await self._change(kind, 0)
            elif whim < 0.6:
                await self._change(LayoutChangeKind.SHRINK, self.rng.choice(self._counts[1:]))
            else:
                await self._change(LayoutChangeKind.USUAL, self.rng.choice(self._counts[:-1]))

    async def _change(self, kind: LayoutChangeKind, count: int) -> None:
        for _ in range(TRIES_MAX):
            if self.is_winding_down:
                return
            try:
                reply = await self.ask(
                    self.any_broker(),
                    Api.CREATE_PARTITIONS,
                    LAYOUT_CHANGE_VERSION,
                    topics=[{"name": self._topic, "count": count, "assignments": None}],
                    timeout=2_000,
                    validate_only=False,
                    layout_change=str(kind),
                )
            except PeerUnreachable:
                await self.pause()
                continue
            code = int(reply.results[0].error_code)
            if code == OK:
                self.history.counts[f"shrunk topics: {kind or 'grow'}"] += 1
                return
            if code in (INVALID_PARTITIONS, POLICY_VIOLATION):
                # There is nothing to do, or what is sealed is not empty.
                return
            if code != REASSIGNMENT_IN_PROGRESS and code not in RETRIABLE:
                self.unexpected(f"{kind or 'grow'} to {count}", code)
                return
            await self.pause()


class _KnowsHeirs(SimClient):
    """Partitions that were taken away are in no broker's metadata: it asks one broker after another."""

    async def leader_of(self, name: TopicPartition) -> BrokerId:
        if name not in self._leaders:
            await self._look_up(name)
        return self._leaders.setdefault(name, self.any_broker())


class LayoutProducer(_KnowsHeirs, IdempotentProducer):
    pass


class SteadyMember(GroupMember):
    """The only member of its group from the beginning to the end: it stays through every failover."""

    session_timeout_ms = NEVER_MS
    has_whims = False

    def __init__(self, name: str, *, order: ShownOrder | None, **member: Any) -> None:
        """`order`: set if brokers promise a key's order to its group."""
        super().__init__(name, **member)
        self._order = order
        topics = sorted({one.topic for one in self.names})
        # ConsumerProtocol, version 0: topics, and no user data.
        self.subscription = (
            b"\x00\x00"
            + len(topics).to_bytes(4, "big")
            + b"".join(len(one).to_bytes(2, "big") + one.encode() for one in topics)
            + b"\xff\xff\xff\xff"
        )

    @property
    def has_joined(self) -> bool:
        """True once the coordinator has stored that it is a member: it keeps it through failovers."""
        return bool(self._view.committed)

    def on_record(self, name: TopicPartition, offset: int, record: NewRecord) -> None:
        super().on_record(name, offset, record)
        if self._order is not None:
            self._order.on_record(record)

    async def _leave(self) -> int:
        """Until the coordinator has taken it out: else brokers wait for it for as long as its session lasts."""
        while member_id := self._member_id:
            try:
                code = await super()._leave()
            except PeerUnreachable:
                code = COORDINATOR_NOT_AVAILABLE
            if code not in (OK, UNKNOWN_MEMBER_ID):
                self._member_id = member_id
                self._is_fine(code)
                await self.pause()
        return OK


class LayoutReader(_KnowsHeirs, AssignedConsumer):
    """Reads all partitions, whatever becomes of them, also those that are taken away and begin again."""

    def __init__(self, name: str, *, forgets: bool, **consumer: Any) -> None:
        super().__init__(name, **consumer)
        self._forgets = forgets

    def _check_ends(self, name: TopicPartition, high_watermark: int, stable_offset: int) -> None:
        if not self._forgets:
            super()._check_ends(name, high_watermark, stable_offset)

    async def _read_on(self, name: TopicPartition, positions: dict[TopicPartition, int]) -> None:
        if not self._forgets:
            await super()._read_on(name, positions)
            return
        polled = await self.poll(name, positions[name])
        if polled.code == OFFSET_OUT_OF_RANGE:
            positions[name] = 0
        if polled.code:
            await self.pause()
            return
        positions[name] = polled.next_offset
