"""A simulated member of a share group: its heartbeats, its sessions with brokers, and what it holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from respool.client.queues.queue_session import (
    SESSION_ERRORS,
    Acknowledgement,
    DeliveredPart,
    QueuePlace,
    QueueSession,
    SessionReply,
)
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord
from respool.records.record import read_records
from respool.sim.checks.queue_history import QueueHistory
from respool.sim.checks.queue_ledger import Place, QueueDelivery, QueueGroup, QueueLedger
from respool.sim.clients.consumers import batches_of
from respool.sim.clients.sim_client import OK, RETRIABLE, SimClient
from respool.wire.api_table import Api

GROUP_RESOURCE = 32
INVALID_CONFIG = 40
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
BEAT_EVERY_S = 1.0
# As stock clients, members keep their sessions apart from their heartbeats, which must not wait for a fetch.
SESSION_CHANNEL = 1
_UNPACKED_MAX = 1 << 24
# UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH: the member joins again.
_REJOIN = frozenset({25, 110})
# What acknowledgements may be answered with: INVALID_RECORD_STATE, where others have the records, INVALID_REQUEST,
# where a new leader has not delivered them yet, FENCED_STATE_EPOCH, and whatever passes.
_REFUSALS = RETRIABLE | {121, 42, 124}
# What a partition may be answered with. GROUP_ID_NOT_FOUND: its state is not stored yet.
_UNREADABLE = RETRIABLE | {69, 124}

Kept = Callable[[str, TopicPartition, str], Callable[[], bool] | None]


@dataclass(slots=True)
class HeldRecord:
    count: int
    # Handed to the application, which takes its time.
    is_slow: bool = False


class QueueMember(SimClient):
    """One member of a share group: its heartbeats, its sessions with brokers, and what it holds."""

    history: QueueHistory

    def __init__(
        self, name: str, *, group: QueueGroup, topic: str, kept: Kept, **client: Any
    ) -> None:
        super().__init__(name, **client)
        self.group = group
        self.topic = topic
        self.mode = self.rng.choice((0, 1))
        self.member_id = name
        self.assigned: list[QueuePlace] = []
        self.held: dict[BrokerId, dict[QueuePlace, dict[int, HeldRecord]]] = {}
        self._kept = kept
        self._sessions: dict[BrokerId, QueueSession] = {}
        self._lives = 0
        self._epoch = JOIN_EPOCH
        self._beaten_s = -BEAT_EVERY_S
        # Of the last delivery here of each record.
        self._counts: dict[Place, int] = {}

    @property
    def ledger(self) -> QueueLedger:
        return self.history.ledgers[self.group.name]

    # -- membership --------------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat if it is due.

        Raises:
            PeerUnreachable: there was no reply.
        """
        if not self.has_passed(self._beaten_s, BEAT_EVERY_S * 1_000):
            return
        reply = await self._heartbeat(self._epoch)
        code = int(reply.error_code)
        if code in _REJOIN:
            self._epoch, self.assigned = JOIN_EPOCH, []
        elif code:
            if code not in RETRIABLE:
                self.unexpected("ShareGroupHeartbeat", code)
            self.on_code(code, coordinator=("group", self.group.name))
            await self.pause()
        else:
            self._beaten_s = self.loop.time()
            self._epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assigned = sorted(
                    QueuePlace(UUID(bytes=topic.topic_id.bytes), number)
                    for topic in reply.assignment.topic_partitions
                    for number in topic.partitions
                )

    async def _heartbeat(self, epoch: int) -> Any:
        return await self.ask_coordinator(
            "group",
            self.group.name,
            Api.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group.name,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[self.topic] if epoch == JOIN_EPOCH else None,
        )

    async def leave(self) -> None:
        """Close the sessions, and leave the group."""
        for broker, session in list(self._sessions.items()):
            if session.epoch > 0:
                await self.acknowledge(broker, closes=True)
        self.held.clear()
        self._sessions.clear()
        if self._epoch != JOIN_EPOCH:
            await self._heartbeat(LEAVE_EPOCH)
        self._epoch, self.assigned = JOIN_EPOCH, []

    async def die(self, *, is_new_member: bool) -> None:
        """Lose all connections at once, and start again."""
        await self.lose_connections()
        self.held.clear()
        self._sessions.clear()
        self._epoch, self.assigned = JOIN_EPOCH, []
        self._beaten_s = -BEAT_EVERY_S
        self._lives += 1
        if is_new_member:
            self.member_id = f"{self.name}.{self._lives}"

    # -- requests ----------------------------------------------------------------------------------------------------

    async def fetch(self, *, records_max: int, wait_ms: int) -> int:
        """Fetch once from a broker, with the acknowledgements so far; return how many records came."""
        by_broker: dict[BrokerId, list[QueuePlace]] = {}
        for place in self.assigned:
            by_broker.setdefault(await self.leader_of(self._name_of(place)), []).append(place)
        broker = self.rng.choice(sorted(by_broker))
        session = self._sessions.setdefault(broker, QueueSession(self.group.name, self.member_id))
        fields = session.fetch_fields(
            by_broker[broker], records_max=records_max, wait_ms=wait_ms, bytes_max=1 << 20
        )
        fields["share_acquire_mode"] = self.mode
        asked_s = self.loop.time()
        sent = self._note_sent(fields)
        reply = await self._ask_in_session(broker, session, Api.SHARE_FETCH, fields)
        if reply is None:
            return 0
        result = session.on_fetched(reply)
        self._on_answered(reply, result, sent, asked_s)
        for place, code in result.errors.items():
            self.on_code(code, leader=self._name_of(place))
            if code not in _UNREADABLE:
                self.unexpected(f"ShareFetch of {place.partition}", code)
        for part in result.parts:
            self._take(broker, part, asked_s)
        if result.errors:
            await self.pause()
        return sum(one.last - one.first + 1 for part in result.parts for one in part.ranges)

    async def acknowledge(self, broker: BrokerId, *, closes: bool = False) -> None:
        session = self._sessions[broker]
        fields = session.acknowledge_fields(closes=closes)
        sent, sent_s = self._note_sent(fields), self.loop.time()
        reply = await self._ask_in_session(broker, session, Api.SHARE_ACKNOWLEDGE, fields)
        if reply is not None:
            self._on_answered(reply, session.on_acknowledged(reply), sent, sent_s)

    async def renew(self, broker: BrokerId) -> None:
        session, held = self._sessions[broker], self.held[broker]
        fields = session.renew_fields({place: list(of) for place, of in held.items() if of})
        reply = await self._ask_in_session(broker, session, Api.SHARE_ACKNOWLEDGE, fields)
        if reply is not None:
            for code in session.on_acknowledged(reply).refused.values():
                if code not in _REFUSALS:
                    self.unexpected("a renewal", code)
            self.history.counts["queues: renewals"] += 1

    async def _ask_in_session(
        self, broker: BrokerId, session: QueueSession, api: Api, fields: dict[str, Any]
    ) -> Any:
        """The reply; None: the session must be opened again, or its connection is lost and nothing is held."""
        try:
            reply = await self.ask(broker, api, 2, channel=SESSION_CHANNEL, **fields)
        except PeerUnreachable:
            self._sessions.pop(broker, None)
            self.held.pop(broker, None)
            for place in self.assigned:
                self._leaders.pop(self._name_of(place), None)
            await self.pause()
            return None
        code = int(reply.error_code)
        if not code:
            return reply
        if code not in SESSION_ERRORS | RETRIABLE:
            self.unexpected(api.name, code)
        session.on_session_error()
        await self.pause()
        return None

    def _name_of(self, place: QueuePlace) -> TopicPartition:
        return TopicPartition(self.topic, place.partition)

    # -- what was sent and answered ----------------------------------------------------------------------------------

    def _note_sent(
        self, fields: Mapping[str, Any]
    ) -> dict[QueuePlace, dict[int, tuple[Acknowledgement, int]]]:
        """The acknowledgements in a request, each with the delivery count that it is about."""
        sent: dict[QueuePlace, dict[int, tuple[Acknowledgement, int]]] = {}
        for topic in fields["topics"]:
            for one in topic["partitions"]:
                place = QueuePlace(topic["topic_id"], one["partition_index"])
                for batch in one["acknowledgement_batches"]:
                    kind = Acknowledgement(batch["acknowledge_types"][0])
                    for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                        where = (self._name_of(place), offset)
                        count = self._counts.get(where, 0)
                        sent.setdefault(place, {})[offset] = kind, count
                        self.ledger.on_sent(where, kind, self.member_id, now_s=self.loop.time())
        return sent

    def _on_answered(
        self,
        reply: Any,
        result: SessionReply,
        sent: Mapping[QueuePlace, Mapping[int, tuple[Acknowledgement, int]]],
        sent_s: float,
    ) -> None:
        named = {
            QueuePlace(topic.topic_id, one.partition_index)
            for topic in reply.responses
            for one in topic.partitions
        }
        for place, kinds in sent.items():
            if place not in named:
                self.history.violate("unexpected", f"{self.name}: {place} is not answered")
            code = result.refused.get(place, OK)
            if code:
                self.history.counts["queues: acknowledgements refused"] += 1
                if code not in _REFUSALS:
                    self.unexpected(f"an acknowledgement of {place.partition}", code)
                continue
            for offset, (kind, count) in kinds.items():
                self.history.counts[f"queues: {kind.name.lower()}"] += 1
                self.ledger.on_answered(
                    (self._name_of(place), offset),
                    kind,
                    count,
                    sent_s=sent_s,
                    now_s=self.loop.time(),
                )

    def _take(self, broker: BrokerId, part: DeliveredPart, asked_s: float) -> None:
        name = self._name_of(part.place)
        records = {
            int(record.offset): record
            for batch in batches_of(part.records)
            if not batch.header.is_control
            for record in read_records(batch, limit=_UNPACKED_MAX)
        }
        held = self.held.setdefault(broker, {}).setdefault(part.place, {})
        is_kept = self._kept(self.group.name, name, self.member_id)
        for one in part.ranges:
            for offset in range(one.first, one.last + 1):
                record = records.get(offset)
                if record is None:
                    self.history.violate(
                        "Q11", f"{self.name}: {name}@{offset} was acquired, and is not in the reply"
                    )
                    continue
                self.history.counts["queues: deliveries"] += 1
                read = NewRecord(
                    key=record.key,
                    value=record.value,
                    timestamp_ms=record.timestamp,
                    headers=record.headers,
                )
                self.history.on_read(name, offset, read, is_committed=self.group.is_committed)
                self.ledger.on_delivered(
                    (name, offset),
                    QueueDelivery(
                        member=self.member_id,
                        delivery_count=one.delivery_count,
                        asked_s=asked_s,
                        at_s=self.loop.time(),
                    ),
                    is_kept=is_kept,
                )
                held[offset] = HeldRecord(one.delivery_count)
                self._counts[name, offset] = one.delivery_count

    def decide(
        self, broker: BrokerId, place: QueuePlace, offset: int, kind: Acknowledgement
    ) -> None:
        del self.held[broker][place][offset]
        self._sessions[broker].acknowledge(place, offset, kind)
