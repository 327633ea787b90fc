"""The batches of one partition that a producer writes, in order: which may be sent next, with which sequence, and what
a reply means for them. The pure machine under every writer whose batches carry sequences.

```
   queued ──► sent ──► done
                │  ▲
                ▼  │      at most `in_flight_max` are sent or waiting for a retry
              waiting
```
The rules are the Java client's, for an idempotent producer:

1. A batch's sequence is its first record's; after 2^31-1 comes 0. The broker takes only the next one, and recognises
   its last five batches, so at most five may be in flight.
2. After a failed attempt, one batch at a time is sent, the oldest first, until all that were sent before are done.
3. OUT_OF_ORDER_SEQUENCE for any but the oldest only means that an older one is not in yet: it is retried. For the
   oldest it means that the broker has lost what it had: the queue restarts, with the next epoch and sequence 0.
4. UNKNOWN_PRODUCER_ID means that the broker has no state of the producer: the same. Unless an attempt had no reply:
   then it is unknown whether the batch is in, and it fails rather than being written twice. (Java writes it again.)

Two rules are our own. The first batch of a producer, of an epoch, or after a long silence, goes alone until it is in: a
broker without state of the producer takes any sequence, so if the first were refused for a moment and the second taken,
the first would come after it. (In a transaction it could not: a gap there fails, and all is aborted.) And a batch that
fails takes all behind it along. So of what was written to a partition, what is in comes first, and what is not comes
after; to repair a failed write, the number of rows is enough.

`SequencePolicy` says which of these rules a writer follows: a producer that chooses its epochs itself, a transaction,
or a writer whose sequences are given and must stay.

No clock, no thread, no bytes: the caller says what happened, and what time it is.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from respool.client.kafka.codes import ProduceOutcome, produce_outcome
from respool.records.batch import SEQUENCE_MAX

EPOCH_MAX = 2**15 - 1
# For a batch that is in: a restarted broker may know only the last batch of a producer, or none.
_FORGOTTEN = frozenset({ProduceOutcome.SEQUENCE_GAP, ProduceOutcome.PRODUCER_UNKNOWN})
# Batches that a broker remembers of a producer; of more in flight it could not recognise duplicates.
IN_FLIGHT_MAX = 5
# A broker may drop the state of a producer that was silent for longer. It keeps it for a day, unless there are very
# many producers.
SILENCE_MAX_MS = 60_000
NO_SEQUENCE = -1
NO_OFFSET = -1


class ProducerIdentity(NamedTuple):
    """The producer id that the cluster gave, and its epoch."""

    producer_id: int
    epoch: int


class SequenceStamp(NamedTuple):
    """The producer, its epoch and the sequence of the first record, as a batch's header has them."""

    producer_id: int
    epoch: int
    sequence: int


NO_SEQUENCE_STAMP = SequenceStamp(-1, -1, NO_SEQUENCE)


class BatchFate(Enum):
    """Whether the partition has a batch."""

    IN = "in"
    # It was refused, or never sent.
    NOT_IN = "not in"
    # It was sent, and no reply came.
    UNCERTAIN = "uncertain"


class Step(Enum):
    """A batch's place in the drawing above."""

    QUEUED = 1
    SENT = 2
    WAITING = 3
    DONE = 4


@dataclass(slots=True, eq=False, kw_only=True)
class ProducerBatch:
    """A record batch and its state."""

    rows: int
    size: int
    # It is retried until then.
    deadline_ms: int
    # The batch itself; the queue does not read it.
    data: object = None
    # The stamp in `data`, and the one that must be there when it is sent.
    written_stamp: SequenceStamp = NO_SEQUENCE_STAMP
    stamp: SequenceStamp = NO_SEQUENCE_STAMP
    attempts: int = 0
    # An attempt had no reply, or one that leaves open whether the batch was appended.
    may_be_in: bool = False
    # A later batch was appended, which implies this one.
    must_be_in: bool = False
    # A batch before it failed: it is not retried.
    is_doomed: bool = False
    fate: BatchFate | None = None
    base_offset: int = NO_OFFSET
    step: Step = Step.QUEUED


class QueueFailure(NamedTuple):
    """Why a queue stopped: the first error of a batch that is not retried."""

    code: int
    message: str


@dataclass(slots=True)
class QueueUpdate:
    """What the caller has to do after a reply."""

    # In order; each has its fate.
    done: list[ProducerBatch] = field(default_factory=list)
    # Another broker may lead the partition now.
    wants_metadata: bool = False


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    # The queue may take the next epoch, and number its batches from 0, where the broker lost the producer's state.
    may_restart: bool
    # The first batch goes alone until it is in.
    first_alone: bool
    # A duplicate is a batch of this writer that is in. Else another writer has the same sequences, and the batch fails.
    takes_duplicates: bool


# A producer without transactions.
IDEMPOTENT = SequencePolicy(may_restart=True, first_alone=True, takes_duplicates=True)
# The epoch is the coordinator's: a transaction with a gap must be aborted.
TRANSACTIONAL = SequencePolicy(may_restart=False, first_alone=False, takes_duplicates=True)
# Producer id, epoch and sequences are given: another process may write the same, and must be noticed.
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
        # None: batches have no sequences, and may be duplicated.
        self.identity = identity
        self._in_flight_max = in_flight_max
        self._policy = policy
        self._next_sequence = first_sequence
        self._queued: deque[ProducerBatch] = deque()
        # Sent at least once and not done, in order.
        self._tried: list[ProducerBatch] = []
        self._sent_count = 0
        self._retry_at_ms = 0
        # Sequences restart from 0 as soon as nothing is in flight.
        self._must_restart = False
        # The broker has a batch of this identity, and so takes the following ones only in order.
        self.is_known = False
        self._sent_at_ms = 0
        self.failure: QueueFailure | None = None

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._queued and not self._tried

    @property
    def is_quiet(self) -> bool:
        """Nothing is in flight: what was sent has its reply, or will have none."""
        return not self._sent_count

    @property
    def wants_identity(self) -> bool:
        """Its epochs are used up: it continues when `restart_as` gives it another producer id."""
        identity = self.identity
        return (
            self._must_restart
            and self.is_quiet
            and identity is not None
            and identity.epoch >= EPOCH_MAX
        )

    def next_stamp(self) -> SequenceStamp:
        """The stamp of the next batch added, unless the queue restarts before it is sent."""
        return self._stamp(self._next_sequence)

    def due_at_ms(self) -> int | None:
        """When `take` may return a batch if nothing else happens before; None: not by time alone."""
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
        """The batch to send now, if any may be sent."""
        if self._must_restart and self.is_quiet and not self._restart():
            return None
        if not self._tried and now_ms - self._sent_at_ms > SILENCE_MAX_MS:
            self.is_known = False
        batch = self._head_to_send()
        if batch is None or now_ms < self._retry_at_ms:
            return None
        if batch.step is Step.QUEUED:
            assert self._queued[0] is batch
            self._tried.append(self._queued.popleft())
        batch.step = Step.SENT
        self._sent_at_ms = now_ms
        batch.attempts += 1
        self._sent_count += 1
        return batch

    def on_appended(self, batch: ProducerBatch, base_offset: int) -> QueueUpdate:
        """The broker has it."""
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
        # The next ones need not wait for this one's backoff.
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
            # Its error only follows from the failed one's.
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
        """It was taken from the queue, but not a byte of it was sent."""
        self._arrived(batch)
        if batch.is_doomed:
            return self._drop(batch)
        return self._retry(batch, retry_at_ms, wants_metadata=True)

    def expire(self, now_ms: int, failure: QueueFailure) -> QueueUpdate:
        """Fail batches that are past their deadline, with all behind them. Nothing fails while a batch is in flight."""
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
        """Forget a failure: writing may continue, with sequences that restart from 0."""
        assert self.is_empty
        if self.failure is not None:
            self.failure = None
            self._must_restart = self.identity is not None
            self._restart()

    def restart_as(self, identity: ProducerIdentity) -> None:
        """Continue with another producer id or a newer epoch, from sequence 0. Nothing may be in flight."""
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
        """How many may be in flight."""
        goes_alone = self.identity is not None and self._policy.first_alone and not self.is_known
        return 1 if goes_alone else self._in_flight_max

    def _may_succeed_on_retry(self, batch: ProducerBatch, outcome: ProduceOutcome) -> bool:
        """Whether a wrong sequence, or an unknown producer, is right the next time."""
        if outcome is ProduceOutcome.SEQUENCE_GAP:
            if self._tried[0] is not batch:
                return True
            # It is no duplicate of a batch that is in, so it is not in.
            batch.may_be_in = False
        elif outcome is not ProduceOutcome.PRODUCER_UNKNOWN or batch.may_be_in:
            return False
        self._must_restart = self._may_restart
        return self._must_restart

    def _head_to_send(self) -> ProducerBatch | None:
        if self._must_restart and not self.is_quiet:
            return None
        if any(one.step is Step.WAITING for one in self._tried):
            if self.identity is None:
                return next(one for one in self._tried if one.step is Step.WAITING)
            oldest = self._tried[0]
            return oldest if oldest.step is Step.WAITING else None
        if self._queued and len(self._tried) < self._room:
            return self._queued[0]
        return None

    def _arrived(self, batch: ProducerBatch) -> None:
        assert batch.step is Step.SENT, batch
        self._sent_count -= 1
        batch.step = Step.WAITING

    def _retry(
        self, batch: ProducerBatch, retry_at_ms: int, *, wants_metadata: bool = False
    ) -> QueueUpdate:
        batch.step = Step.WAITING
        self._retry_at_ms = max(self._retry_at_ms, retry_at_ms)
        return QueueUpdate(wants_metadata=wants_metadata)

    def _drop(self, batch: ProducerBatch) -> QueueUpdate:
        self._tried.remove(batch)
        return QueueUpdate([_finish(batch, _fate_of(batch))])

    def _fail_from(self, batch: ProducerBatch, failure: QueueFailure) -> QueueUpdate:
        """Fail the batch and those behind it. Older ones, and those in flight, still get their replies."""
        self.failure = self.failure or failure
        update = QueueUpdate()
        at = self._tried.index(batch) if batch in self._tried else len(self._tried)
        kept = self._tried[:at]
        for one in self._tried[at:]:
            if one.step is Step.SENT:
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
    batch.step = Step.DONE
    return batch


def _fate_of(batch: ProducerBatch) -> BatchFate:
    if batch.must_be_in:
        return BatchFate.IN
    return BatchFate.UNCERTAIN if batch.may_be_in else BatchFate.NOT_IN
