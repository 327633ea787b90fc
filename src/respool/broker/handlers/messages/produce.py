"""Produce (key 0): append each partition's batch, then reply as `acks` requires.

Batches are appended immediately, in the order of the requests; only the reply may wait. So the requests of one
connection are pipelined: while one waits for its sync, the next ones are appended and share the following sync.

- acks=0: no reply; an error closes the connection, since the client reads no reply.
- acks=1: the reply is sent as soon as the batch is in the log.
- acks=-1: the reply is sent when the batch is committed: below the high watermark.

A mirror topic accepts what `respool mirror` sends: batches that have offsets (`partitions/mirror_validation.py`).

If the first message to an auto-created topic is too large, the topic is deleted before the reply is sent
(`metadata/auto_created.py`).

If this broker is about to lead the partition in a new epoch, the request waits instead of failing with NOT_LEADER.

The first batch of a transaction in a partition waits until the transaction coordinator has verified it:
see `transactional_produce.py`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from respool.broker.handlers.support.transactional_produce import check_transactional_id, verify
from respool.broker.metadata.leader_hints import Hint, endpoints_of, leader_hint
from respool.broker.outcome import NO_REPLY, CloseConnection, Outcome, Pipelined, Reply
from respool.broker.partitions.batch_validation import (
    admit,
    check_keys,
    check_keys_quickly,
    check_size,
    recompression_for,
)
from respool.broker.partitions.mirror_validation import admit_mirrored
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import VerificationGuard
from respool.model.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    MessageTooLarge,
    NotLeader,
    OutOfOrderSequence,
    RequestError,
    RequestTimedOut,
)
from respool.model.ids import Offset
from respool.model.internal_topics import is_internal
from respool.ports.record_scan import RecordScanner
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.mirrored_batches import MirroredBatches
from respool.records.validate import recompress
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import ProducedPartition, encode_produce_reply

ACKS_ALL = -1
NOT_APPENDED = Offset(-1)


@serves(
    Api.PRODUCE,
    versions=(3, 12),
    rights=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID.when("a batch is transactional")),
)
def produce(request: Request, broker: Broker) -> Outcome:
    now_ms = broker.clock.now_ms()
    writes = [
        _Write(topic.name, data.index, data.records)
        for topic in request.body.topic_data
        for data in topic.partition_data
    ]
    for write in writes:
        write.admit(request, broker, now_ms)
    # Requests nearly always need not wait.
    request.waits_for_others = True
    if any(write.waits_for is not None for write in writes):
        return _produce_when_led(request, broker, writes, now_ms)
    if any(write.needs_opening or write.guard is not None for write in writes):
        return _produce_prepared(request, broker, writes, _Patience(request))
    return _append_and_answer(request, broker, writes, now_ms)


async def _produce_when_led(
    request: Request, broker: Broker, writes: list["_Write"], now_ms: int
) -> Reply:
    """Wait for partitions in an epoch transition: see `partitions/role.py`. It does not take long."""
    patience = _Patience(request)
    while held := [write for write in writes if write.waits_for is not None]:
        if not await patience.wait_for(write.waits_for for write in held):
            break
        for write in held:
            write.admit(request, broker, now_ms)
    return await _produce_prepared(request, broker, writes, patience)


async def _produce_prepared(
    request: Request, broker: Broker, writes: list["_Write"], patience: "_Patience"
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
    request: Request, broker: Broker, writes: list["_Write"], now_ms: int
) -> Reply | Pipelined:
    acks = request.body.acks
    for write in writes:
        write.append(acks, now_ms)
    deletion = _delete_if_unused(request, broker, writes) if broker.auto_created else None
    if acks == 0:
        _close_on_error(writes)
        return NO_REPLY
    if acks == ACKS_ALL:
        answer = _CommittedAnswer(request, broker, writes)
        if answer.is_waiting:
            return answer.reply
    reply = [_encode(_Asked.by(request, broker), writes)]
    return reply if deletion is None else _reply_after(deletion, reply)


def _delete_if_unused(
    request: Request, broker: Broker, writes: Iterable["_Write"]
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


def _open_all(writes: Iterable["_Write"], scanner: RecordScanner) -> None:
    for write in writes:
        write.open(scanner)


@dataclass(slots=True)
class _Write:
    """One partition's batch on its way into the log, and its result."""

    topic: str
    index: int
    records: bytes | None
    partition: Partition | None = None
    batch: RecordBatch | None = None
    # Replaces `batch` if the topic is a mirror.
    mirrored: MirroredBatches | None = None
    error: RequestError | None = None
    base_offset: int = -1
    next_offset: Offset = NOT_APPENDED
    log_append_time_ms: int = -1
    needs_key_check: bool = False
    needs_opening: bool = False
    # Done when the leader of the partition's next epoch is known; most probably it is this broker.
    waits_for: "asyncio.Future[None] | None" = None
    # The local replica that refused the batch because it is not the leader.
    refused_by: Partition | None = None
    # Set if the batch begins its transaction in the partition.
    guard: VerificationGuard | None = None

    @property
    def epoch_transition(self) -> "asyncio.Future[None] | None":
        """Return the partition's epoch transition in progress, if the batch could otherwise be appended."""
        if self.error is not None or self.partition is None:
            return None
        return self.partition.role.epoch_transition

    def admit(self, request: Request, broker: Broker, now_ms: int) -> None:
        self.error = self.waits_for = self.refused_by = None
        try:
            if request.body.acks not in (0, 1, ACKS_ALL):
                raise InvalidRequiredAcks(f"acks={request.body.acks} is not 0, 1 or -1")
            if is_internal(self.topic):
                raise InvalidTopic(
                    f"{self.topic!r} belongs to the broker; clients do not write to it"
                )
            self.partition = partition = broker.partitions.find_leader(self.topic, self.index)
            config = partition.config
            if config.respool_mirror:
                self.mirrored = admit_mirrored(self.records, partition.name)
                return
            self.batch = admit(self.records, config, now_ms=now_ms, version=request.version)
            self.needs_key_check = not check_keys_quickly(self.batch, config, broker.world.scanner)
            self.needs_opening = (
                self.needs_key_check or recompression_for(self.batch, config) is not None
            )
            if self.batch.header.is_transactional:
                check_transactional_id(request)
                self.guard = partition.log.begin_verification(self.batch.header)
        except NotLeader as error:
            self.refused_by = broker.partitions.held(self.topic, self.index)
            if self.refused_by is not None:
                self.waits_for = self.refused_by.role.epoch_transition
            self.error = _without_trace(error)
        except RequestError as error:
            self.error = _without_trace(error)

    def open(self, scanner: RecordScanner) -> None:
        if self.error is not None or self.partition is None or self.batch is None:
            return
        try:
            # The topic may have been deleted since the batch was admitted.
            config = self.partition.config
            if self.needs_key_check:
                check_keys(self.batch, scanner, limit=UNPACKED_BYTES_MAX)
            codec = recompression_for(self.batch, config)
            if codec is None:
                return
            # Decompressed, a batch must not be larger than an uncompressed request could be.
            self.batch = recompress(self.batch, codec, limit=UNPACKED_BYTES_MAX)
            check_size(self.batch, config)
        except RequestError as error:
            self.error = _without_trace(error)

    def append(self, acks: int, now_ms: int) -> None:
        partition, batch, mirrored = self.partition, self.batch, self.mirrored
        records = self.records
        # Keep no reference to the records while the reply waits for its sync: the number of waiting requests, and with
        # it the memory, is up to the clients.
        self.records = self.batch = self.mirrored = None
        if self.error is not None and self.refused_by is not None:
            self.refused_by.refused.note_bytes(records, self.error, now_ms=now_ms)
        if self.error is not None or partition is None:
            return
        try:
            if acks == ACKS_ALL:
                partition.role.leading().check_writable()
            if mirrored is not None:
                self.next_offset = partition.append_mirrored(mirrored, now_ms=now_ms)
                self.base_offset = mirrored.base_offset
                return
            assert batch is not None
            if partition.refused and not partition.log.knows_producer(batch.header.producer_id):
                # The log would take it for the producer's first batch and could never accept the refused one after it.
                self.error = partition.refused.error_for_gap(batch.header, now_ms=now_ms)
                if self.error is not None:
                    return
            appended = partition.append(batch, now_ms=now_ms, guard=self.guard)
        except RequestError as error:
            self.error = _without_trace(error)
            if batch is not None:
                self._on_refused(partition, batch.header, now_ms)
            return
        if partition.refused:
            partition.refused.on_appended(batch.header.producer_id)
        self.base_offset = appended.base_offset
        self.next_offset = Offset(appended.last_offset + 1)
        # For a retry, this is the append time of the first attempt.
        self.log_append_time_ms = appended.log_append_time_ms

    def _on_refused(self, partition: Partition, header: BatchHeader, now_ms: int) -> None:
        assert self.error is not None
        if isinstance(self.error, OutOfOrderSequence):
            self.error = partition.refused.error_for_gap(header, now_ms=now_ms) or self.error
        else:
            partition.refused.note(header, self.error, now_ms=now_ms)


def _without_trace(error: RequestError) -> RequestError:
    """Return the error without its traceback, whose frames still reference the records."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


# The decompressed size limit of a batch whose topic requires it to be decompressed.
UNPACKED_BYTES_MAX = 100 * 1024 * 1024


class _CommittedAnswer:
    """The reply to an acks=all request: sent when every batch in it is committed, has failed or has timed out."""

    def __init__(self, request: Request, broker: Broker, writes: list[_Write]) -> None:
        self._asked = _Asked.by(request, broker)
        self._writes = writes
        self._deadlines = broker.deadlines
        self.reply = Pipelined()
        self._outstanding = 0
        for write in writes:
            if write.error is None and write.partition is not None:
                listener = _Outstanding(self, write)
                try:
                    if write.partition.waiters.wait_for_commit(write.next_offset, listener):
                        self._outstanding += 1
                except RequestError as error:
                    write.error = error
        if self._outstanding:
            self._deadlines.add(self, max(0.0, request.body.timeout.total_seconds()))

    @property
    def is_waiting(self) -> bool:
        return self._outstanding > 0

    def on_one_done(self) -> None:
        self._outstanding -= 1
        # After a timeout the client already has its reply.
        if not self._outstanding and not self.reply.is_complete:
            self._deadlines.remove(self)
            self.reply.complete([_encode(self._asked, self._writes)])

    def on_timeout(self) -> None:
        for write in self._writes:
            partition = write.partition
            if write.error is None and partition and partition.high_watermark < write.next_offset:
                write.error = RequestTimedOut(f"{partition.name}: not committed in time")
        self.reply.complete([_encode(self._asked, self._writes)])


class _Outstanding:
    __slots__ = ("_answer", "_write")

    def __init__(self, answer: _CommittedAnswer, write: _Write) -> None:
        self._answer = answer
        self._write = write

    def on_committed(self) -> None:
        self._answer.on_one_done()

    def on_failed(self, error: RequestError) -> None:
        self._write.error = error
        self._answer.on_one_done()


def _close_on_error(writes: Iterable[_Write]) -> None:
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

    @classmethod
    def by(cls, request: Request, broker: Broker) -> Self:
        return cls(request.correlation_id, request.version, broker)


def _encode(asked: _Asked, writes: Iterable[_Write]) -> bytes:
    topics: dict[str, list[ProducedPartition]] = {}
    hints: list[Hint | None] = []
    for write in writes:
        result = _result(write, asked.broker)
        if result.current_leader is not None:
            hints.append(result.current_leader)
        topics.setdefault(write.topic, []).append(result)
    return encode_produce_reply(
        asked.correlation_id,
        asked.version,
        list(topics.items()),
        node_endpoints=endpoints_of(asked.broker.image, hints) if hints else (),
    )


def _result(write: _Write, broker: Broker) -> ProducedPartition:
    if write.error is not None:
        return ProducedPartition(
            write.index,
            write.error.code,
            -1,
            error_message=write.error.message,
            record_errors=_record_errors(write.error),
            current_leader=leader_hint(
                broker.image, broker.id, write.topic, write.index, write.error.code
            ),
        )
    assert write.partition is not None
    return ProducedPartition(
        write.index, 0, write.base_offset, write.log_append_time_ms, write.partition.log_start
    )


def _record_errors(error: RequestError) -> list[tuple[int, str | None]]:
    """One invalid record fails its whole batch; the reply names the record."""
    if isinstance(error, InvalidRecord) and error.record_index is not None:
        return [(error.record_index, error.message)]
    return []
