"""A simulated client that repeatedly deletes and recreates a topic, and checks which records are in it.

These topics follow each other under the same name. Records of one must never be read in the next, and acknowledged
records exist as long as their topic does. A topic id identifies one life of the topic. Older Produce requests name a
topic by its name, so a leader that does not know the new topic yet appends their records to the old one. Therefore this
client first asks the leader which topic it knows; a broker never goes back to an older one. Every other Produce names
the topic by its id, as newer clients do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.sim.clients.consumers import batches_of
from respool.sim.clients.producers import ACKS_ALL
from respool.sim.clients.sim_client import OK, RETRIABLE, SimClient
from respool.wire.api_table import Api

_UNPACKED_MAX = 1 << 24


@dataclass(slots=True)
class Life:
    """One topic of this name, from its creation to its deletion."""

    id: UUID
    number: int
    sent: int = 0
    # Acknowledged values by offset.
    acknowledged: dict[int, bytes] = field(default_factory=dict)

    @property
    def prefix(self) -> bytes:
        return b"life-%d." % self.number


class TopicRecreator(SimClient):
    def __init__(self, name: str, *, topic: Mapping[str, Any], **client: Any) -> None:
        """`topic`: the topic in CreateTopics requests."""
        super().__init__(name, **client)
        self._topic = topic
        self._life: Life | None = None
        self._lives = 0
        self._doomed: set[UUID] = set()
        # Sent but not answered: a Produce request names a topic by its name, and may arrive late, in the next topic.
        self._unsure: set[bytes] = set()
        # The last known leader of this life.
        self._leader: BrokerId | None = None

    async def work(self) -> None:
        while not self.is_winding_down:
            try:
                await self._live()
            except PeerUnreachable:
                self._leader = None
            # Often at once, while brokers still delete the last topic.
            await self.pause(self.rng.choice((5.0, 200.0)))
        while self._life is not None and self._life.acknowledged:
            try:
                if await self._read(self._life):
                    return
            except PeerUnreachable:
                self._leader = None
            await self.pause()

    async def _live(self) -> None:
        life = self._life
        if life is None:
            await self._create()
        elif self.rng.random() < 0.1:
            await self._delete(life.id)
        elif self.rng.random() < 0.3:
            await self._read(life)
        else:
            await self._write(life)

    # -- topics ------------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        await self.ask(
            self.any_broker(), Api.CREATE_TOPICS, 7, topics=[dict(self._topic)], timeout=5_000
        )
        found = await self._look(self.any_broker())
        if found is None:
            return
        if found.topic_id in self._doomed:
            await self._delete(found.topic_id)
            return
        self._lives += 1
        self._life = life = Life(found.topic_id, self._lives)
        self.history.counts["topics recreated"] += 1
        await self._write(life)

    async def _delete(self, topic_id: UUID) -> None:
        """Delete by topic id, so that a late request deletes no other topic. The client no longer reads this topic."""
        self._doomed.add(topic_id)
        self._life = self._leader = None
        topics = [{"name": None, "topic_id": topic_id}]
        await self.ask(self.any_broker(), Api.DELETE_TOPICS, 6, topics=topics, timeout=5_000)
        if self.rng.random() < 0.7:
            await self._create()

    async def _look(self, broker: BrokerId) -> Any:
        """Return the topic as this broker knows it, or None if it does not."""
        reply = await self.ask(
            broker,
            Api.METADATA,
            12,
            topics=[{"topic_id": None, "name": self._topic["name"]}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (found,) = reply.topics
        return None if int(found.error_code) else found

    async def _led_by(self, life: Life) -> BrokerId | None:
        """Return the leader of this life, if the leader knows it."""
        if self._leader is None:
            asked = self.any_broker()
            for _ in range(2):
                found = await self._look(asked)
                if found is None or found.topic_id != life.id:
                    return None
                leader = BrokerId(found.partitions[0].leader_id)
                if leader == asked:
                    self._leader = leader
                    break
                if leader not in self._brokers:
                    return None
                asked = leader
        return self._leader

    # -- records -----------------------------------------------------------------------------------------------------

    async def _write(self, life: Life) -> None:
        leader = await self._led_by(life)
        if leader is None:
            return
        life.sent += 1
        value = life.prefix + b"%d" % life.sent
        batch = build_batch([NewRecord(value=value, timestamp_ms=self.clock.now_ms())])
        data = {"index": 0, "records": batch}
        by_id = life.sent % 2 == 0
        if not by_id:
            self._unsure.add(value)
        reply = await self.ask(
            leader,
            Api.PRODUCE,
            13 if by_id else 9,
            transactional_id=None,
            acks=ACKS_ALL,
            timeout=3_000,
            topic_data=[
                {"name": self._topic["name"], "topic_id": life.id, "partition_data": [data]}
            ],
        )
        self._unsure.discard(value)
        (answer,) = reply.responses[0].partition_responses
        code, offset = int(answer.error_code), int(answer.base_offset)
        if code == OK:
            self.history.counts["sends acknowledged"] += 1
            before = life.acknowledged.setdefault(offset, value)
            if before != value:
                self._violate("A2", offset, f"{before!r} and {value!r} were acknowledged there")
        else:
            self._on_refused("a batch", code)

    async def _read(self, life: Life) -> bool:
        """Read everything. False if acknowledged records are missing, which may not be known to be committed yet."""
        leader = await self._led_by(life)
        if leader is None:
            return False
        position, end = 0, 1 + max(life.acknowledged, default=-1)
        seen: set[int] = set()
        while position < end:
            records = await self._fetch(life, leader, position)
            if not records:
                return False
            for offset, value in records:
                self._check(life, offset, value)
                seen.add(offset)
            position = records[-1][0] + 1
        for offset in sorted(life.acknowledged.keys() - seen):
            self._violate("A2", offset, f"{life.acknowledged[offset]!r} is not there")
        return True

    async def _fetch(self, life: Life, leader: BrokerId, position: int) -> list[tuple[int, bytes]]:
        asked = {"partition": 0, "fetch_offset": position, "partition_max_bytes": 1 << 20}
        reply = await self.ask(
            leader,
            Api.FETCH,
            13,
            max_wait=200,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": life.id, "partitions": [asked]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        if int(reply.error_code):
            self._on_refused("a fetch", int(reply.error_code))
            return []
        (answer,) = reply.responses[0].partitions
        if int(answer.error_code):
            self._on_refused("a fetch", int(answer.error_code))
            return []
        return [
            (offset, record.value or b"")
            for batch in batches_of(bytes(answer.records or b""))
            for offset, record in enumerate(
                read_records(batch, limit=_UNPACKED_MAX), start=batch.header.base_offset
            )
            if offset >= position
        ]

    def _check(self, life: Life, offset: int, value: bytes) -> None:
        self.history.counts["records read"] += 1
        if not value.startswith(life.prefix) and value not in self._unsure:
            self._violate("A5", offset, f"{value!r} in life {life.number} of the topic")
        told = life.acknowledged.get(offset, value)
        if told != value:
            self._violate("A2", offset, f"{told!r} was acknowledged there, it is {value!r}")

    def _violate(self, rule: str, offset: int, text: str) -> None:
        self.history.violate(rule, f"{self._topic['name']}@{offset}: {text}")

    def _on_refused(self, what: str, code: int) -> None:
        self._leader = None
        if code not in RETRIABLE:
            self.unexpected(what, code)
