"""Writes batches with the replay's producer ids and sequence numbers, each exactly once and in order.

The producer of a client library gets a new id in every process. A replay continues the sequence of its last run
instead, so that the broker compares its batches with those of that run.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import PRODUCER_FENCED, Code, ProduceOutcome, produce_outcome
from respool.client.kafka.producer_ids import new_producer_id
from respool.client.kafka.sequenced_writer import SequencedWriter, WriteRefused
from respool.records.batch import SEQUENCE_MAX, Codec
from respool.records.build import build_batch
from respool.replay.batches import CopyBatch
from respool.replay.copy_plan import CopyPlan, ProducerId
from respool.replay.errors import PositionLost, ReplayError, ReplayFailed, ReplayUnreachable
from respool.replay.record_reader import ignore_note

PENDING_MAX = 10
# The target may be unavailable for this long before the replay fails; it can be resumed later.
AWAY_SECONDS_MAX = 60.0

# Another run of this replay has written with the same producer id.
_UNEXPECTED_SEQUENCE = {
    ProduceOutcome.SEQUENCE_GAP,
    ProduceOutcome.DUPLICATE,
    ProduceOutcome.PRODUCER_UNKNOWN,
}


class WrittenBatch(NamedTuple):
    batch: CopyBatch
    # The offset of its first record in the target partition; -1 if the broker did not return it.
    offset: int


class ReplayWriter:
    """Writes batches: `add` them, `run` until they are acknowledged, then `close`."""

    def __init__(
        self,
        cluster: Cluster,
        plan: CopyPlan,
        *,
        codec: Codec = Codec.NONE,
        on_note: Callable[[str], None] = ignore_note,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._codec = codec
        self._on_note = on_note
        self._clock = clock
        self._writer = SequencedWriter(cluster, clock=clock)
        self._unacknowledged: dict[int, CopyBatch] = {}
        # When the target last acknowledged a batch, or when the first one was added that it has to acknowledge.
        self._acknowledged_at = clock()
        self._is_failing = False

    @property
    def unacknowledged(self) -> list[CopyBatch]:
        return list(self._unacknowledged.values())

    @property
    def is_full(self) -> bool:
        """True if further batches would only wait in the queue."""
        return len(self._unacknowledged) >= PENDING_MAX

    def add(self, batch: CopyBatch) -> None:
        producer = self._plan.producers[batch.source]
        data = build_batch(
            batch.records,
            codec=self._codec,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            base_sequence=batch.first_number & SEQUENCE_MAX,
        )
        self._writer.add((self._plan.into, batch.target), data, token=batch)
        if not self._unacknowledged:
            # Until now there was nothing to acknowledge, perhaps for long: the replay may have been paused.
            self._acknowledged_at = self._clock()
        self._unacknowledged[id(batch)] = batch

    def run(self, *, seconds: float) -> list[WrittenBatch]:
        """Send batches as the limits allow, and wait up to `seconds` for replies. Returns the acknowledged batches.

        Raises:
            PositionLost: another run of this replay has written. This writer must not be used again.
            ReplayUnreachable: the target was unavailable for too long.
            ReplayFailed: a batch was rejected with an error that is not retriable.
        """
        done: list[WrittenBatch] = []
        if not self._unacknowledged:
            return done
        try:
            for _, batch, offset in self._writer.run(seconds=seconds):
                assert isinstance(batch, CopyBatch)
                del self._unacknowledged[id(batch)]
                done.append(WrittenBatch(batch, offset))
        except WriteRefused as refusal:
            raise self._rejected(refusal) from refusal
        self._watch(has_progress=bool(done))
        return done

    def close(self) -> None:
        self._writer.close()

    def _watch(self, *, has_progress: bool) -> None:
        error = self._writer.last_error
        if error is not None and not self._is_failing:
            self._on_note(f"{error}; trying again")
        self._is_failing = error is not None
        if has_progress:
            self._acknowledged_at = self._clock()
        elif self._clock() - self._acknowledged_at > AWAY_SECONDS_MAX:
            reason = "" if error is None else f": {error}"
            raise ReplayUnreachable(
                f"{self._plan.into} has acknowledged nothing for {AWAY_SECONDS_MAX:.0f} seconds{reason}"
            )

    def _rejected(self, refusal: WriteRefused) -> PositionLost | ReplayError:
        batch, code, into = refusal.token, refusal.code, self._plan.into
        assert isinstance(batch, CopyBatch)
        if produce_outcome(code) in _UNEXPECTED_SEQUENCE or code in PRODUCER_FENCED:
            return PositionLost(
                f"{into}/{batch.target} does not expect number {batch.first_number}: {refusal}"
            )
        messages = f"{self._plan.topic}/{batch.source}, offsets {batch.first_offset} to {batch.last_offset}"
        if code == Code.message_too_large:
            return ReplayFailed(
                f"{into} rejected messages as too large: {messages}",
                hint=f"raise its limit: respool topic alter {into} --set max.message.bytes=…; then start again",
            )
        return ReplayFailed(f"{into} rejected messages: {messages}: {refusal}")


def new_producer_ids(cluster: Cluster, count: int) -> list[ProducerId]:
    """Allocate producer ids that no other producer has."""
    return [ProducerId(*cluster.retrying(lambda: new_producer_id(cluster))) for _ in range(count)]
