"""A simulated member of a group that retries at exactly-once: as `respool.Consumer(..., retry=...)`, with its rules.

It reads a topic and the group's retry topic. In one transaction it writes what it has handled, sends on what failed,
and commits its offsets. Handlers fail at random. The process dies at any time; the next one begins at the committed
offsets.
"""

from collections.abc import Sequence
from typing import Any

from respool.client.messages.message import Message, as_datetime
from respool.client.messages.retry.failed_message import Bury, Raise, SendAgain
from respool.client.messages.retry.failure_decisions import Retries, attempt_of
from respool.client.messages.retry.retry_options import Retry
from respool.model.delays.delay_headers import DUE_AT, SENT_AT
from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import FailureRecord
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.clients.consumers import SimConsumer, fetch_offset
from respool.sim.clients.sim_client import OFFSET_OUT_OF_RANGE, OK, RETRIABLE
from respool.sim.clients.transactional_producer import SimTransactionalProducer, Way
from respool.wire.api_table import Api

# Not a topic's name as it is.
GROUP = "billing/eu"
DONE = "billed"
DELAYS_MS = (1_000, 3_000)
READ_TOGETHER = 30

Writes = list[tuple[TopicPartition, NewRecord]]


def place_text(failure: FailureRecord) -> bytes:
    return f"{failure.topic}-{failure.partition}@{failure.offset}".encode()


class RetryingMember(SimTransactionalProducer):
    def __init__(
        self, name: str, *, source: TopicPartition, reader: SimConsumer, **producer: Any
    ) -> None:
        self._rules = self._new_rules(source)
        self.retry_place = TopicPartition(self._rules.retry_topic, 0)
        self.dead_place = TopicPartition(self._rules.dead_letter_topic, 0)
        super().__init__(name, names=[TopicPartition(DONE, 0)], **producer)
        self.group = GROUP
        # How often handlers fail.
        self.failure_odds = self.rng.choice((0.1, 0.5))
        self._source = source
        self._reader = reader
        self._sources = (source, self.retry_place)
        # The next offsets; None: as they are committed.
        self._positions: dict[TopicPartition, int] | None = None

    def _new_rules(self, source: TopicPartition) -> Retries:
        delays = [f"{one // 1_000}s" for one in DELAYS_MS]
        return Retries(Retry(delays=delays, give_up=ValueError), group=GROUP, topics=[source.topic])

    async def close(self) -> None:
        await self._reader.close()
        await super().close()

    async def _run_transaction(self) -> None:
        try:
            read = await self._read()
        except PeerUnreachable:
            return
        if not read:
            return
        transaction = self.history.new_transaction(self.name)
        self._added.clear()
        way = await self._write_all(self._handle(read))
        if way == "on":
            way = await self._write_offset(transaction)
        fate = self.rng.random()
        if way == "on" and fate < 0.85:
            await self._commit(transaction)
        elif way == "on" and fate < 0.92:
            await self._abort()
        else:
            await self._restart()
        if transaction.outcome != "ok":
            # As a process that starts: it remembers nothing.
            self._positions = None
            self._rules = self._new_rules(self._source)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> list[Message]:
        positions = await self._committed() if self._positions is None else dict(self._positions)
        if positions is None:
            return []
        read: list[Message] = []
        for name in self._sources:
            polled = await self._reader.poll(name, positions[name])
            if polled.code == OFFSET_OUT_OF_RANGE:
                self.history.violate("A16", f"{name}: there is nothing at {positions[name]}")
            if polled.code != OK:
                return []
            taken = polled.records[:READ_TOGETHER]
            is_all = len(taken) == len(polled.records)
            positions[name] = polled.next_offset if is_all else taken[-1][0] + 1
            read += [self._message(name, *one) for one in taken]
        self._positions = positions
        return read

    async def _committed(self) -> dict[TopicPartition, int] | None:
        positions = {}
        for name in self._sources:
            code, offset = await fetch_offset(self, GROUP, name, is_stable=True)
            if code:
                if code not in RETRIABLE:
                    self.unexpected("OffsetFetch", code)
                self.on_code(code, coordinator=("group", GROUP))
                await self.pause()
                return None
            positions[name] = max(0, offset)
        return positions

    def _message(self, name: TopicPartition, offset: int, record: NewRecord) -> Message:
        return Message(
            topic=name.topic,
            partition=name.partition,
            offset=offset,
            timestamp=as_datetime(record.timestamp_ms),
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )

    # -- handling ----------------------------------------------------------------------------------------------------

    def _handle(self, read: Sequence[Message]) -> Writes:
        return [self._attempt(message) for message in read]

    def _attempt(self, message: Message) -> tuple[TopicPartition, NewRecord]:
        failure = self._rules.failure_of(message)
        attempt = attempt_of(failure)
        self.history.counts[f"retries: attempt {attempt}"] += 1
        if attempt > len(DELAYS_MS) + 1:
            self.history.violate("R1", f"{message.offset} is attempted for the {attempt}. time")
        if failure is not None:
            self._check_time(message, attempt)
        if self.rng.random() >= self.failure_odds:
            here = failure or FailureRecord(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                group=GROUP,
                deliveries=0,
            )
            return self.names[0], NewRecord(
                key=message.key, value=place_text(here), timestamp_ms=self.clock.now_ms()
            )
        error = ValueError() if self.rng.random() < 0.1 else OSError()
        decided = self._rules.decide(message, error, as_datetime(self.clock.now_ms()))
        assert not isinstance(decided, Raise)
        return self._place_of(decided), NewRecord(
            key=decided.key,
            value=decided.value,
            timestamp_ms=self.clock.now_ms(),
            headers=decided.headers_to_send(),
        )

    def _place_of(self, decided: SendAgain | Bury) -> TopicPartition:
        return self.retry_place if isinstance(decided, SendAgain) else self.dead_place

    def _check_time(self, message: Message, attempt: int) -> None:
        """Brokers check that a copy is not delivered early; this, that it is the right delay."""
        waited_ms = int(message.header(DUE_AT) or 0) - int(message.header(SENT_AT) or 0)
        if waited_ms != DELAYS_MS[attempt - 2]:
            self.history.violate("R1", f"attempt {attempt} came after {waited_ms} ms")

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write_all(self, writes: Writes) -> Way:
        for name in dict.fromkeys(name for name, _ in writes):
            records = [record for place, record in writes if place == name]
            way = await self._write_records(name, records)
            if way != "on":
                return way
        return "on"

    async def _write_records(self, name: TopicPartition, records: list[NewRecord]) -> Way:
        if self._version == 1:
            way = await self._persist(lambda: self._add(name))
            if way != "on":
                return way
        me = self._identity
        assert me is not None
        first = me.sequences.get(name, 0)
        me.sequences[name] = first + len(records)
        batch = build_batch(
            records,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=first,
            is_transactional=True,
        )
        self._added.add(name)
        return await self._persist(lambda: self._send_batch(name, batch))

    async def _send_batch(self, name: TopicPartition, batch: bytes) -> int:
        code, _ = await self.produce(
            name, batch, version=10 + self._version, transactional_id=self.name
        )
        return code

    async def _send_offset(self, _: int) -> int:
        assert self._positions is not None
        topics = [
            {
                "name": name.topic,
                "partitions": [
                    {
                        "partition_index": name.partition,
                        "committed_offset": position,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
            for name, position in self._positions.items()
        ]
        reply = await self.ask_coordinator(
            "group",
            self.group,
            Api.TXN_OFFSET_COMMIT,
            3 + self._version,
            **self._who(),
            group_id=self.group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        codes = [int(one.error_code) for topic in reply.topics for one in topic.partitions]
        return next((one for one in codes if one), OK)
