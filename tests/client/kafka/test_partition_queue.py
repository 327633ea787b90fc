"""A queue against a broker of a few lines: whatever happens on the way, nothing is lost, doubled or out of order."""

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.client.kafka.codes import Code
from respool.client.kafka.partition_queue import (
    EPOCH_MAX,
    FIXED,
    IDEMPOTENT,
    IN_FLIGHT_MAX,
    NO_SEQUENCE_STAMP,
    SILENCE_MAX_MS,
    TRANSACTIONAL,
    BatchFate,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
    QueueFailure,
    SequencePolicy,
    SequenceStamp,
)
from respool.records.batch import SEQUENCE_MAX

ME = ProducerIdentity(producer_id=7, epoch=0)
NEVER = 1 << 60
NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, GAP, FORGOTTEN, FENCED = (
    6,
    7,
    10,
    19,
    45,
    59,
    90,
)
EXAMPLES = 2_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 300


def batch(rows: int = 1, *, deadline_ms: int = NEVER) -> ProducerBatch:
    return ProducerBatch(rows=rows, size=100, deadline_ms=deadline_ms)


def queue_of(
    *batches: ProducerBatch,
    identity: ProducerIdentity | None = ME,
    policy: SequencePolicy = IDEMPOTENT,
    is_known: bool = True,
) -> PartitionQueue:
    queue = PartitionQueue(identity=identity, policy=policy)
    queue.is_known = is_known
    for one in batches:
        queue.add(one)
    return queue


def take_all(queue: PartitionQueue, now_ms: int = 0) -> list[ProducerBatch]:
    taken = []
    while (one := queue.take(now_ms)) is not None:
        taken.append(one)
    return taken


# Sequences.


def test_sequences_count_rows_and_begin_again_after_the_largest() -> None:
    first, second, third = batch(SEQUENCE_MAX), batch(3), batch(1)
    queue_of(first, second, third)
    assert [one.stamp.sequence for one in (first, second, third)] == [0, SEQUENCE_MAX, 2]


def test_the_stamp_foretold_is_the_one_the_batch_gets() -> None:
    queue = queue_of(batch(10))
    foretold = queue.next_stamp()
    second = batch(1)
    queue.add(second)
    assert foretold == second.stamp == SequenceStamp(7, 0, 10)


def test_without_an_identity_batches_have_no_stamp() -> None:
    one = batch()
    queue_of(one, identity=None)
    assert one.stamp == NO_SEQUENCE_STAMP


# The window.


def test_at_most_five_batches_are_under_way() -> None:
    batches = [batch() for _ in range(8)]
    queue = queue_of(*batches)
    assert take_all(queue) == batches[:IN_FLIGHT_MAX]
    queue.on_appended(batches[0], 0)
    assert take_all(queue) == [batches[5]]


def test_the_first_batch_goes_alone_until_it_is_in() -> None:
    one, two, three = (batch() for _ in range(3))
    queue = queue_of(one, two, three, is_known=False)
    assert take_all(queue) == [one]
    queue.on_refused(one, NOT_ENOUGH_REPLICAS, "", retry_at_ms=0)
    # A broker that knows nothing of the producer would take the second, and then refuse the first.
    assert take_all(queue) == [one]
    queue.on_appended(one, 0)
    assert take_all(queue) == [two, three]


def test_the_first_batch_of_an_epoch_goes_alone_too() -> None:
    one, two = batch(), batch()
    queue = queue_of(one, two)
    take_all(queue)
    for each in (one, two):
        queue.on_refused(each, FORGOTTEN, "", retry_at_ms=0)
    assert take_all(queue) == [one]
    queue.on_lost(one, retry_at_ms=0)
    assert take_all(queue) == [one]


def test_the_first_batch_after_a_long_silence_goes_alone_too() -> None:
    # The broker may have forgotten the producer by then.
    one, two, three, four = (batch() for _ in range(4))
    queue = queue_of(one, two)
    assert take_all(queue, SILENCE_MAX_MS) == [one, two]
    for offset, each in enumerate((one, two)):
        queue.on_appended(each, offset)
    queue.add(three)
    queue.add(four)
    assert take_all(queue, 2 * SILENCE_MAX_MS + 1) == [three]
    queue.on_appended(three, 2)
    assert take_all(queue, 2 * SILENCE_MAX_MS + 1) == [four]


def test_in_a_transaction_the_first_batch_need_not_go_alone() -> None:
    one, two = batch(), batch()
    # Were the second taken without it, it would be refused, and the transaction aborted.
    assert take_all(queue_of(one, two, policy=TRANSACTIONAL, is_known=False)) == [one, two]


def test_after_a_failed_try_the_oldest_goes_alone_until_all_tried_before_are_in() -> None:
    one, two, three, four = (batch() for _ in range(4))
    queue = queue_of(one, two, three)
    assert take_all(queue) == [one, two, three]
    queue.add(four)
    for each in (one, two, three):
        assert queue.on_refused(each, NOT_LEADER, "", retry_at_ms=5).wants_metadata
    assert take_all(queue, 4) == []
    assert queue.due_at_ms() == 5
    assert take_all(queue, 5) == [one]
    queue.on_appended(one, 0)
    assert take_all(queue, 5) == [two]
    queue.on_appended(two, 1)
    # The last of them is tried for the second time; nothing keeps new ones back.
    assert take_all(queue, 5) == [three, four]


def test_a_retry_keeps_its_sequence() -> None:
    one = batch(5)
    queue = queue_of(one)
    queue.take(0)
    queue.on_lost(one, retry_at_ms=0)
    again = queue.take(0)
    assert again is one
    assert one.stamp == SequenceStamp(7, 0, 0)
    assert one.attempts == 2


def test_a_repeat_that_the_broker_knows_is_a_success() -> None:
    one = batch()
    queue = queue_of(one)
    queue.take(0)
    assert queue.on_refused(one, 46, "duplicate", retry_at_ms=0).done == [one]
    assert one.fate is BatchFate.IN


# Beginning anew.


def test_a_gap_behind_a_missing_batch_is_only_tried_again() -> None:
    one, two = batch(), batch()
    queue = queue_of(one, two)
    take_all(queue)
    queue.on_refused(two, GAP, "", retry_at_ms=0)
    queue.on_refused(one, NOT_ENOUGH_REPLICAS, "", retry_at_ms=0)
    assert take_all(queue) == [one]
    assert one.stamp == SequenceStamp(7, 0, 0)


def test_a_gap_before_the_oldest_begins_the_next_epoch_when_nothing_is_under_way() -> None:
    done, one, two, queued = batch(4), batch(2), batch(3), batch(1)
    queue = queue_of(done, one, two)
    take_all(queue)
    queue.on_appended(done, 0)
    queue.add(queued)
    queue.on_refused(one, GAP, "", retry_at_ms=0)
    assert take_all(queue) == [], "an answer of the old epoch is still to come"
    queue.on_refused(two, GAP, "", retry_at_ms=0)
    assert take_all(queue) == [one]
    assert [each.stamp for each in (one, two, queued)] == [
        SequenceStamp(7, 1, 0),
        SequenceStamp(7, 1, 2),
        SequenceStamp(7, 1, 5),
    ]


def test_a_forgotten_producer_begins_the_next_epoch() -> None:
    one = batch()
    queue = queue_of(batch(4), one)
    queue.on_appended(take_all(queue)[0], 0)
    queue.on_refused(one, FORGOTTEN, "", retry_at_ms=0)
    assert queue.take(0) is one
    assert one.stamp == SequenceStamp(7, 1, 0)


def test_a_forgotten_producer_does_not_write_twice_what_may_be_in() -> None:
    one = batch()
    queue = queue_of(one)
    queue.take(0)
    queue.on_lost(one, retry_at_ms=0)
    queue.take(0)
    assert queue.on_refused(one, FORGOTTEN, "gone", retry_at_ms=0).done == [one]
    assert one.fate is BatchFate.UNCERTAIN
    assert queue.failure == QueueFailure(FORGOTTEN, "gone")


def test_given_sequences_begin_where_they_are_told_to_and_go_alone_first() -> None:
    queue = PartitionQueue(identity=ProducerIdentity(7, 3), policy=FIXED, first_sequence=40)
    one, two = batch(), batch()
    queue.add(one)
    queue.add(two)
    assert one.stamp == SequenceStamp(7, 3, 40)
    assert two.stamp == SequenceStamp(7, 3, 40 + one.rows)
    assert take_all(queue) == [one]
    queue.on_appended(one, 0)
    assert take_all(queue) == [two]


@pytest.mark.parametrize("code", [GAP, Code.duplicate_sequence_number, FORGOTTEN])
def test_given_sequences_that_the_broker_does_not_expect_fail(code: int) -> None:
    queue = PartitionQueue(identity=ProducerIdentity(7, 3), policy=FIXED, first_sequence=40)
    one, two = batch(), batch()
    queue.add(one)
    queue.add(two)
    queue.take(0)
    assert queue.on_refused(one, code, "unexpected", retry_at_ms=0).done == [one, two]
    assert (one.fate, two.fate) == (BatchFate.NOT_IN, BatchFate.NOT_IN)
    assert queue.failure == QueueFailure(code, "unexpected")
    assert queue.identity == ProducerIdentity(7, 3)


def test_in_a_transaction_a_gap_fails() -> None:
    one = batch()
    queue = queue_of(one, policy=TRANSACTIONAL)
    queue.take(0)
    queue.on_refused(one, GAP, "gap", retry_at_ms=0)
    assert queue.failure == QueueFailure(GAP, "gap")


def test_after_the_last_epoch_another_producer_id_is_waited_for() -> None:
    one = batch()
    queue = queue_of(one, identity=ProducerIdentity(7, EPOCH_MAX))
    queue.take(0)
    queue.on_refused(one, GAP, "", retry_at_ms=0)
    assert queue.wants_identity
    assert queue.take(0) is None
    queue.restart_as(ProducerIdentity(8, 0))
    assert queue.take(0) is one
    assert one.stamp == SequenceStamp(8, 0, 0)


# Failing.


def test_a_refused_batch_takes_all_behind_it_along() -> None:
    one, two, three, queued = (batch() for _ in range(4))
    queue = queue_of(one, two, three)
    take_all(queue)
    queue.add(queued)
    assert queue.on_refused(two, TOO_LARGE, "too large", retry_at_ms=0).done == [two, queued]
    assert queue.on_refused(three, GAP, "", retry_at_ms=0).done == [three]
    # The older one still has all its tries.
    queue.on_refused(one, NOT_LEADER, "", retry_at_ms=0)
    assert take_all(queue) == [one]
    assert queue.on_appended(one, 3).done == [one]
    assert [each.fate for each in (one, two, three, queued)] == [
        BatchFate.IN,
        BatchFate.NOT_IN,
        BatchFate.NOT_IN,
        BatchFate.NOT_IN,
    ]
    assert queue.failure == QueueFailure(TOO_LARGE, "too large")


def test_a_failed_lane_goes_on_with_the_next_epoch() -> None:
    one = batch(5)
    queue = queue_of(one)
    queue.take(0)
    queue.on_refused(one, TOO_LARGE, "", retry_at_ms=0)
    queue.clear()
    next_one = batch()
    queue.add(next_one)
    assert queue.take(0) is next_one
    assert next_one.stamp == SequenceStamp(7, 1, 0)


def test_nothing_expires_while_an_answer_may_come() -> None:
    one, two = batch(deadline_ms=10), batch(deadline_ms=99)
    queue = queue_of(one, two)
    late = QueueFailure(7, "late")
    assert queue.take(0) is one
    assert queue.expire(10, late).done == []
    queue.on_lost(one, retry_at_ms=50)
    assert queue.expire(9, late).done == []
    assert queue.expire(10, late).done == [one, two]
    assert (one.fate, two.fate) == (BatchFate.UNCERTAIN, BatchFate.NOT_IN)


def test_what_was_never_sent_is_not_uncertain() -> None:
    one = batch(deadline_ms=1)
    queue = queue_of(one)
    queue.take(0)
    queue.on_unsent(one, retry_at_ms=0)
    queue.expire(1, QueueFailure(7, ""))
    assert one.fate is BatchFate.NOT_IN


def test_a_later_batch_that_was_taken_proves_that_the_older_is_in() -> None:
    one, two = batch(deadline_ms=1), batch()
    queue = queue_of(one, two)
    take_all(queue)
    queue.on_refused(one, TIMED_OUT, "", retry_at_ms=0)
    queue.on_appended(two, 5)
    queue.expire(1, QueueFailure(7, ""))
    assert one.fate is BatchFate.IN


@pytest.mark.parametrize("code", [GAP, FORGOTTEN])
def test_what_must_be_in_is_not_written_again_where_the_broker_knows_it_no_more(code: int) -> None:
    one, two = batch(), batch()
    queue = queue_of(one, two)
    take_all(queue)
    queue.on_refused(one, TIMED_OUT, "", retry_at_ms=0)
    queue.on_appended(two, 5)
    assert take_all(queue) == [one]
    # Kafka's brokers know only the last batch of a producer after a restart.
    assert queue.on_refused(one, code, "", retry_at_ms=0).done == [one]
    assert (one.fate, queue.failure, queue.identity) == (BatchFate.IN, None, ME)


# Any story.


@dataclass
class ModelBroker:
    """What a partition does with stamped batches, and nothing else: the last five are known again.

    Whoever is not known at all may begin with any sequence.
    """

    log: list[ProducerBatch] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    known: list[SequenceStamp] = field(default_factory=list)

    def append(self, sent: ProducerBatch, stamp: SequenceStamp) -> int:
        if stamp.epoch == self.epoch and stamp in self.known:
            return 46
        if stamp.epoch < self.epoch:
            return 47
        wanted = self.next_sequence if stamp.epoch == self.epoch else 0
        if stamp.sequence != wanted and self.epoch != -1:
            return GAP
        if stamp.epoch > self.epoch:
            self.known = []
        self.epoch = stamp.epoch
        self.next_sequence = stamp.sequence + sent.rows
        self.known = [*self.known, stamp][-5:]
        self.log.append(sent)
        return 0


WAYS = st.sampled_from(
    [
        "taken",
        "taken",
        "taken",
        "lost before",
        "lost after",
        "elsewhere",
        "no replicas",
        "too large",
        "late",
    ]
)


@settings(max_examples=EXAMPLES)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    ways=st.lists(WAYS, max_size=40),
    data=st.data(),
)
def test_what_is_said_to_be_in_is_in_once_and_in_order(
    sizes: list[int], ways: list[str], data: st.DataObject
) -> None:
    batches = [batch(rows, deadline_ms=100) for rows in sizes]
    queue, broker = queue_of(*batches, is_known=False), ModelBroker()
    under_way: list[tuple[ProducerBatch, SequenceStamp]] = []
    left = list(ways)
    while not queue.is_empty:
        while (sent := queue.take(0)) is not None:
            under_way.append((sent, sent.stamp))
        if not under_way:
            # All tries are used up, or the time.
            queue.expire(100, QueueFailure(7, "late"))
            continue
        # One connection: the oldest request comes to its end first; where it is cut, all behind it are lost as well.
        sent, stamp = under_way.pop(0)
        way = left.pop(0) if left else "taken"
        if way in ("lost before", "lost after"):
            if way == "lost after":
                broker.append(sent, stamp)
            queue.on_lost(sent, retry_at_ms=0)
            is_later_in = data.draw(st.booleans())
            for other, its_stamp in under_way:
                if is_later_in:
                    broker.append(other, its_stamp)
                queue.on_lost(other, retry_at_ms=0)
            under_way.clear()
        elif way == "late":
            code = broker.append(sent, stamp)
            queue.on_refused(sent, TIMED_OUT if code in (0, 46) else code, "", retry_at_ms=0)
        elif way in ("elsewhere", "no replicas"):
            queue.on_refused(
                sent, NOT_LEADER if way == "elsewhere" else NOT_ENOUGH_REPLICAS, "", retry_at_ms=0
            )
        elif way == "too large" and not sent.may_be_in and not sent.must_be_in:
            queue.on_refused(sent, TOO_LARGE, "", retry_at_ms=0)
        else:
            code = broker.append(sent, stamp)
            if code:
                queue.on_refused(sent, code, "", retry_at_ms=0)
            else:
                queue.on_appended(sent, len(broker.log) - 1)
    # Once each, and in order.
    places = [batches.index(one) for one in broker.log]
    assert places == list(range(len(places)))
    for number, one in enumerate(batches):
        if one.fate is BatchFate.IN:
            assert number < len(places)
        elif one.fate is BatchFate.NOT_IN:
            assert number >= len(places)
        else:
            assert one.fate is BatchFate.UNCERTAIN
    assert queue.failure is not None or all(one.fate is BatchFate.IN for one in batches)
