"""The batches of one partition that a producer writes, in order: which to send next, with which sequence number, and
what a reply means for them. This pure machine is used by every writer whose batches carry sequence numbers.

```
   queued ──► sent ──► done
                │  ▲
                ▼  │      at most `in_flight_max` are sent or waiting for a retry
              waiting
```
The rules are those of the Java client's idempotent producer:

1. A batch's sequence is that of its first record; 2^31-1 is followed by 0. The broker accepts only the next sequence,
   and recognises its last five batches, so at most five may be in flight.
2. After a failed attempt, batches are sent one at a time, the oldest first, until all that were sent before are done.
3. OUT_OF_ORDER_SEQUENCE for any batch but the oldest only means that an older batch is not appended yet: it is retried.
   For the oldest it means that the broker has lost the producer's state: the queue restarts with the next epoch and
   sequence 0.
4. UNKNOWN_PRODUCER_ID means that the broker has no state for the producer: the queue restarts as well. But if an
   earlier attempt had no reply, the batch may have been appended, so it fails rather than being duplicated. (Java
   resends it.)

Two rules are our own. The first batch of a producer, of an epoch, or after a long silence is sent alone until it is
appended: a broker without state for the producer accepts any sequence, so if it refused the first batch with a
transient error and accepted the second, the first would be appended after it. (Not in a transaction: a gap there fails,
and the transaction is aborted.) And a batch that fails also fails all batches after it. So the appended batches of a
partition are always a prefix of those written; to repair a failed write, the number of appended rows is enough.

`SequencePolicy` says which of these rules a writer follows: a producer that chooses its own epochs, a transaction, or a
writer whose sequences are given and must not change.

No clock, threads or I/O: the caller reports events and passes the time.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from respool.client.kafka.codes import ProduceOutcome, produce_outcome
from respool.records.batch import SEQUENCE_MAX

EPOCH_MAX = 2**15 - 1
# Errors that a batch known to be appended may still get: a restarted broker may know only the last batch, or none.
_FORGOTTEN = frozenset({ProduceOutcome.SEQUENCE_GAP, ProduceOutcome.PRODUCER_UNKNOWN})
# The number of batches that a broker remembers per producer; with more in flight it could not recognise duplicates.
IN_FLIGHT_MAX = 5
# A broker may drop the state of a producer that is silent for longer. It keeps it for a day, unless there are very
# many producers.
SILENCE_MAX_MS = 60_000
NO_SEQUENCE = -1
NO_OFFSET = -1


class ProducerIdentity(NamedTuple):
    """The producer id that the cluster assigned, and its epoch."""

    producer_id: int
    epoch: int


class SequenceStamp(NamedTuple):
    """The producer id, epoch and base sequence in a batch's header."""

    producer_id: int
    epoch: int
    sequence: int


NO_SEQUENCE_STAMP = SequenceStamp(-1, -1, NO_SEQUENCE)


class BatchFate(Enum):
    """Whether the batch was appended."""

    IN = "in"
    # It was refused, or never sent.
    NOT_IN = "not in"
    # It was sent, and no reply came.
    UNCERTAIN = "uncertain"


class BatchStep(Enum):
    """A batch's state in the diagram above."""

    QUEUED = 1
    SENT = 2
    WAITING = 3
    DONE = 4


@dataclass(slots=True, eq=False, kw_only=True)
class ProducerBatch:
    """A record batch and its state."""

    rows: int
    size: int
    # It is retried until this time.
    deadline_ms: int
    # The batch itself; the queue does not read it.
    data: object = None
    # The stamp currently in `data`, and the one required when it is sent.
    written_stamp: SequenceStamp = NO_SEQUENCE_STAMP
    stamp: SequenceStamp = NO_SEQUENCE_STAMP
    attempts: int = 0
    # An attempt had no reply, or a reply that leaves open whether the batch was appended.
    may_be_in: bool = False
    # A later batch was appended, which implies this one.
    must_be_in: bool = False
    # An earlier batch failed, so this one is not retried.
    is_doomed: bool = False
    fate: BatchFate | None = None
    base_offset: int = NO_OFFSET
    step: BatchStep = BatchStep.QUEUED


class QueueFailure(NamedTuple):
    """Why a queue stopped: the first error that is not retried."""

    code: int
    message: str


@dataclass(slots=True)
class QueueUpdate:
    """The actions for the caller after a reply."""

    # In order, each with its fate.
    done: list[ProducerBatch] = field(default_factory=list)
    # Another broker may lead the partition now.
    wants_metadata: bool = False


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    # The queue may move to the next epoch and restart its sequences at 0 when the broker has lost the producer's state.
    may_restart: bool
    # The first batch is sent alone until it is appended.
    first_alone: bool
    # DUPLICATE means that this writer's batch was appended. If False, another writer used the sequence: fail the batch.
    takes_duplicates: bool


# A producer without transactions.
IDEMPOTENT = SequencePolicy(may_restart=True, first_alone=True, takes_duplicates=True)
# The coordinator controls the epoch, so a transaction with a gap must be aborted.
TRANSACTIONAL = SequencePolicy(may_restart=False, first_alone=False, takes_duplicates=True)
# Producer id, epoch and sequences are given; another process that writes with the same ones must be detected.
FIXED = SequencePolicy(may_restart=False, first_alone=True, takes_duplicates=False)


class PartitionQueue:
    def __init__(
        self,
        *,
        identity: ProducerIdentity | None,
        in_flight_max: int = IN_FLIGHT_MAX,
        policy: SequencePolicy = IDEMPOTENT,
        first_sequence: int = 0,
    ) -> None:
        assert in_flight_max >= 1
        assert identity is None or in_flight_max <= IN_FLIGHT_MAX, in_flight_max
        assert identity is not None or policy is IDEMPOTENT
        # None: batches have no sequences and may be duplicated.
        self.identity = identity
        self._in_flight_max = in_flight_max
        self._policy = policy
        self._next_sequence = first_sequence
        self._queued: deque[ProducerBatch] = deque()
        # Sent at least once and not done, in order.
        self._tried: list[ProducerBatch] = []
        self._sent_count = 0
        self._retry_at_ms = 0
        # Sequences restart at 0 as soon as nothing is in flight.
        self._must_restart = False
        # The broker has a batch of this identity, so it accepts the following ones only in order.
        self.is_known = False
        self._sent_at_ms = 0
        self.failure: QueueFailure | None = None

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._queued and not self._tried

    @property
    def is_quiet(self) -> bool:
        """Nothing is in flight: every batch sent has its reply or a lost connection."""
        return not self._sent_count

    @property
    def wants_identity(self) -> bool:
        """The epochs are exhausted: the queue continues after `restart_as` with a new producer id."""
        identity = self.identity
        return (
            self._must_restart
            and self.is_quiet
            and identity is not None
            and identity.epoch >= EPOCH_MAX
        )

    def next_stamp(self) -> SequenceStamp:
        """The stamp of the next batch added, unless the queue restarts before that batch is sent."""
        return self._stamp(self._next_sequence)

    def due_at_ms(self) -> int | None:
        """When `take` may next return a batch, without other events; None: only after an event."""
        if self._head_to_send() is None or self.wants_identity:
            return None
        return self._retry_at_ms

    # -- events --------------------------------------------------------------------------------------------------------

    def add(self, batch: ProducerBatch) -> None:
        assert self.failure is None, "the queue has failed"
        batch.stamp = self.next_stamp()
        self._next_sequence = _after(self._next_sequence, batch.rows)
        self._queued.append(batch)

    def take(self, now_ms: int) -> ProducerBatch | None:
        """Return the batch to send now, or None."""
        if self._must_restart and self.is_quiet and not self._restart():
            return None
        if not self._tried and now_ms - self._sent_at_ms > SILENCE_MAX_MS:
            self.is_known = False
        batch = self._head_to_send()
        if batch is None or now_ms < self._retry_at_ms:
            return None
        if batch.step is BatchStep.QUEUED:
            assert self._queued[0] is batch
            self._tried.append(self._queued.popleft())
        batch.step = BatchStep.SENT
        self._sent_at_ms = now_ms
        batch.attempts += 1
        self._sent_count += 1
        return batch

    def on_appended(self, batch: ProducerBatch, base_offset: int) -> QueueUpdate:
        """The broker has appended the batch."""
        self._arrived(batch)
        if self.identity is not None:
            for older in self._tried:
                if older is batch:
                    break
                if older.stamp[:2] == batch.stamp[:2]:
                    older.must_be_in = True
        self._tried.remove(batch)
        self.is_known = True
        batch.base_offset = base_offset
        # Later batches need not wait for this batch's backoff.
        self._retry_at_ms = 0
        return QueueUpdate([_finish(batch, BatchFate.IN)])

    def on_refused(
        self, batch: ProducerBatch, code: int, message: str, *, retry_at_ms: int
    ) -> QueueUpdate:
        """The broker replied with an error."""
        outcome = produce_outcome(code)
        is_in = batch.must_be_in and outcome in _FORGOTTEN
        if is_in or (outcome is ProduceOutcome.DUPLICATE and self._policy.takes_duplicates):
            return self.on_appended(batch, NO_OFFSET)
        self._arrived(batch)
        if batch.is_doomed:
            # Its error is only a consequence of the earlier failure.
            return self._drop(batch)
        if outcome in {
            ProduceOutcome.RETRY,
            ProduceOutcome.LEADER_MOVED,
            ProduceOutcome.RETRY_MAY_BE_IN,
        }:
            batch.may_be_in |= outcome is ProduceOutcome.RETRY_MAY_BE_IN
            return self._retry(
                batch, retry_at_ms, wants_metadata=outcome is ProduceOutcome.LEADER_MOVED
            )
        if self._may_succeed_on_retry(batch, outcome):
            return self._retry(batch, retry_at_ms)
        batch.may_be_in |= outcome is ProduceOutcome.FAIL_MAY_BE_IN
        return self._fail_from(batch, QueueFailure(code, message))

    def on_lost(self, batch: ProducerBatch, *, retry_at_ms: int) -> QueueUpdate:
        """The connection ended before the reply."""
        self._arrived(batch)
        batch.may_be_in = True
        if batch.is_doomed:
            return self._drop(batch)
        return self._retry(batch, retry_at_ms, wants_metadata=True)

    def on_unsent(self, batch: ProducerBatch, *, retry_at_ms: int) -> QueueUpdate:
        """The batch was taken from the queue, but no byte of it was sent."""
        self._arrived(batch)
        if batch.is_doomed:
            return self._drop(batch)
        return self._retry(batch, retry_at_ms, wants_metadata=True)

    def expire(self, now_ms: int, failure: QueueFailure) -> QueueUpdate:
        """Fail batches past their deadline, and all after them. Does nothing while a batch is in flight."""
        if not self.is_quiet:
            return QueueUpdate()
        for batch in (*self._tried, *self._queued):
            if batch.deadline_ms <= now_ms:
                return self._fail_from(batch, failure)
        return QueueUpdate()

    def fail(self, failure: QueueFailure) -> QueueUpdate:
        """Fail queued batches; those in flight are not retried."""
        if self.is_empty:
            self.failure = self.failure or failure
            return QueueUpdate()
        return self._fail_from((self._tried or self._queued)[0], failure)

    def clear(self) -> None:
        """Clear a failure: writing may continue, with sequences restarting at 0."""
        assert self.is_empty
        if self.failure is not None:
            self.failure = None
            self._must_restart = self.identity is not None
            self._restart()

    def restart_as(self, identity: ProducerIdentity) -> None:
        """Continue with another producer id or a newer epoch, from sequence 0. Requires that nothing is in flight."""
        assert self.is_quiet
        self.identity = identity
        self._must_restart = False
        self.is_known = False
        self._number_from_zero()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _may_restart(self) -> bool:
        return self.identity is not None and self._policy.may_restart

    @property
    def _room(self) -> int:
        """The maximum number of batches in flight."""
        goes_alone = self.identity is not None and self._policy.first_alone and not self.is_known
        return 1 if goes_alone else self._in_flight_max

    def _may_succeed_on_retry(self, batch: ProducerBatch, outcome: ProduceOutcome) -> bool:
        """Whether a sequence gap or an unknown producer may have disappeared by the next attempt."""
        if outcome is ProduceOutcome.SEQUENCE_GAP:
            if self._tried[0] is not batch:
                return True
            # The broker did not recognise it as a duplicate, so it is not appended.
            batch.may_be_in = False
        elif outcome is not ProduceOutcome.PRODUCER_UNKNOWN or batch.may_be_in:
            return False
        self._must_restart = self._may_restart
        return self._must_restart

    def _head_to_send(self) -> ProducerBatch | None:
        if self._must_restart and not self.is_quiet:
            return None
        if any(one.step is BatchStep.WAITING for one in self._tried):
            if self.identity is None:
                return next(one for one in self._tried if one.step is BatchStep.WAITING)
            oldest = self._tried[0]
            return oldest if oldest.step is BatchStep.WAITING else None
        if self._queued and len(self._tried) < self._room:
            return self._queued[0]
        return None

    def _arrived(self, batch: ProducerBatch) -> None:
        assert batch.step is BatchStep.SENT, batch
        self._sent_count -= 1
        batch.step = BatchStep.WAITING

    def _retry(
        self, batch: ProducerBatch, retry_at_ms: int, *, wants_metadata: bool = False
    ) -> QueueUpdate:
        batch.step = BatchStep.WAITING
        self._retry_at_ms = max(self._retry_at_ms, retry_at_ms)
        return QueueUpdate(wants_metadata=wants_metadata)

    def _drop(self, batch: ProducerBatch) -> QueueUpdate:
        self._tried.remove(batch)
        return QueueUpdate([_finish(batch, _fate_of(batch))])

    def _fail_from(self, batch: ProducerBatch, failure: QueueFailure) -> QueueUpdate:
        """Fail the batch and all after it. Older ones, and those in flight, still wait for their replies."""
        self.failure = self.failure or failure
        update = QueueUpdate()
        at = self._tried.index(batch) if batch in self._tried else len(self._tried)
        kept = self._tried[:at]
        for one in self._tried[at:]:
            if one.step is BatchStep.SENT:
                one.is_doomed = True
                kept.append(one)
            else:
                update.done.append(_finish(one, _fate_of(one)))
        self._tried = kept
        while self._queued:
            update.done.append(_finish(self._queued.popleft(), BatchFate.NOT_IN))
        return update

    def _restart(self) -> bool:
        identity = self.identity
        if identity is None:
            return True
        if identity.epoch >= EPOCH_MAX:
            return False
        self.restart_as(ProducerIdentity(identity.producer_id, identity.epoch + 1))
        return True

    def _number_from_zero(self) -> None:
        self._next_sequence = 0
        for batch in (*self._tried, *self._queued):
            batch.stamp = self.next_stamp()
            self._next_sequence = _after(self._next_sequence, batch.rows)

    def _stamp(self, sequence: int) -> SequenceStamp:
        return (
            NO_SEQUENCE_STAMP if self.identity is None else SequenceStamp(*self.identity, sequence)
        )


def _after(sequence: int, rows: int) -> int:
    return (sequence + rows) & SEQUENCE_MAX


def _finish(batch: ProducerBatch, fate: BatchFate) -> ProducerBatch:
    batch.fate = fate
    batch.step = BatchStep.DONE
    return batch


def _fate_of(batch: ProducerBatch) -> BatchFate:
    if batch.must_be_in:
        return BatchFate.IN
    return BatchFate.UNCERTAIN if batch.may_be_in else BatchFate.NOT_IN
