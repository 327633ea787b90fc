"""One partition's batches on their way, in order: which may be sent next, by which sequence, and what an answer means.

```
   queued ──► sent ──► settled
                │  ▲
                ▼  │      at most `in_flight_max` are sent or waiting for another try
              waiting
```
The rules are the Java client's, for an idempotent producer:

1. A batch's sequence is its first record's; after 2^31-1 comes 0. The broker takes only the next one, and knows its
   last five batches again, so at most five may be under way.
2. After a failed try, one batch at a time is sent, the oldest first, until all that were tried before are settled.
3. OUT_OF_ORDER_SEQUENCE for any but the oldest only says that an older one is not in yet: it is tried again. For the
   oldest it says that the broker has lost what it had: the lane begins anew, with the next epoch and sequence 0.
4. UNKNOWN_PRODUCER_ID says that the broker has forgotten the producer: the same. Unless a try went without an answer:
   then nobody can know whether the batch is in, and it fails rather than being written twice. (Java writes it again.)

Two rules are our own. The first batch of a producer, of an epoch, or after a long silence, goes alone until it is in: a
broker that knows nothing of the producer, or no more, takes any sequence, so were the first refused for a moment and
the second taken, the first would come after it. (In a transaction it could not: a gap there fails, and all is aborted.)
And a batch that fails takes all behind it along. So of what was written to a partition, what is in comes first, and
what is not comes after; whoever repairs a failed write needs no more than the number of rows.

No clock, no thread, no bytes: the caller says what happened, and what time it is.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from respool.client.kafka.codes import ProduceOutcome, produce_outcome
from respool.records.batch import SEQUENCE_MAX

EPOCH_MAX = 2**15 - 1
# Of a batch that is in: a broker that was restarted may know only the last one of a producer, or none.
_KNOWS_IT_NO_MORE = frozenset({ProduceOutcome.SEQUENCE_GAP, ProduceOutcome.PRODUCER_UNKNOWN})
# What the broker remembers of a producer; more under way could not be told apart from repeats.
IN_FLIGHT_MAX = 5
# A producer that was silent for longer may be forgotten. Brokers wait for a day, unless there are very many producers.
SILENCE_MAX_MS = 60_000
NO_SEQUENCE = -1
NO_OFFSET = -1


class Identity(NamedTuple):
    """Who writes: the id that the cluster gave, and how often it began anew."""

    producer_id: int
    epoch: int


class Stamp(NamedTuple):
    """What a batch's header says of its producer."""

    producer_id: int
    epoch: int
    sequence: int


NO_STAMP = Stamp(-1, -1, NO_SEQUENCE)


class Verdict(Enum):
    """What became of a batch."""

    IN = "in"
    # It was refused, or never sent.
    NOT_IN = "not in"
    # It was sent, and no answer came.
    UNCERTAIN = "uncertain"


class Step(Enum):
    """Where a batch stands in the drawing above."""

    QUEUED = 1
    SENT = 2
    WAITING = 3
    SETTLED = 4


@dataclass(slots=True, eq=False, kw_only=True)
class Parcel:
    """A record batch, and where it stands."""

    rows: int
    size: int
    # Until then it is tried.
    deadline_ms: int
    # The batch itself; the lane does not look at it.
    data: object = None
    # What is written in `data`, and what should be there when it is sent.
    written_stamp: Stamp = NO_STAMP
    stamp: Stamp = NO_STAMP
    tries: int = 0
    # A try went without an answer, or with one that leaves it open.
    may_be_in: bool = False
    # A later batch was taken, which could not be without this one.
    must_be_in: bool = False
    # One before it failed: it gets no other try.
    is_doomed: bool = False
    verdict: Verdict | None = None
    base_offset: int = NO_OFFSET
    step: Step = Step.QUEUED


class Failure(NamedTuple):
    """Why a lane stopped: the first error of a batch that will not be tried again."""

    code: int
    message: str


@dataclass(slots=True)
class Reaction:
    """What the caller has to do after an answer."""

    # In order; each says its verdict.
    settled: list[Parcel] = field(default_factory=list)
    # Somebody else may lead the partition now.
    wants_metadata: bool = False


class Lane:
    def __init__(
        self,
        *,
        identity: Identity | None,
        in_flight_max: int = IN_FLIGHT_MAX,
        is_transactional: bool = False,
    ) -> None:
        assert in_flight_max >= 1
        assert identity is None or in_flight_max <= IN_FLIGHT_MAX, in_flight_max
        assert identity is not None or not is_transactional
        # None: nothing is promised about repeats.
        self.identity = identity
        self._in_flight_max = in_flight_max
        self._is_transactional = is_transactional
        self._next_sequence = 0
        self._queued: deque[Parcel] = deque()
        # Sent at least once and not settled, in order.
        self._tried: list[Parcel] = []
        self._sent_count = 0
        self._retry_at_ms = 0
        # Sequences must begin anew as soon as nothing is under way.
        self._must_restart = False
        # The broker has a batch of this identity, and so takes the following ones in order only.
        self.is_known = False
        self._sent_at_ms = 0
        self.failure: Failure | None = None

    # What there is.

    @property
    def is_empty(self) -> bool:
        return not self._queued and not self._tried

    @property
    def is_quiet(self) -> bool:
        """Nothing is under way: whatever was sent has its answer, or will have none."""
        return not self._sent_count

    @property
    def wants_identity(self) -> bool:
        """Its epochs are used up: it goes on when `restart_as` gives it another producer id."""
        identity = self.identity
        return (
            self._must_restart
            and self.is_quiet
            and identity is not None
            and identity.epoch >= EPOCH_MAX
        )

    def next_stamp(self) -> Stamp:
        """What the next batch added will be stamped with, unless the lane begins anew before it is sent."""
        return self._stamp(self._next_sequence)

    def due_at_ms(self) -> int | None:
        """When `take` may have something, if nothing else happens before; None: not by time alone."""
        if self._head_to_send() is None or self.wants_identity:
            return None
        return self._retry_at_ms

    # What happens.

    def add(self, parcel: Parcel) -> None:
        assert self.failure is None, "the lane has failed"
        parcel.stamp = self.next_stamp()
        self._next_sequence = _after(self._next_sequence, parcel.rows)
        self._queued.append(parcel)

    def take(self, now_ms: int) -> Parcel | None:
        """The batch to be sent now, if one may be."""
        if self._must_restart and self.is_quiet and not self._restart():
            return None
        if not self._tried and now_ms - self._sent_at_ms > SILENCE_MAX_MS:
            self.is_known = False
        parcel = self._head_to_send()
        if parcel is None or now_ms < self._retry_at_ms:
            return None
        if parcel.step is Step.QUEUED:
            assert self._queued[0] is parcel
            self._tried.append(self._queued.popleft())
        parcel.step = Step.SENT
        self._sent_at_ms = now_ms
        parcel.tries += 1
        self._sent_count += 1
        return parcel

    def on_taken(self, parcel: Parcel, base_offset: int) -> Reaction:
        """The broker has it."""
        self._arrived(parcel)
        if self.identity is not None:
            for older in self._tried:
                if older is parcel:
                    break
                if older.stamp[:2] == parcel.stamp[:2]:
                    older.must_be_in = True
        self._tried.remove(parcel)
        self.is_known = True
        parcel.base_offset = base_offset
        # The next ones need not wait for what this one waited for.
        self._retry_at_ms = 0
        return Reaction([_settle(parcel, Verdict.IN)])

    def on_refused(self, parcel: Parcel, code: int, message: str, *, retry_at_ms: int) -> Reaction:
        """The broker answered with an error."""
        outcome = produce_outcome(code)
        if outcome is ProduceOutcome.DUPLICATE or (
            parcel.must_be_in and outcome in _KNOWS_IT_NO_MORE
        ):
            return self.on_taken(parcel, NO_OFFSET)
        self._arrived(parcel)
        if parcel.is_doomed:
            # The error is only what the failed one drew after it.
            return self._give_up(parcel)
        if outcome in {
            ProduceOutcome.RETRY,
            ProduceOutcome.LEADER_MOVED,
            ProduceOutcome.RETRY_MAY_BE_IN,
        }:
            parcel.may_be_in |= outcome is ProduceOutcome.RETRY_MAY_BE_IN
            return self._retry(
                parcel, retry_at_ms, wants_metadata=outcome is ProduceOutcome.LEADER_MOVED
            )
        if self._is_cured_by_another_try(parcel, outcome):
            return self._retry(parcel, retry_at_ms)
        parcel.may_be_in |= outcome is ProduceOutcome.FAIL_MAY_BE_IN
        return self._fail_from(parcel, Failure(code, message))

    def on_lost(self, parcel: Parcel, *, retry_at_ms: int) -> Reaction:
        """The connection ended before the answer."""
        self._arrived(parcel)
        parcel.may_be_in = True
        if parcel.is_doomed:
            return self._give_up(parcel)
        return self._retry(parcel, retry_at_ms, wants_metadata=True)

    def on_unsent(self, parcel: Parcel, *, retry_at_ms: int) -> Reaction:
        """It was taken, but not a byte of it was sent."""
        self._arrived(parcel)
        if parcel.is_doomed:
            return self._give_up(parcel)
        return self._retry(parcel, retry_at_ms, wants_metadata=True)

    def expire(self, now_ms: int, failure: Failure) -> Reaction:
        """Give up what is past its deadline, with all behind it. What is under way is waited for."""
        if not self.is_quiet:
            return Reaction()
        for parcel in (*self._tried, *self._queued):
            if parcel.deadline_ms <= now_ms:
                return self._fail_from(parcel, failure)
        return Reaction()

    def fail(self, failure: Failure) -> Reaction:
        """Give up everything that is not under way; what is gets no other try."""
        if self.is_empty:
            self.failure = self.failure or failure
            return Reaction()
        return self._fail_from((self._tried or self._queued)[0], failure)

    def clear(self) -> None:
        """Forget a failure: writing may go on, with sequences that begin anew."""
        assert self.is_empty
        if self.failure is not None:
            self.failure = None
            self._must_restart = self.identity is not None
            self._restart()

    def restart_as(self, identity: Identity) -> None:
        """Go on as another, or with a newer epoch, from sequence 0. Nothing may be under way."""
        assert self.is_quiet
        self.identity = identity
        self._must_restart = False
        self.is_known = False
        self._number_from_zero()

    # Inside.

    @property
    def _may_restart(self) -> bool:
        # In a transaction the epoch is the coordinator's: it must be aborted.
        return self.identity is not None and not self._is_transactional

    @property
    def _room(self) -> int:
        """How many may be under way."""
        return self._in_flight_max if self.is_known or not self._may_restart else 1

    def _is_cured_by_another_try(self, parcel: Parcel, outcome: ProduceOutcome) -> bool:
        """Whether a wrong sequence, or a producer that nobody knows, is right the next time."""
        if outcome is ProduceOutcome.SEQUENCE_GAP:
            if self._tried[0] is not parcel:
                return True
            # It is no repeat of what is in, so it is not in.
            parcel.may_be_in = False
        elif outcome is not ProduceOutcome.PRODUCER_UNKNOWN or parcel.may_be_in:
            return False
        self._must_restart = self._may_restart
        return self._must_restart

    def _head_to_send(self) -> Parcel | None:
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

    def _arrived(self, parcel: Parcel) -> None:
        assert parcel.step is Step.SENT, parcel
        self._sent_count -= 1
        parcel.step = Step.WAITING

    def _retry(self, parcel: Parcel, retry_at_ms: int, *, wants_metadata: bool = False) -> Reaction:
        parcel.step = Step.WAITING
        self._retry_at_ms = max(self._retry_at_ms, retry_at_ms)
        return Reaction(wants_metadata=wants_metadata)

    def _give_up(self, parcel: Parcel) -> Reaction:
        self._tried.remove(parcel)
        return Reaction([_settle(parcel, _verdict_of(parcel))])

    def _fail_from(self, parcel: Parcel, failure: Failure) -> Reaction:
        """Give up the batch and those behind it. Older ones, and what is under way, still come to their end."""
        self.failure = self.failure or failure
        reaction = Reaction()
        at = self._tried.index(parcel) if parcel in self._tried else len(self._tried)
        kept = self._tried[:at]
        for one in self._tried[at:]:
            if one.step is Step.SENT:
                one.is_doomed = True
                kept.append(one)
            else:
                reaction.settled.append(_settle(one, _verdict_of(one)))
        self._tried = kept
        while self._queued:
            reaction.settled.append(_settle(self._queued.popleft(), Verdict.NOT_IN))
        return reaction

    def _restart(self) -> bool:
        identity = self.identity
        if identity is None:
            return True
        if identity.epoch >= EPOCH_MAX:
            return False
        self.restart_as(Identity(identity.producer_id, identity.epoch + 1))
        return True

    def _number_from_zero(self) -> None:
        self._next_sequence = 0
        for parcel in (*self._tried, *self._queued):
            parcel.stamp = self.next_stamp()
            self._next_sequence = _after(self._next_sequence, parcel.rows)

    def _stamp(self, sequence: int) -> Stamp:
        return NO_STAMP if self.identity is None else Stamp(*self.identity, sequence)


def _after(sequence: int, rows: int) -> int:
    return (sequence + rows) & SEQUENCE_MAX


def _settle(parcel: Parcel, verdict: Verdict) -> Parcel:
    parcel.verdict = verdict
    parcel.step = Step.SETTLED
    return parcel


def _verdict_of(parcel: Parcel) -> Verdict:
    if parcel.must_be_in:
        return Verdict.IN
    return Verdict.UNCERTAIN if parcel.may_be_in else Verdict.NOT_IN
