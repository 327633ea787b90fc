"""A lane against a broker of a few lines: whatever happens on the way, nothing is lost, doubled or out of order."""

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.client.kafka.partition_queue import (
    EPOCH_MAX,
    IN_FLIGHT_MAX,
    NO_STAMP,
    SILENCE_MAX_MS,
    Failure,
    Identity,
    Lane,
    Parcel,
    Stamp,
    Verdict,
)
from respool.records.batch import SEQUENCE_MAX

ME = Identity(producer_id=7, epoch=0)
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


def parcel(rows: int = 1, *, deadline_ms: int = NEVER) -> Parcel:
    return Parcel(rows=rows, size=100, deadline_ms=deadline_ms)


def lane_of(
    *parcels: Parcel,
    identity: Identity | None = ME,
    is_transactional: bool = False,
    is_known: bool = True,
) -> Lane:
    lane = Lane(identity=identity, is_transactional=is_transactional)
    lane.is_known = is_known
    for one in parcels:
        lane.add(one)
    return lane


def take_all(lane: Lane, now_ms: int = 0) -> list[Parcel]:
    taken = []
    while (one := lane.take(now_ms)) is not None:
        taken.append(one)
    return taken


# Sequences.


def test_sequences_count_rows_and_begin_again_after_the_largest() -> None:
    first, second, third = parcel(SEQUENCE_MAX), parcel(3), parcel(1)
    lane_of(first, second, third)
    assert [one.stamp.sequence for one in (first, second, third)] == [0, SEQUENCE_MAX, 2]


def test_the_stamp_foretold_is_the_one_the_batch_gets() -> None:
    lane = lane_of(parcel(10))
    foretold = lane.next_stamp()
    second = parcel(1)
    lane.add(second)
    assert foretold == second.stamp == Stamp(7, 0, 10)


def test_without_an_identity_batches_have_no_stamp() -> None:
    one = parcel()
    lane_of(one, identity=None)
    assert one.stamp == NO_STAMP


# The window.


def test_at_most_five_batches_are_under_way() -> None:
    parcels = [parcel() for _ in range(8)]
    lane = lane_of(*parcels)
    assert take_all(lane) == parcels[:IN_FLIGHT_MAX]
    lane.on_taken(parcels[0], 0)
    assert take_all(lane) == [parcels[5]]


def test_the_first_batch_goes_alone_until_it_is_in() -> None:
    one, two, three = (parcel() for _ in range(3))
    lane = lane_of(one, two, three, is_known=False)
    assert take_all(lane) == [one]
    lane.on_refused(one, NOT_ENOUGH_REPLICAS, "", retry_at_ms=0)
    # A broker that knows nothing of the producer would take the second, and then refuse the first.
    assert take_all(lane) == [one]
    lane.on_taken(one, 0)
    assert take_all(lane) == [two, three]


def test_the_first_batch_of_an_epoch_goes_alone_too() -> None:
    one, two = parcel(), parcel()
    lane = lane_of(one, two)
    take_all(lane)
    for each in (one, two):
        lane.on_refused(each, FORGOTTEN, "", retry_at_ms=0)
    assert take_all(lane) == [one]
    lane.on_lost(one, retry_at_ms=0)
    assert take_all(lane) == [one]


def test_the_first_batch_after_a_long_silence_goes_alone_too() -> None:
    # The broker may have forgotten the producer by then.
    one, two, three, four = (parcel() for _ in range(4))
    lane = lane_of(one, two)
    assert take_all(lane, SILENCE_MAX_MS) == [one, two]
    for offset, each in enumerate((one, two)):
        lane.on_taken(each, offset)
    lane.add(three)
    lane.add(four)
    assert take_all(lane, 2 * SILENCE_MAX_MS + 1) == [three]
    lane.on_taken(three, 2)
    assert take_all(lane, 2 * SILENCE_MAX_MS + 1) == [four]


def test_in_a_transaction_the_first_batch_need_not_go_alone() -> None:
    one, two = parcel(), parcel()
    # Were the second taken without it, it would be refused, and the transaction aborted.
    assert take_all(lane_of(one, two, is_transactional=True, is_known=False)) == [one, two]


def test_after_a_failed_try_the_oldest_goes_alone_until_all_tried_before_are_in() -> None:
    one, two, three, four = (parcel() for _ in range(4))
    lane = lane_of(one, two, three)
    assert take_all(lane) == [one, two, three]
    lane.add(four)
    for each in (one, two, three):
        assert lane.on_refused(each, NOT_LEADER, "", retry_at_ms=5).wants_metadata
    assert take_all(lane, 4) == []
    assert lane.due_at_ms() == 5
    assert take_all(lane, 5) == [one]
    lane.on_taken(one, 0)
    assert take_all(lane, 5) == [two]
    lane.on_taken(two, 1)
    # The last of them is tried for the second time; nothing keeps new ones back.
    assert take_all(lane, 5) == [three, four]


def test_a_retry_keeps_its_sequence() -> None:
    one = parcel(5)
    lane = lane_of(one)
    lane.take(0)
    lane.on_lost(one, retry_at_ms=0)
    again = lane.take(0)
    assert again is one
    assert one.stamp == Stamp(7, 0, 0)
    assert one.tries == 2


def test_a_repeat_that_the_broker_knows_is_a_success() -> None:
    one = parcel()
    lane = lane_of(one)
    lane.take(0)
    assert lane.on_refused(one, 46, "duplicate", retry_at_ms=0).settled == [one]
    assert one.verdict is Verdict.IN


# Beginning anew.


def test_a_gap_behind_a_missing_batch_is_only_tried_again() -> None:
    one, two = parcel(), parcel()
    lane = lane_of(one, two)
    take_all(lane)
    lane.on_refused(two, GAP, "", retry_at_ms=0)
    lane.on_refused(one, NOT_ENOUGH_REPLICAS, "", retry_at_ms=0)
    assert take_all(lane) == [one]
    assert one.stamp == Stamp(7, 0, 0)


def test_a_gap_before_the_oldest_begins_the_next_epoch_when_nothing_is_under_way() -> None:
    done, one, two, queued = parcel(4), parcel(2), parcel(3), parcel(1)
    lane = lane_of(done, one, two)
    take_all(lane)
    lane.on_taken(done, 0)
    lane.add(queued)
    lane.on_refused(one, GAP, "", retry_at_ms=0)
    assert take_all(lane) == [], "an answer of the old epoch is still to come"
    lane.on_refused(two, GAP, "", retry_at_ms=0)
    assert take_all(lane) == [one]
    assert [each.stamp for each in (one, two, queued)] == [
        Stamp(7, 1, 0),
        Stamp(7, 1, 2),
        Stamp(7, 1, 5),
    ]


def test_a_forgotten_producer_begins_the_next_epoch() -> None:
    one = parcel()
    lane = lane_of(parcel(4), one)
    lane.on_taken(take_all(lane)[0], 0)
    lane.on_refused(one, FORGOTTEN, "", retry_at_ms=0)
    assert lane.take(0) is one
    assert one.stamp == Stamp(7, 1, 0)


def test_a_forgotten_producer_does_not_write_twice_what_may_be_in() -> None:
    one = parcel()
    lane = lane_of(one)
    lane.take(0)
    lane.on_lost(one, retry_at_ms=0)
    lane.take(0)
    assert lane.on_refused(one, FORGOTTEN, "gone", retry_at_ms=0).settled == [one]
    assert one.verdict is Verdict.UNCERTAIN
    assert lane.failure == Failure(FORGOTTEN, "gone")


def test_in_a_transaction_a_gap_fails() -> None:
    one = parcel()
    lane = lane_of(one, is_transactional=True)
    lane.take(0)
    lane.on_refused(one, GAP, "gap", retry_at_ms=0)
    assert lane.failure == Failure(GAP, "gap")


def test_after_the_last_epoch_another_producer_id_is_waited_for() -> None:
    one = parcel()
    lane = lane_of(one, identity=Identity(7, EPOCH_MAX))
    lane.take(0)
    lane.on_refused(one, GAP, "", retry_at_ms=0)
    assert lane.wants_identity
    assert lane.take(0) is None
    lane.restart_as(Identity(8, 0))
    assert lane.take(0) is one
    assert one.stamp == Stamp(8, 0, 0)


# Failing.


def test_a_refused_batch_takes_all_behind_it_along() -> None:
    one, two, three, queued = (parcel() for _ in range(4))
    lane = lane_of(one, two, three)
    take_all(lane)
    lane.add(queued)
    assert lane.on_refused(two, TOO_LARGE, "too large", retry_at_ms=0).settled == [two, queued]
    assert lane.on_refused(three, GAP, "", retry_at_ms=0).settled == [three]
    # The older one still has all its tries.
    lane.on_refused(one, NOT_LEADER, "", retry_at_ms=0)
    assert take_all(lane) == [one]
    assert lane.on_taken(one, 3).settled == [one]
    assert [each.verdict for each in (one, two, three, queued)] == [
        Verdict.IN,
        Verdict.NOT_IN,
        Verdict.NOT_IN,
        Verdict.NOT_IN,
    ]
    assert lane.failure == Failure(TOO_LARGE, "too large")


def test_a_failed_lane_goes_on_with_the_next_epoch() -> None:
    one = parcel(5)
    lane = lane_of(one)
    lane.take(0)
    lane.on_refused(one, TOO_LARGE, "", retry_at_ms=0)
    lane.clear()
    next_one = parcel()
    lane.add(next_one)
    assert lane.take(0) is next_one
    assert next_one.stamp == Stamp(7, 1, 0)


def test_nothing_expires_while_an_answer_may_come() -> None:
    one, two = parcel(deadline_ms=10), parcel(deadline_ms=99)
    lane = lane_of(one, two)
    late = Failure(7, "late")
    assert lane.take(0) is one
    assert lane.expire(10, late).settled == []
    lane.on_lost(one, retry_at_ms=50)
    assert lane.expire(9, late).settled == []
    assert lane.expire(10, late).settled == [one, two]
    assert (one.verdict, two.verdict) == (Verdict.UNCERTAIN, Verdict.NOT_IN)


def test_what_was_never_sent_is_not_uncertain() -> None:
    one = parcel(deadline_ms=1)
    lane = lane_of(one)
    lane.take(0)
    lane.on_unsent(one, retry_at_ms=0)
    lane.expire(1, Failure(7, ""))
    assert one.verdict is Verdict.NOT_IN


def test_a_later_batch_that_was_taken_proves_that_the_older_is_in() -> None:
    one, two = parcel(deadline_ms=1), parcel()
    lane = lane_of(one, two)
    take_all(lane)
    lane.on_refused(one, TIMED_OUT, "", retry_at_ms=0)
    lane.on_taken(two, 5)
    lane.expire(1, Failure(7, ""))
    assert one.verdict is Verdict.IN


@pytest.mark.parametrize("code", [GAP, FORGOTTEN])
def test_what_must_be_in_is_not_written_again_where_the_broker_knows_it_no_more(code: int) -> None:
    one, two = parcel(), parcel()
    lane = lane_of(one, two)
    take_all(lane)
    lane.on_refused(one, TIMED_OUT, "", retry_at_ms=0)
    lane.on_taken(two, 5)
    assert take_all(lane) == [one]
    # Kafka's brokers know only the last batch of a producer after a restart.
    assert lane.on_refused(one, code, "", retry_at_ms=0).settled == [one]
    assert (one.verdict, lane.failure, lane.identity) == (Verdict.IN, None, ME)


# Any story.


@dataclass
class ModelBroker:
    """What a partition does with stamped batches, and nothing else: the last five are known again.

    Whoever is not known at all may begin with any sequence.
    """

    log: list[Parcel] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    known: list[Stamp] = field(default_factory=list)

    def append(self, sent: Parcel, stamp: Stamp) -> int:
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
    parcels = [parcel(rows, deadline_ms=100) for rows in sizes]
    lane, broker = lane_of(*parcels, is_known=False), ModelBroker()
    under_way: list[tuple[Parcel, Stamp]] = []
    left = list(ways)
    while not lane.is_empty:
        while (sent := lane.take(0)) is not None:
            under_way.append((sent, sent.stamp))
        if not under_way:
            # All tries are used up, or the time.
            lane.expire(100, Failure(7, "late"))
            continue
        # One connection: the oldest request comes to its end first; where it is cut, all behind it are lost as well.
        sent, stamp = under_way.pop(0)
        way = left.pop(0) if left else "taken"
        if way in ("lost before", "lost after"):
            if way == "lost after":
                broker.append(sent, stamp)
            lane.on_lost(sent, retry_at_ms=0)
            is_later_in = data.draw(st.booleans())
            for other, its_stamp in under_way:
                if is_later_in:
                    broker.append(other, its_stamp)
                lane.on_lost(other, retry_at_ms=0)
            under_way.clear()
        elif way == "late":
            code = broker.append(sent, stamp)
            lane.on_refused(sent, TIMED_OUT if code in (0, 46) else code, "", retry_at_ms=0)
        elif way in ("elsewhere", "no replicas"):
            lane.on_refused(
                sent, NOT_LEADER if way == "elsewhere" else NOT_ENOUGH_REPLICAS, "", retry_at_ms=0
            )
        elif way == "too large" and not sent.may_be_in and not sent.must_be_in:
            lane.on_refused(sent, TOO_LARGE, "", retry_at_ms=0)
        else:
            code = broker.append(sent, stamp)
            if code:
                lane.on_refused(sent, code, "", retry_at_ms=0)
            else:
                lane.on_taken(sent, len(broker.log) - 1)
    # Once each, and in order.
    places = [parcels.index(one) for one in broker.log]
    assert places == list(range(len(places)))
    for number, one in enumerate(parcels):
        if one.verdict is Verdict.IN:
            assert number < len(places)
        elif one.verdict is Verdict.NOT_IN:
            assert number >= len(places)
        else:
            assert one.verdict is Verdict.UNCERTAIN
    assert lane.failure is not None or all(one.verdict is Verdict.IN for one in parcels)
