"""A coordinator's state machine and its partition: appended and loaded records are replayed into the machine.

The machine sees every record of the partition exactly once, in order: those of the log while loading, then each batch
right after it was appended.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from respool.broker.partitions.partition import Partition
from respool.broker.steady_clock import SteadyClock
from respool.coordination.decision import (
    CoordinatorRecord,
    Decision,
    RecordsProducer,
    Ticket,
    TimerKey,
)
from respool.log.partition_log import ReadSpec, VerificationGuard
from respool.model.ids import NO_PRODUCER_ID, Offset, ProducerId
from respool.ports.offload import Offload
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, read_marker
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches

logger = logging.getLogger(__name__)

# The log is loaded in chunks of this size; requests are served in between.
LOAD_BYTES = 1024 * 1024
# A batch that is read back is as large as its decision was, so there is no tighter bound.
BATCH_BYTES_MAX = 2**31 - 1


class CoordinatorState(Protocol):
    """A coordinator's state machine as in `coordination/`: see `coordination/decision.py`."""

    @property
    def writing_requests(self) -> tuple[type, ...]:
        """Requests that usually need records to be written."""

    def decide(self, request: Any, *, ticket: Ticket, now_ms: int, wall_ms: int) -> Decision: ...

    def on_timer(self, key: TimerKey, *, now_ms: int, wall_ms: int) -> Decision: ...

    def on_loaded(self, *, now_ms: int, wall_ms: int) -> Decision: ...

    def replay(self, record: CoordinatorRecord) -> None: ...


@runtime_checkable
class OffsetAwareMachine(Protocol):
    """A machine that must know where in the log its records are."""

    def replay_at(self, record: CoordinatorRecord, offset: Offset) -> None: ...


class TransactionalMachine(CoordinatorState, Protocol):
    """A machine whose decisions may be part of producers' transactions."""

    def replay(
        self, record: CoordinatorRecord, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None: ...

    def replay_end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None: ...


class CoordinatorLog:
    def __init__(
        self,
        *,
        partition: Partition,
        machine: CoordinatorState,
        clock: SteadyClock,
        offload: Offload,
    ) -> None:
        self._partition = partition
        self._machine = machine
        self._clock = clock
        self._offload = offload
        # None: the machine does not need offsets.
        self._replay_at = machine.replay_at if isinstance(machine, OffsetAwareMachine) else None

    def append(self, decision: Decision, guard: VerificationGuard | None) -> None:
        """Write a decision's records as one batch, and replay them.

        A decision without replies or effects may be lost in a crash: either it is made again, or it was about outdated
        state (a deleted topic's offsets stay until they expire). So it need not be synced immediately, only before
        whatever is appended after it.

        Raises:
            RequestError: nothing was written.
        """
        now_ms, producer = self._clock.wall_ms(), decision.producer
        batch = _batch(decision.records, producer, now_ms=now_ms)
        is_urgent = bool(decision.answers or decision.effects)
        appended = self._partition.append(batch, now_ms=now_ms, guard=guard, is_urgent=is_urgent)
        if self._replay_at is not None:
            for number, one in enumerate(decision.records):
                self._replay_at(one, Offset(appended.base_offset + number))
        elif producer is None:
            for one in decision.records:
                self._machine.replay(one)
        else:
            machine = cast(TransactionalMachine, self._machine)
            for one in decision.records:
                machine.replay(one, producer_id=producer.producer_id)

    def begin_verification(self, producer: RecordsProducer) -> VerificationGuard | None:
        return self._partition.log.begin_verification(_batch((_PROBE,), producer, now_ms=0).header)

    def cancel_verification(self, guard: VerificationGuard) -> None:
        self._partition.cancel_verification(guard)

    def append_marker(
        self, marker: EndTransactionMarker, *, needs_newer_epoch: bool = False
    ) -> Offset:
        """Write a transaction marker, and replay it. Return the offset after it.

        Raises:
            RequestError: nothing was written.
        """
        appended = self._partition.append_marker(
            marker, now_ms=self._clock.wall_ms(), needs_newer_epoch=needs_newer_epoch
        )
        self._replay_marker(marker)
        return Offset(appended.last_offset + 1)

    async def load(self, is_wanted: Callable[[], bool]) -> int:
        """Replay the whole partition while that is wanted. Return the number of records.

        Raises:
            RequestError, StorageError: the partition cannot be read.
        """
        log = self._partition.log
        offset, end = log.log_start, log.log_end
        count = 0
        while offset < end and is_wanted():
            read_at = offset
            data = await self._offload.run(
                lambda read_at=read_at: log.read(
                    ReadSpec(  # type: ignore[misc]
                        read_at, max_offset=end, bytes_max=LOAD_BYTES
                    )
                )
            )
            for batch in _batches(data):
                offset = batch.header.next_offset
                if batch.header.is_control:
                    self._replay_control(batch)
                    continue
                for record in read_records(batch, limit=BATCH_BYTES_MAX):
                    if record.offset >= read_at:
                        self._replay(record, batch)
                        count += 1
            # A compacted log may end in a gap: the missing records were superseded by later ones.
            if offset == read_at:
                break
        return count

    def _replay(self, record: Record, batch: RecordBatch) -> None:
        if record.key is None:
            logger.warning("%s: a record without a key at %d", self._partition.name, record.offset)
            return
        one = CoordinatorRecord(key=record.key, value=record.value)
        if self._replay_at is not None:
            self._replay_at(one, Offset(record.offset))
        elif batch.header.is_transactional:
            machine = cast(TransactionalMachine, self._machine)
            machine.replay(one, producer_id=ProducerId(batch.header.producer_id))
        else:
            self._machine.replay(one)

    def _replay_control(self, batch: RecordBatch) -> None:
        # Compaction may have left only the batch header, and future control records may be of other types.
        marker = read_marker(batch) if batch.header.record_count else None
        if marker is not None:
            self._replay_marker(marker)

    def _replay_marker(self, marker: EndTransactionMarker) -> None:
        machine = cast(TransactionalMachine, self._machine)
        machine.replay_end_transaction(
            ProducerId(marker.producer_id), is_committed=marker.is_commit
        )


# Stands for the records that are going to be written: only their producer matters.
_PROBE = CoordinatorRecord(key=b"", value=None)


def _batch(
    records: Sequence[CoordinatorRecord], producer: RecordsProducer | None, *, now_ms: int
) -> RecordBatch:
    data = build_batch(
        [NewRecord(key=one.key, value=one.value, timestamp_ms=now_ms) for one in records],
        producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        is_transactional=producer is not None,
    )
    return RecordBatch(read_header(data), data)


def _batches(data: bytes | memoryview) -> Iterator[RecordBatch]:
    view = memoryview(data)
    for position, header in walk_batches(data):
        yield RecordBatch(header, view[position : position + header.size])
