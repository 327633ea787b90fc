"""A simulated transactional producer: it writes to several partitions and commits a group's offset, all or nothing.

It behaves as a careful client does. It retries unanswered requests, asks again for the end of a transaction when the
reply was lost, initializes its producer id again when it is fenced, and aborts when it cannot continue. Sometimes it
dies in the middle: a process with the same transactional id takes over, and the old one, unaware, tries to commit.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.build import build_batch
from respool.sim.checks.history import Sent, SentTransaction
from respool.sim.clients.producers import SimProducer
from respool.sim.clients.sim_client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OK,
    OUT_OF_ORDER_SEQUENCE,
    PRODUCER_FENCED,
    RETRIABLE,
)
from respool.wire.api_table import Api

INVALID_PRODUCER_ID_MAPPING = 49
TRANSACTION_ABORTABLE = 120
FENCED = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING})
# The client may only abort, or initialize its producer id again.
HOPELESS = frozenset({INVALID_TXN_STATE, TRANSACTION_ABORTABLE})
# How long a step is retried before the transaction is aborted.
STEP_PATIENCE_MS = 20_000

Way = Literal["on", "abort", "restart"]


@dataclass(slots=True)
class _Identity:
    """The producer id and epoch from the coordinator, and the next sequence numbers."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


class SimTransactionalProducer(SimProducer):
    def __init__(self, name: str, *, version: int, timeout_ms: int, **producer: Any) -> None:
        """`version`: 1 for the protocol before KIP-890, 2 for the protocol of KIP-890."""
        super().__init__(name, **producer)
        self._version = version
        self._timeout_ms = timeout_ms
        self.group = f"group-of-{name}"
        self._identity: _Identity | None = None
        # What was added to the open transaction; clients before KIP-890 must add partitions and offsets explicitly.
        self._added: set[object] = set()
        self._offset = 0
        # A request of the open transaction was not answered, and may arrive late.
        self._is_in_doubt = False
        self._in_vain: list[asyncio.Task[int]] = []

    async def work(self) -> None:
        while not self.is_winding_down:
            if self._identity is None:
                self._identity = await self._init()
                continue
            self._is_in_doubt = False
            await self._run_transaction()
            if self._is_in_doubt and self._version == 1:
                # Before KIP-890 all transactions of a producer have the same epoch. A late EndTxn would end the next
                # transaction, whatever its client wants; only a new epoch fences it.
                self._identity = None
            await self.pause(300)
        await asyncio.gather(*self._in_vain)

    async def _run_transaction(self) -> None:
        transaction = self.history.new_transaction(self.name)
        self._added.clear()
        way = await self._write(transaction)
        fate = self.rng.random()
        if way == "on" and fate < 0.7:
            await self._commit(transaction)
        elif way == "restart" or fate > 0.92:
            await self._restart()
        else:
            await self._abort()

    async def _write(self, transaction: SentTransaction) -> Way:
        way: Way = "on"
        for _ in range(self.rng.randint(1, 4)):
            if way == "on":
                way = await self._write_batch(transaction, self.rng.choice(self.names))
        if way == "on" and self.rng.random() < 0.05:
            # The process dies with a batch in flight, which may arrive at any time.
            name = self.rng.choice(self.names)
            late = self._send_in_vain(name, transaction, self._identity)
            self._in_vain.append(self.process.spawn(late))
            return "restart"
        if way == "on" and self.rng.random() < 0.5:
            way = await self._write_offset(transaction)
        return way

    async def _write_batch(self, transaction: SentTransaction, name: TopicPartition) -> Way:
        if self._version == 1 and name not in self._added:
            way = await self._persist(lambda: self._add(name))
            if way != "on":
                return way
            self._added.add(name)
        me = self._identity
        assert me is not None
        sends = self.new_records(
            name,
            self.rng.randint(1, 3),
            is_idempotent=True,
            is_durable=True,
            transaction=transaction,
        )
        transaction.writes += sends
        first = me.sequences.get(name, 0)
        me.sequences[name] = first + len(sends)
        batch = _batch_of(me, first, sends)
        way = await self._persist(lambda: self._send(name, batch, sends))
        self._added.add(name)
        return way

    async def _send(self, name: TopicPartition, batch: bytes, sends: list[Sent]) -> int:
        code, offset = await self.produce(
            name, batch, version=10 + self._version, transactional_id=self.name
        )
        if code == OK:
            self.history.on_sent(sends, offset)
        if code == OUT_OF_ORDER_SEQUENCE:
            self.history.violate("A2", f"{self.name}: {name} does not know {sends[0].value!r}")
            return TRANSACTION_ABORTABLE
        return code

    async def _send_in_vain(
        self, name: TopicPartition, transaction: SentTransaction, me: _Identity | None
    ) -> int:
        """Send one batch of a process that is dead, or unaware that it was replaced; nobody retries it."""
        assert me is not None
        sends = self.new_records(
            name, 1, is_idempotent=True, is_durable=True, transaction=transaction
        )
        transaction.writes += sends
        batch = _batch_of(me, me.sequences.get(name, 0), sends)
        try:
            code, _ = await self.produce(
                name, batch, version=10 + self._version, transactional_id=self.name
            )
        except PeerUnreachable:
            return 13
        return code

    async def _write_offset(self, transaction: SentTransaction) -> Way:
        if self._version == 1:
            way = await self._persist(self._add_group)
            if way != "on":
                return way
        self._offset += 1
        offset = self._offset
        way = await self._persist(lambda: self._send_offset(offset))
        self._added.add("offset")
        # Without a reply it may be part of the transaction, which is then aborted.
        transaction.group_offset = offset
        return way

    async def _persist(self, step: Any) -> Way:
        """Retry a step until it succeeds, or until the transaction cannot continue."""
        begun_s = self.loop.time()
        while True:
            try:
                code = await step()
            except PeerUnreachable:
                code = 13
                self._is_in_doubt = True
            if code == OK:
                return "on"
            if code in FENCED:
                self._identity = None
                return "restart"
            if code == INVALID_TXN_STATE and self._version >= 2:
                # Its epoch belongs to one transaction, so brokers can always tell what the request is about.
                self.history.violate("A22", f"{self.name}: INVALID_TXN_STATE, and it did no wrong")
            if code in HOPELESS:
                return "abort"
            if code not in RETRIABLE:
                self.unexpected("a step of a transaction", code)
                return "restart"
            self.on_code(code, coordinator=("transaction", self.name))
            self.on_code(code, coordinator=("group", self.group))
            if self.has_passed(begun_s, STEP_PATIENCE_MS):
                return "abort"
            await self.pause()

    # -- ending transactions -----------------------------------------------------------------------------------------

    async def _commit(self, transaction: SentTransaction) -> None:
        transaction.is_commit_invoked = True
        transaction.outcome = "info"
        way = await self._persist(lambda: self._end(commit=True))
        if way == "on":
            transaction.outcome = "ok"
            self.history.counts["transactions committed"] += 1
        else:
            # It may be committed or not: only a new InitProducerId makes sure that it has ended.
            await self._restart()

    async def _abort(self) -> None:
        if not self._added and self._version == 1:
            return
        if await self._persist(lambda: self._end(commit=False)) == "on":
            self.history.counts["transactions aborted"] += 1
        else:
            await self._restart()

    async def _restart(self) -> None:
        """Replace this process by one with the same transactional id; sometimes the old one comes back to commit."""
        zombie, self._identity = self._identity, None
        while self._identity is None and not self.is_winding_down:
            self._identity = await self._init()
        if zombie is None or self._identity is None or self.rng.random() < 0.5:
            return
        late = self.history.new_transaction(self.name)
        if await self._send_in_vain(self.rng.choice(self.names), late, zombie) == OK:
            self.history.violate("A9", f"{self.name}: a process that was replaced could write")
        try:
            reply = await self._ask_end(zombie, commit=True)
        except PeerUnreachable:
            return
        self.history.counts["zombies"] += 1
        if int(reply.error_code) == OK and not self._may_have_committed:
            self.history.violate("A6", f"{self.name}: a process that was replaced could commit")

    @property
    def _may_have_committed(self) -> bool:
        """True if the commit of the last transaction was requested before, so that repeating it does no harm."""
        mine = [one for one in self.history.transactions[-50:] if one.producer == self.name]
        # The very last transaction is the one in which the old process wrote in vain.
        return len(mine) > 1 and mine[-2].is_commit_invoked

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _init(self) -> _Identity | None:
        try:
            reply = await self.ask_coordinator(
                "transaction",
                self.name,
                Api.INIT_PRODUCER_ID,
                4,
                transactional_id=self.name,
                transaction_timeout=self._timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
        except PeerUnreachable:
            await self.pause()
            return None
        code = int(reply.error_code)
        if code:
            if code not in RETRIABLE:
                self.unexpected("InitProducerId", code)
            self.on_code(code, coordinator=("transaction", self.name))
            await self.pause()
            return None
        return _Identity(int(reply.producer_id), int(reply.producer_epoch))

    async def _add(self, name: TopicPartition) -> int:
        reply = await self.ask_coordinator(
            "transaction",
            self.name,
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            **{f"v3_and_below_{key}": value for key, value in self._who().items()},
            v3_and_below_topics=[{"name": name.topic, "partitions": [name.partition]}],
        )
        (topic,) = reply.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    async def _add_group(self) -> int:
        reply = await self.ask_coordinator(
            "transaction",
            self.name,
            Api.ADD_OFFSETS_TO_TXN,
            3,
            **self._who(),
            group_id=self.group,
        )
        return int(reply.error_code)

    async def _send_offset(self, offset: int) -> int:
        name = self.names[0]
        partition = {
            "partition_index": name.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
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
            topics=[{"name": name.topic, "partitions": [partition]}],
        )
        return int(reply.topics[0].partitions[0].error_code)

    async def _end(self, *, commit: bool) -> int:
        me = self._identity
        assert me is not None
        reply = await self._ask_end(me, commit=commit)
        code = int(reply.error_code)
        if code == OK and getattr(reply, "producer_id", -1) >= 0:
            self._identity = _Identity(int(reply.producer_id), int(reply.producer_epoch))
        return code

    async def _ask_end(self, me: _Identity, *, commit: bool) -> Any:
        return await self.ask_coordinator(
            "transaction",
            self.name,
            Api.END_TXN,
            3 + self._version,
            transactional_id=self.name,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            committed=commit,
        )

    def _who(self) -> dict[str, Any]:
        me = self._identity
        assert me is not None
        return {
            "transactional_id": self.name,
            "producer_id": me.producer_id,
            "producer_epoch": me.epoch,
        }


def _batch_of(me: _Identity, first: int, sends: Sequence[Sent]) -> bytes:
    return build_batch(
        [one.record for one in sends],
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        base_sequence=first,
        is_transactional=True,
    )
