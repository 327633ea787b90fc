"""Simulated producers: idempotent ones with several batches in flight, and non-idempotent ones."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from respool.model.ids import NO_PRODUCER_ID, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.checks.history import Sent, SentTransaction
from respool.sim.clients.sim_client import (
    DUPLICATE_SEQUENCE,
    OK,
    OUT_OF_ORDER_SEQUENCE,
    RETRIABLE,
    SimClient,
)
from respool.wire.api_table import Api

ACKS_ALL = -1
DELIVERY_TIMEOUT_MS = 60_000

HeaderPairs = tuple[tuple[str, bytes | None], ...]


class SimProducer(SimClient):
    """What all producers share: unique records, and Produce requests."""

    def __init__(self, name: str, *, names: Sequence[TopicPartition], **client: Any) -> None:
        super().__init__(name, **client)
        self.names = tuple(names)
        self._count = 0
        # The odds that a record spans several sectors, so that a power cut may lose a part of it.
        self._large_odds = self.rng.choice((0.0, 0.2, 0.7))

    def new_records(
        self,
        name: TopicPartition,
        count: int,
        *,
        is_idempotent: bool,
        is_durable: bool,
        transaction: SentTransaction | None = None,
    ) -> list[Sent]:
        sends = []
        for _ in range(count):
            self._count += 1
            value = f"{self.name}.{self._count}".encode()
            if self.rng.random() < self._large_odds:
                value += b"." + self._padding(value)
            record = NewRecord(
                key=b"k%d" % (self._count % 5),
                value=value,
                timestamp_ms=self.clock.now_ms(),
                headers=(("of", self.name.encode()), *self._headers(value)),
            )
            sends.append(
                Sent(value, record, name, self.name, is_idempotent, is_durable, transaction)
            )
        self.history.on_send(sends)
        return sends

    def _padding(self, value: bytes) -> bytes:
        return b"%08x" % crc32(value) * self.rng.randrange(10, 500)

    def _headers(self, _value: bytes) -> HeaderPairs:
        """More headers of the record with this value."""
        return ()

    async def produce(
        self,
        name: TopicPartition,
        batch: bytes,
        *,
        version: int,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
    ) -> tuple[int, int]:
        """Return the error code and the base offset."""
        data = {"index": name.partition, "records": batch}
        reply = await self.ask_leader(
            name,
            Api.PRODUCE,
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout=3_000,
            topic_data=[{"name": name.topic, "partition_data": [data]}],
        )
        (answer,) = reply.responses[0].partition_responses
        code = int(answer.error_code)
        self.on_code(code, leader=name)
        return code, answer.base_offset


@dataclass(slots=True, eq=False)
class SentBatch:
    name: TopicPartition
    sends: list[Sent]
    data: bytes
    begun_s: float


def lost_before_one_of(sent: Sequence[SentBatch], codes: Sequence[int]) -> SentBatch | None:
    """Return a batch whose reply shows that the broker has lost acknowledged batches before it.

    Only a partition's first batch in flight can show that. Later ones may reach a new leader before the first does;
    they are sent again, and in time one of them is the first.
    """
    firsts = {one.name: one for one in reversed(sent)}
    for one, code in zip(sent, codes, strict=True):
        if code == OUT_OF_ORDER_SEQUENCE and firsts[one.name] is one:
            return one
    return None


class IdempotentProducer(SimProducer):
    """Has up to five batches in flight, and sends unacknowledged ones again, in order, until they are acknowledged."""

    in_flight_max = 5

    def __init__(self, name: str, **producer: Any) -> None:
        super().__init__(name, **producer)
        # Partitions whose last batch was acknowledged.
        self._calm: set[TopicPartition] = set()

    async def work(self) -> None:
        pending: list[SentBatch] = []
        producer_id = -1
        sequences: dict[TopicPartition, int] = {}
        while not self.is_winding_down or pending:
            if producer_id < 0:
                producer_id = await self._new_id()
                sequences.clear()
                self._calm.clear()
                continue
            if not self.is_winding_down:
                while len(pending) < self.in_flight_max and self.rng.random() < 0.7:
                    pending.append(self._new_batch(producer_id, sequences))
            if not await self._send(pending):
                # The delivery timeout has passed. The outcome of the other batches is unknown; use a new producer id.
                pending.clear()
                producer_id = -1
            await self.pause(400)

    def _new_batch(self, producer_id: int, sequences: dict[TopicPartition, int]) -> SentBatch:
        name = self.rng.choice(self.names)
        sends = self.new_records(name, self.rng.randint(1, 4), is_idempotent=True, is_durable=True)
        first = sequences.get(name, 0)
        sequences[name] = first + len(sends)
        data = build_batch(
            [one.record for one in sends],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        return SentBatch(name, sends, data, self.loop.time())

    async def _send(self, pending: list[SentBatch]) -> bool:
        """Send pending batches once, and remove the acknowledged ones. False if the delivery timeout has passed."""
        sending = self._next_of(pending)
        for name in {one.name: None for one in sending}:
            # Look leaders up first, so that all batches are sent in their order.
            await self.leader_of(name)
        results = await asyncio.gather(*(self._try(one) for one in sending))
        failed: set[TopicPartition] = set()
        lost_before = lost_before_one_of(sending, [code for code, _ in results])
        for batch, (code, offset) in zip(sending, results, strict=True):
            if code in (OK, DUPLICATE_SEQUENCE):
                self.history.on_sent(batch.sends, offset if code == OK else -1)
                pending.remove(batch)
                continue
            if batch is lost_before:
                first = batch.sends[0].value[:40]
                self.history.violate(
                    "A2", f"{self.name}: {batch.name} lost what came before {first!r}"
                )
                return False
            if code not in RETRIABLE and code != OUT_OF_ORDER_SEQUENCE:
                self.unexpected(f"a batch for {batch.name}", code)
                return False
            failed.add(batch.name)
        self._calm = (self._calm | {one.name for one in sending}) - failed
        return not any(self.has_passed(one.begun_s, DELIVERY_TIMEOUT_MS) for one in pending)

    def _next_of(self, pending: list[SentBatch]) -> list[SentBatch]:
        """Several batches of a partition if its last one was acknowledged; after a failure, one at a time.

        A later batch must not arrive on a new connection after an earlier one was lost with the old connection.
        """
        sending: list[SentBatch] = []
        names: set[TopicPartition] = set()
        for batch in pending:
            if batch.name in self._calm or batch.name not in names:
                sending.append(batch)
            names.add(batch.name)
        return sending

    async def _try(self, batch: SentBatch) -> tuple[int, int]:
        try:
            return await self.produce(batch.name, batch.data, version=9)
        except PeerUnreachable:
            return 13, -1

    async def _new_id(self) -> int:
        try:
            reply = await self.ask(
                self.any_broker(),
                Api.INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout=60_000,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=-1,
            )
        except PeerUnreachable:
            await self.pause()
            return -1
        code = int(reply.error_code)
        if code and code not in RETRIABLE:
            self.unexpected("InitProducerId", code)
        if code:
            await self.pause()
        return -1 if code else int(reply.producer_id)


class PlainProducer(SimProducer):
    """Without idempotence: unanswered records may be lost or written, and records sent again may be duplicates."""

    def __init__(self, name: str, *, acks: int, is_leader_enough: bool, **producer: Any) -> None:
        """`is_leader_enough`: no fault of this run loses what only the leader has, so acks=1 is durable, too."""
        super().__init__(name, **producer)
        self._acks = acks
        self._is_durable = acks == ACKS_ALL or is_leader_enough

    async def work(self) -> None:
        while not self.is_winding_down:
            name = self.rng.choice(self.names)
            sends = self.new_records(
                name, self.rng.randint(1, 3), is_idempotent=False, is_durable=self._is_durable
            )
            data = build_batch([one.record for one in sends])
            for _ in range(self.rng.choice((1, 3))):
                if await self._try(name, sends, data):
                    break
                await self.pause()
            await self.pause()

    async def _try(self, name: TopicPartition, sends: list[Sent], data: bytes) -> bool:
        try:
            code, offset = await self.produce(name, data, version=8, acks=self._acks)
        except PeerUnreachable:
            return False
        if code == OK:
            self.history.on_sent(sends, offset)
        elif code not in RETRIABLE:
            self.unexpected(f"a batch for {name}", code)
        return code == OK
