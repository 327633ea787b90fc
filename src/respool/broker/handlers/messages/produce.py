"""Produce (key 0): append each partition's batch, then reply as `acks` requires.

Batches are appended immediately, in the order of the requests; only the reply may wait. So the requests of one
connection are pipelined: while one waits for its sync, the next ones are appended and share the following sync.

- acks=0: no reply; an error closes the connection, since the client reads no reply.
- acks=1: the reply is sent when the batch is durable on this broker: on disk with `respool.flush=always`, else as soon
  as it is in the log. Without other replicas, it is committed by then.
- acks=-1: the reply is sent when the batch is committed: below the high watermark.

A mirror topic accepts what `respool mirror` sends: batches that have offsets (`partitions/mirror_validation.py`).

If the first message to an auto-created topic is too large, the topic is deleted before the reply is sent
(`auto_created.py`).

If this broker is about to lead the partition in a new epoch, the request waits instead of failing with NOT_LEADER.

The first batch of a transaction in a partition waits until the transaction coordinator has verified it:
see `transactional_produce.py`.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Self

from respool.broker.broker import Broker
from respool.broker.handlers.support.batch_append import ACKS_ALL
from respool.broker.handlers.support.batch_stages import Refused, Written
from respool.broker.handlers.support.leadership import Hint, endpoints_of, leader_hint
from respool.broker.handlers.support.produced_batch import (
    ProducedBatch,
    TopicRef,
    is_transactional,
)
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    ALTER_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from respool.broker.handlers.support.transactional_produce import verify
from respool.broker.outcome import NO_REPLY, CloseConnection, Outcome, Pipelined, Reply
from respool.model.errors import MessageTooLarge, RecordsRefused, RequestError, RequestTimedOut
from respool.model.ids import ZERO_TOPIC_ID
from respool.model.security.principal import ClientSession
from respool.ports.record_scan import RecordScanner
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import ProducedPartition, encode_produce_reply

TOPIC_IDS_FROM_VERSION = 13
# The maximum number of refused batches of a request in which records with wrong timestamps are looked for.
NAMED_BATCHES_MAX = 16
# The maximum number of records named in a reply: compressed, records cost a client next to nothing.
REPLY_RECORDS_MAX = 10_000


@serves(
    Api.PRODUCE,
    versions=(3, 13),
    rights=(
        WRITE_TOPIC,
        WRITE_TRANSACTIONAL_ID.when("a batch is transactional"),
        ALTER_TOPIC.when("the topic is a mirror"),
    ),
)
def produce(request: Request, broker: Broker) -> Outcome:
    now_ms = broker.clock.now_ms()
    by_id = request.version >= TOPIC_IDS_FROM_VERSION
    refusal = _transactional_refusal(request, broker) if broker.access.is_on else None
    writes = [
        ProducedBatch(
            (topic.topic_id or ZERO_TOPIC_ID) if by_id else topic.name,
            data.index,
            data.records,
            request=request,
            broker=broker,
            now_ms=now_ms,
            refusal=refusal,
        )
        for topic in request.body.topic_data
        for data in topic.partition_data
    ]
    # Requests nearly always need not wait.
    request.waits_for_others = True
    if any(write.awaited_transition is not None for write in writes):
        return _produce_when_led(request, broker, writes, now_ms)
    if any(write.needs_preparation for write in writes):
        return _produce_prepared(request, broker, writes, _Patience(request))
    return _append_and_answer(request, broker, writes, now_ms)


def _transactional_refusal(request: Request, broker: Broker) -> RequestError | None:
    """Why nothing of the request is written: some batch is transactional, whatever the request says (CVE-2018-17196).

    A request without a transactional id is refused batch by batch.
    """
    name = request.body.transactional_id
    if not name or not any(
        is_transactional(data.records)
        for topic in request.body.topic_data
        for data in topic.partition_data
    ):
        return None
    return broker.access.refusal(request, WRITE_TRANSACTIONAL_ID, name)


async def _produce_when_led(
    request: Request, broker: Broker, writes: list[ProducedBatch], now_ms: int
) -> Reply:
    """Wait for partitions in an epoch transition: see `partitions/role.py`. It does not take long."""
    patience = _Patience(request)
    while waiting := [write for write in writes if write.awaited_transition is not None]:
        if not await patience.wait_for(write.awaited_transition for write in waiting):
            break
        for write in waiting:
            write.admit_again(request, broker, now_ms)
    return await _produce_prepared(request, broker, writes, patience)


async def _produce_prepared(
    request: Request, broker: Broker, writes: list[ProducedBatch], patience: "_Patience"
) -> Reply:
    """Prepare everything that must precede the append; the connection's next request waits for it."""
    if any(write.needs_opening for write in writes):
        # The topic needs another codec, or a check of every key. That is too slow for the event loop.
        await broker.offload.run(lambda: _open_all(writes, broker.world.scanner))
    await verify(writes, request, broker.transactions)
    # Wait for epoch transitions that began since: the batches must be written before the connection's next request.
    while transitions := [
        write.epoch_transition for write in writes if write.epoch_transition is not None
    ]:
        if not await patience.wait_for(transitions):
            break
    if broker.access.is_on:
        # The rights may have changed while the batches waited.
        refusal = _transactional_refusal(request, broker)
        for write in writes:
            write.authorize_again(request, broker, refusal)
    outcome = _append_and_answer(request, broker, writes, broker.clock.now_ms())
    return await outcome.wait() if isinstance(outcome, Pipelined) else outcome


class _Patience:
    """Waits for partitions in an epoch transition, in total for at most the request's timeout."""

    def __init__(self, request: Request) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + max(0.0, request.body.timeout.total_seconds())

    async def wait_for(self, waits: "Iterable[asyncio.Future[None] | None]") -> bool:
        """Wait until one of them is done. Return False if the request's timeout has passed."""
        left_s = self._until_s - self._loop.time()
        awaited = [one for one in waits if one is not None]
        if left_s <= 0 or not awaited:
            return False
        await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        return True


def _append_and_answer(
    request: Request, broker: Broker, writes: list[ProducedBatch], now_ms: int
) -> Reply | Pipelined:
    acks = request.body.acks
    for write in writes:
        write.append(acks, now_ms)
    deletion = _delete_if_unused(request, broker, writes) if broker.auto_created else None
    if acks == 0:
        _close_on_error(writes)
        return NO_REPLY
    if acks == ACKS_ALL or not all(write.is_durable_here for write in writes):
        answer = _DurableAnswer(request, broker, writes)
        if answer.is_waiting:
            return answer.reply
    reply = [_encode(_Asked.by(request, broker), writes)]
    return reply if deletion is None else _reply_after(deletion, reply)


def _delete_if_unused(
    request: Request, broker: Broker, writes: Iterable[ProducedBatch]
) -> "asyncio.Future[None] | None":
    """Delete topics that were created for messages that are too large. The future is done when they are deleted."""
    broker.auto_created.on_used(write.topic for write in writes if write.error is None)
    too_large = {write.topic for write in writes if isinstance(write.error, MessageTooLarge)}
    if not too_large:
        return None
    return broker.auto_created.delete_unused(sorted(too_large), log=broker.admin_log.by(request))


def _reply_after(deletion: "asyncio.Future[None]", reply: Reply) -> Pipelined:
    answer = Pipelined()
    deletion.add_done_callback(lambda _: answer.complete(reply))
    return answer


def _open_all(writes: Iterable[ProducedBatch], scanner: RecordScanner) -> None:
    refused = 0
    for write in writes:
        if write.error is not None and write.needs_opening:
            refused += 1
            if refused > NAMED_BATCHES_MAX:
                continue
        write.open(scanner)


class _DurableAnswer:
    """The reply to a request: sent when every batch in it is as durable as `acks` requires, has failed or timed out."""

    def __init__(self, request: Request, broker: Broker, writes: list[ProducedBatch]) -> None:
        self._asked = _Asked.by(request, broker)
        self._writes = writes
        self._deadlines = broker.deadlines
        self._needs_commit = request.body.acks == ACKS_ALL
        self.reply = Pipelined()
        # In the request's order: a set's order would make simulated runs differ.
        self._outstanding: dict[ProducedBatch, None] = {}
        for write in writes:
            if isinstance(appended := write.stage, Written):
                try:
                    if self._must_wait(appended, _Outstanding(self, write)):
                        self._outstanding[write] = None
                except RequestError as error:
                    write.refuse(error)
        if self._outstanding:
            self._deadlines.add(self, max(0.0, request.body.timeout.total_seconds()))

    @property
    def is_waiting(self) -> bool:
        return bool(self._outstanding)

    def _must_wait(self, appended: Written, listener: "_Outstanding") -> bool:
        waiters = appended.partition.waiters
        wait_for = waiters.wait_for_commit if self._needs_commit else waiters.wait_for_leader
        return wait_for(appended.next_offset, listener)

    def _is_durable(self, appended: Written) -> bool:
        partition = appended.partition
        if self._needs_commit:
            return partition.high_watermark >= appended.next_offset
        return partition.waiters.is_durable_here(appended.next_offset)

    def on_done(self, write: ProducedBatch) -> None:
        self._outstanding.pop(write, None)
        # After a timeout the client already has its reply.
        if not self._outstanding and not self.reply.is_complete:
            self._deadlines.remove(self)
            self.reply.complete([_encode(self._asked, self._writes)])

    def on_timeout(self) -> None:
        for write in self._outstanding:
            # A retry's batch may be there already, and wait for the batches that were appended after it.
            if isinstance(appended := write.stage, Written) and not self._is_durable(appended):
                what = "committed" if self._needs_commit else "on disk"
                write.refuse(RequestTimedOut(f"{appended.partition.name}: not {what} in time"))
        self.reply.complete([_encode(self._asked, self._writes)])


class _Outstanding:
    __slots__ = ("_answer", "_write")

    def __init__(self, answer: _DurableAnswer, write: ProducedBatch) -> None:
        self._answer = answer
        self._write = write

    def on_committed(self) -> None:
        self._answer.on_done(self._write)

    def on_failed(self, error: RequestError) -> None:
        self._write.refuse(error)
        self._answer.on_done(self._write)


def _close_on_error(writes: Iterable[ProducedBatch]) -> None:
    for write in writes:
        if write.error is not None:
            raise CloseConnection(
                f"produce with acks=0 to {write.topic}-{write.index} failed: {write.error.message}"
            )


class _Asked(NamedTuple):
    """The fields of a request that its reply needs; the request itself would keep the records in memory."""

    correlation_id: int
    version: int
    broker: Broker
    session: ClientSession
    throttle_ms: int

    @classmethod
    def by(cls, request: Request, broker: Broker) -> Self:
        return cls(
            request.correlation_id, request.version, broker, request.session, request.throttle_ms
        )


def _encode(asked: _Asked, writes: Iterable[ProducedBatch]) -> bytes:
    topics: dict[TopicRef, list[ProducedPartition]] = {}
    hints: list[Hint | None] = []
    records_named = 0
    for write in writes:
        result = _result(write, asked.broker, records_max=REPLY_RECORDS_MAX - records_named)
        if result.current_leader is not None:
            hints.append(result.current_leader)
        records_named += len(result.record_errors)
        topics.setdefault(write.ref, []).append(result)
    return encode_produce_reply(
        asked.correlation_id,
        asked.version,
        list(topics.items()),
        throttle_ms=asked.throttle_ms,
        node_endpoints=(endpoints_of(asked.broker.image, hints, asked.session) if hints else ()),
    )


def _result(write: ProducedBatch, broker: Broker, *, records_max: int) -> ProducedPartition:
    stage = write.stage
    if isinstance(stage, Written):
        return ProducedPartition(
            write.index, 0, stage.base_offset, stage.log_append_time_ms, stage.partition.log_start
        )
    assert isinstance(stage, Refused)
    error = stage.error
    return ProducedPartition(
        write.index,
        error.code,
        -1,
        error_message=error.message,
        record_errors=error.records[:records_max] if isinstance(error, RecordsRefused) else (),
        current_leader=leader_hint(broker.image, broker.id, write.topic, write.index, error.code),
    )
