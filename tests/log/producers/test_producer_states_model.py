"""Producers and transactions against a model that keeps the whole log and decides by the rules as they are told."""

import os
from itertools import takewhile
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from log.producers.test_producer_states import DAY_MS, NOON, batch
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.producers.producer_states import DuplicateOf, ProducerStates
from respool.log.producers.verification import VerificationGuard
from respool.model.coordinator_errors import InvalidTransactionState, TransactionCoordinatorFenced
from respool.model.errors import InvalidProducerEpoch, OutOfOrderSequence, RequestError
from respool.model.ids import Offset
from respool.records.batch import SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader
from respool.records.markers import EndTransactionMarker

EXAMPLES = 3_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 300
PRODUCERS = st.integers(1, 3)
EPOCHS = st.integers(0, 2)
SEQUENCES = st.sampled_from([0, 1, 2, 5, SEQUENCE_MAX - 1, SEQUENCE_MAX, -1])
COUNTS = st.integers(1, 3)


class Written(NamedTuple):
    base_offset: Offset
    # A batch of data, or the end of a transaction.
    what: BatchHeader | EndTransactionMarker

    @property
    def producer_id(self) -> int:
        return self.what.producer_id

    @property
    def epoch(self) -> int:
        return self.what.producer_epoch

    @property
    def data(self) -> BatchHeader | None:
        return self.what if isinstance(self.what, BatchHeader) else None


class Transaction(NamedTuple):
    producer_id: int
    first_offset: Offset
    # None while it is open.
    marker_offset: Offset | None


class Asked(NamedTuple):
    """Someone began a verification."""

    guard: VerificationGuard
    header: BatchHeader


class NaiveProducers:
    def __init__(self) -> None:
        self.log: list[Written] = []
        # What was asked since the producer's transaction began or ended, which makes it void.
        self.asked: list[Asked] = []

    def known(self, producer: int) -> list[Written]:
        """What the producer wrote since it last changed its epoch."""
        mine = [one for one in self.log if one.producer_id == producer]
        epoch = mine[-1].epoch if mine else -1
        return list(takewhile(lambda one: one.epoch == epoch, reversed(mine)))[::-1]

    def transactions(self) -> list[Transaction]:
        """All there ever were, those that are open last."""
        begun: dict[int, Offset] = {}
        found = []
        for one in self.log:
            if isinstance(one.what, EndTransactionMarker):
                if one.producer_id in begun:
                    first = begun.pop(one.producer_id)
                    found.append(Transaction(one.producer_id, first, one.base_offset))
            elif one.what.is_transactional:
                begun.setdefault(one.producer_id, one.base_offset)
        return found + [Transaction(who, first, None) for who, first in begun.items()]

    def open_of(self, producer: int) -> Transaction | None:
        for one in self.transactions():
            if one.producer_id == producer and one.marker_offset is None:
                return one
        return None

    def first_unstable(self, high_watermark: int) -> Offset | None:
        return min(
            (
                one.first_offset
                for one in self.transactions()
                if one.marker_offset is None or one.marker_offset >= high_watermark
            ),
            default=None,
        )

    def decide(
        self, header: BatchHeader, guard: VerificationGuard | None
    ) -> DuplicateOf | type[RequestError] | None:
        known = self.known(header.producer_id)
        epoch = known[-1].epoch if known else -1
        data = [(one.base_offset, one.data) for one in known if one.data is not None]
        following = next_sequence([one for _, one in data])
        if header.producer_epoch == epoch and header.base_sequence not in (-1, following):
            for offset, one in data[-5:]:
                if (one.base_sequence, one.record_count) == (
                    header.base_sequence,
                    header.record_count,
                ):
                    return DuplicateOf(
                        base_offset=offset,
                        last_offset=Offset(offset + one.last_offset_delta),
                        timestamp=one.max_timestamp,
                    )
        if header.producer_epoch < epoch:
            return InvalidProducerEpoch
        refusal = self.transaction_refusal(header, guard, epoch)
        if refusal is not None or not known or header.base_sequence == -1:
            return refusal
        expected = following if header.producer_epoch == epoch else 0
        return None if header.base_sequence == expected else OutOfOrderSequence

    def transaction_refusal(
        self, header: BatchHeader, guard: VerificationGuard | None, epoch: int
    ) -> type[RequestError] | None:
        is_open = self.open_of(header.producer_id) is not None
        if not header.is_transactional:
            return InvalidTransactionState if is_open else None
        if is_open and header.producer_epoch == epoch:
            return None
        lowest = self.lowest_sequence(header, guard)
        if lowest is None:
            return InvalidTransactionState
        is_known = bool(self.known(header.producer_id))
        return OutOfOrderSequence if not is_known and header.base_sequence > lowest else None

    def lowest_sequence(self, header: BatchHeader, guard: VerificationGuard | None) -> int | None:
        """The lowest that was asked for with this guard; None when the guard is not good."""
        who = (header.producer_id, header.producer_epoch)
        good = [
            one for one in self.asked if (one.header.producer_id, one.header.producer_epoch) == who
        ]
        if all(one.guard is not guard for one in good):
            return None
        return min(one.header.base_sequence for one in good)

    def decide_marker(self, marker: EndTransactionMarker, newer: bool) -> type[RequestError] | None:
        known = self.known(marker.producer_id)
        if not known:
            return None
        if marker.producer_epoch < known[-1].epoch:
            return InvalidProducerEpoch
        if newer and marker.producer_epoch == known[-1].epoch:
            return InvalidProducerEpoch
        markers = [
            one.what
            for one in self.log
            if one.producer_id == marker.producer_id and isinstance(one.what, EndTransactionMarker)
        ]
        if markers and marker.coordinator_epoch < markers[-1].coordinator_epoch:
            return TransactionCoordinatorFenced
        return None


def next_sequence(data: list[BatchHeader]) -> int:
    if not data or data[-1].base_sequence == -1:
        return 0
    return (data[-1].base_sequence + data[-1].record_count) % (SEQUENCE_MAX + 1)


class ProducersAgainstTheLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates(expiration_ms=DAY_MS)
        self.naive = NaiveProducers()
        self.log_end = 0
        self.high_watermark = 0
        self.told_stable = 0
        self.now_ms = NOON
        self.guards: list[VerificationGuard | None] = [None]

    def header(
        self, producer: int, epoch: int, sequence: int, count: int, transactional: bool
    ) -> BatchHeader:
        return batch(
            producer=producer,
            epoch=epoch,
            # Only the coordinator of groups writes without, and only in transactions.
            sequence=sequence if transactional else max(sequence, 0),
            count=count,
            timestamp=self.now_ms,
            attributes=TRANSACTIONAL_BIT if transactional else 0,
        )

    def next_of(self, producer: int, count: int, transactional: bool) -> BatchHeader:
        known = self.naive.known(producer)
        following = next_sequence([one.data for one in known if one.data is not None])
        epoch = known[-1].epoch if known else 0
        return self.header(producer, epoch, following, count, transactional)

    @rule(producer=PRODUCERS, epoch=EPOCHS, sequence=SEQUENCES, count=COUNTS, data=st.data())
    def send_anything(
        self, producer: int, epoch: int, sequence: int, count: int, data: st.DataObject
    ) -> None:
        guard = data.draw(st.sampled_from(self.guards))
        transactional = data.draw(st.booleans())
        self.send(self.header(producer, epoch, sequence, count, transactional), guard)

    @rule(producer=PRODUCERS, count=COUNTS, transactional=st.booleans(), is_verified=st.booleans())
    def send_what_comes_next(
        self, producer: int, count: int, transactional: bool, is_verified: bool
    ) -> None:
        header = self.next_of(producer, count, transactional)
        self.send(header, self.ask(header) if transactional and is_verified else None)

    @rule(producer=PRODUCERS, epoch=EPOCHS, sequence=SEQUENCES)
    def begin_verification(self, producer: int, epoch: int, sequence: int) -> None:
        self.ask(self.header(producer, epoch, sequence, 1, True))

    def ask(self, header: BatchHeader) -> VerificationGuard | None:
        guard = self.states.begin_verification(header)
        known = self.naive.known(header.producer_id)
        is_open = self.naive.open_of(header.producer_id) is not None
        if is_open and known[-1].epoch == header.producer_epoch:
            assert guard is None
            return None
        assert guard is not None
        self.naive.asked.append(Asked(guard, header))
        self.guards.append(guard)
        return guard

    @precondition(lambda self: self.naive.log)
    @rule(back=st.integers(1, 12))
    def send_again(self, back: int) -> None:
        data = [one.data for one in self.naive.log if one.data is not None]
        if data and data[-min(back, len(data))].base_sequence >= 0:
            self.send(data[-min(back, len(data))], None)

    @rule(
        producer=PRODUCERS,
        epoch=EPOCHS,
        coordinator_epoch=st.integers(0, 2),
        is_commit=st.booleans(),
        newer=st.booleans(),
    )
    def end_transaction(
        self, producer: int, epoch: int, coordinator_epoch: int, is_commit: bool, newer: bool
    ) -> None:
        marker = EndTransactionMarker(
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            is_commit=is_commit,
        )
        expected = self.naive.decide_marker(marker, newer)
        before = self.states.encode_snapshot()
        if expected is not None:
            with pytest.raises(expected):
                self.states.check_marker(marker, needs_newer_epoch=newer)
            assert self.states.encode_snapshot() == before
            return
        self.states.check_marker(marker, needs_newer_epoch=newer)
        self.replicate_end(marker)

    @rule(producer=PRODUCERS, bump=st.booleans(), is_commit=st.booleans())
    def end_what_may_be_open(self, producer: int, bump: bool, is_commit: bool) -> None:
        self.end_what_is_open(producer, bump, is_commit)

    def end_what_is_open(self, producer: int, bump: bool, is_commit: bool) -> None:
        known = self.naive.known(producer)
        markers = [one.what for one in self.naive.log if one.data is None]
        self.replicate_end(
            EndTransactionMarker(
                producer_id=producer,
                producer_epoch=known[-1].epoch + bump if known else 0,
                coordinator_epoch=max(
                    [
                        one.coordinator_epoch
                        for one in markers
                        if isinstance(one, EndTransactionMarker)
                    ],
                    default=0,
                ),
                is_commit=is_commit,
            )
        )

    def replicate_end(self, marker: EndTransactionMarker) -> None:
        offset = Offset(self.log_end)
        was_open = self.naive.open_of(marker.producer_id)
        told = self.states.aborting(marker.producer_id, marker_offset=offset)
        self.append(marker)
        if was_open is None:
            assert told is None
            return
        others = [
            one.first_offset for one in self.naive.transactions() if one.marker_offset is None
        ]
        stable = min(others, default=Offset(offset + 1))
        assert told == AbortedTransaction(marker.producer_id, was_open.first_offset, offset, stable)

    @rule(
        producer=PRODUCERS,
        epoch=EPOCHS,
        sequence=SEQUENCES,
        count=COUNTS,
        transactional=st.booleans(),
    )
    def replicate_anything(
        self, producer: int, epoch: int, sequence: int, count: int, transactional: bool
    ) -> None:
        self.append(self.header(producer, epoch, sequence, count, transactional))

    @rule(later_ms=st.integers(0, DAY_MS // 400))
    def expire_while_everybody_writes(self, later_ms: int) -> None:
        # Steps too short to add up to the expiration time; guards may expire.
        self.now_ms += later_ms
        assert self.states.expire(self.now_ms) == 0
        self.naive.asked = [
            one for one in self.naive.asked if one.guard.requested_at_ms >= self.now_ms - 600_000
        ]

    @rule(back=st.sampled_from([0, 1, 1, 2, 5]))
    def commit_some(self, back: int) -> None:
        self.commit(back)

    def commit(self, back: int) -> None:
        # Often just before the last marker, or just behind it.
        self.high_watermark = max(self.high_watermark, self.log_end - back)
        self.states.transactions.on_high_watermark(Offset(self.high_watermark))

    @rule(producer=PRODUCERS, is_commit=st.booleans(), back=st.integers(0, 2))
    def begin_and_end_and_commit(self, producer: int, is_commit: bool, back: int) -> None:
        """What producers mostly do."""
        header = self.next_of(producer, 1, True)
        self.send(header, self.ask(header))
        self.end_what_is_open(producer, False, is_commit)
        self.commit(back)

    @rule()
    def restart(self) -> None:
        again = ProducerStates.decode_snapshot(self.states.encode_snapshot(), expiration_ms=DAY_MS)
        self.go_on_with(again)

    @rule()
    def recover_from_the_log_alone(self) -> None:
        self.go_on_with(self.replayed())

    def go_on_with(self, again: ProducerStates) -> None:
        """After a start everything is committed, and nobody is being verified."""
        assert again == self.states
        again.expire(self.now_ms)
        self.states = again
        self.naive.asked.clear()
        self.high_watermark = self.log_end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Back to a state made from less of the log, as after a follower's truncation: of what is not committed."""
        log = self.naive.log
        committed = sum(1 for one in log if one.base_offset < self.high_watermark)
        del log[data.draw(st.integers(committed, len(log))) :]
        last = log[-1] if log else None
        self.log_end = 0
        if last is not None:
            self.log_end = last.base_offset + (last.data.record_count if last.data else 1)
        self.high_watermark = min(self.high_watermark, self.log_end)
        ended = self.states.transactions.markers_before(Offset(self.log_end))
        self.states = self.replayed()
        self.states.transactions.on_high_watermark(Offset(2**62))
        self.states.transactions.restore_ended(ended)
        self.states.expire(self.now_ms)
        self.naive.asked.clear()

    def replayed(self) -> ProducerStates:
        states = ProducerStates(expiration_ms=DAY_MS)
        for one in self.naive.log:
            self.replay(states, one)
        states.transactions.on_high_watermark(Offset(2**62))
        return states

    @staticmethod
    def replay(states: ProducerStates, one: Written) -> None:
        if isinstance(one.what, EndTransactionMarker):
            states.end_transaction(one.what, offset=one.base_offset, timestamp_ms=NOON)
        else:
            states.update(one.what, base_offset=one.base_offset)

    def send(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        expected = self.naive.decide(header, guard)
        before = self.states.encode_snapshot()
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.states.check(header, guard)
        else:
            assert self.states.check(header, guard) == expected
        assert self.states.encode_snapshot() == before
        if expected is None:
            self.append(header)

    def append(self, what: BatchHeader | EndTransactionMarker) -> None:
        one = Written(Offset(self.log_end), what)
        was_open = self.naive.open_of(what.producer_id)
        self.replay(self.states, one)
        self.naive.log.append(one)
        if one.data is None or (one.data.is_transactional and was_open is None):
            self.naive.asked = [
                other for other in self.naive.asked if other.header.producer_id != what.producer_id
            ]
        self.log_end += one.data.record_count if one.data else 1

    @invariant()
    def windows_are_bounded(self) -> None:
        assert all(len(state.batches) <= 5 for state in self.states.active())

    @invariant()
    def undecided_transactions_are_known(self) -> None:
        unstable = self.naive.first_unstable(self.high_watermark)
        assert self.states.transactions.first_unstable == unstable

    @invariant()
    def what_is_stable_stays_so(self) -> None:
        unstable = self.states.transactions.first_unstable
        stable = self.high_watermark if unstable is None else min(self.high_watermark, unstable)
        assert stable >= self.told_stable
        self.told_stable = stable


ProducersAgainstTheLog.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None
)
TestProducersAgainstTheLog = ProducersAgainstTheLog.TestCase
