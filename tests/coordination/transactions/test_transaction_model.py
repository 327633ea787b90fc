"""Transactions under random producers, clocks, lost answers and crashes of the coordinator.

Several producers share transactional ids, so most of them are zombies before long. What they write goes to partitions
that obey markers. What must never be seen: a transaction of which a part is committed and a part is not, or that ends
otherwise than its producer was told; a fenced producer that still gets something done; an epoch given to two; an
outcome that changes; a transaction that stays open.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from coordination.group_world import FUZZ
from coordination.shard_world import START_MS
from coordination.sim_producer import Attempt, SimPartition, SimProducer, report_of
from coordination.transaction_world import A0, A1, B0, V0, V1, V2, TransactionWorld
from respool.coordination.decision import CoordinatorRecord, Decision, Ticket
from respool.coordination.transactions.transaction_coordinator_shard import TIMEOUT_PAUSE_MS
from respool.coordination.transactions.transaction_metadata import (
    LAST_USABLE_EPOCH,
    TransactionMetadata,
)
from respool.coordination.transactions.transaction_records import (
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)
from respool.coordination.transactions.transaction_requests import (
    InitProducerId,
    InitProducerIdReply,
    TransactionState,
    TransactionVersion,
    WriteMarkers,
)
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from support.model_runs import run_machine

IDS = ("one", "two")
PARTITIONS = (A0, A1, B0)
PRODUCERS_MAX = 5
TIMEOUT_MS = 5_000
EXPIRATION_MS = 60_000

# Nothing happens for so long that ids are forgotten: seldom.
WAITS_MS = [1, 100, 999, 1_000, TIMEOUT_MS - 1, TIMEOUT_MS, 1, 100, EXPIRATION_MS]

producers = st.integers(0, PRODUCERS_MAX - 1)
versions = st.sampled_from([V0, V1, V2, V2])
# Who does something, and what.
STEPS = st.lists(st.tuples(producers, st.integers(0, 9), versions), min_size=10, max_size=40)


class LaggingWorld(TransactionWorld):
    """Answers and effects are held back until the log is committed, and what is not committed can be lost."""

    def __init__(self) -> None:
        self.is_lagging = False
        self.committed_end = 0
        self._held: list[Decision] = []
        super().__init__(
            transactional_id_expiration_ms=EXPIRATION_MS,
            transactional_id_expiration_check_interval_ms=10_000,
        )

    def carry_out(self, decision: Decision) -> None:
        super().carry_out(Decision(records=decision.records, timers=decision.timers))
        self._held.append(decision)
        if not self.is_lagging:
            self.catch_up()

    def catch_up(self) -> None:
        self.committed_end = len(self.log)
        held, self._held = self._held, []
        for decision in held:
            super().carry_out(Decision(answers=decision.answers, effects=decision.effects))

    def crash(self, *, keeping: int) -> None:
        """The coordinator starts again with what was committed and `keeping` records more."""
        del self.log[self.committed_end + keeping :]
        self._held.clear()
        self.reload()
        # Timers that are due ring at once.
        self.advance(0)

    @property
    def held_tickets(self) -> set[Ticket]:
        return {answer.ticket for decision in self._held for answer in decision.answers}


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LaggingWorld()
        self.partitions = defaultdict[TopicPartition, SimPartition](SimPartition)
        self.producers: list[SimProducer] = []
        # Requests not answered yet, of this coordinator, each with whom it was fenced by when it was asked.
        self.open_requests: dict[Ticket, tuple[Any, tuple[int, int] | None]] = {}
        # By transactional id: the last new producer that was told so. Who was there before is fenced.
        self.newest: dict[str, tuple[int, int]] = {}
        # Who was told to go by a producer id and epoch.
        self.owners: dict[tuple[ProducerId, int], SimProducer] = {}
        # Producers that something has happened to which may fence them.
        self.disturbed: set[SimProducer] = set()
        # Requests of version 2 that the network may bring a second time, much later.
        self.repeatable: list[Any] = []

    @initialize(epochs=st.lists(st.integers(0, 5), max_size=2), steps=STEPS)
    def begin(self, epochs: list[int], steps: list[tuple[int, int, TransactionVersion]]) -> None:
        """With ids near their last epochs, and some producers at work."""
        for transactional_id, left in zip(IDS, epochs, strict=False):
            transaction = TransactionMetadata(
                transactional_id=transactional_id,
                producer_id=self.world.new_producer_id(),
                producer_epoch=LAST_USABLE_EPOCH - left,
                timeout_ms=TIMEOUT_MS,
                updated_at_ms=self.world.now_ms,
            )
            record = CoordinatorRecord(
                key=write_transaction_key(transactional_id),
                value=write_transaction_value(transaction),
            )
            self.world.carry_out(Decision(records=(record,)))
        self.live_a_while(steps)

    # --- what producers do

    @rule(transactional_id=st.sampled_from(IDS))
    def start_producer(self, transactional_id: str) -> None:
        if sum(one.is_alive for one in self.producers) >= PRODUCERS_MAX:
            return
        producer = SimProducer(
            len(self.producers),
            transactional_id,
            ask=lambda request: self.ask(request, asker=producer),
            new_producer_id=self.world.new_producer_id,
            timeout_ms=TIMEOUT_MS,
        )
        self.producers.append(producer)
        producer.start()

    @rule(number=producers, version=versions, partitions=st.sets(st.sampled_from(PARTITIONS)))
    def add(
        self, number: int, version: TransactionVersion, partitions: set[TopicPartition]
    ) -> None:
        producer = self.ready(number)
        if producer is not None:
            if not producer.is_in_transaction:
                producer.begin(version)
            producer.add(*sorted(partitions))

    @rule(number=producers, partition=st.sampled_from(PARTITIONS))
    def write(self, number: int, partition: TopicPartition) -> None:
        """As a broker lets it: into what is open there, or after asking the coordinator."""
        producer = self.ready(number)
        if producer is None or not producer.is_in_transaction or partition not in producer.added:
            return
        log = self.partitions[partition]
        if not log.is_open(producer.producer_id, producer.epoch):
            ticket = self.ask(producer.verification(partition))
            reply = self.world.replies.get(ticket)
            if reply is None or reply.errors[partition] is not None:
                return
        if log.write(producer.producer_id, producer.epoch, producer.attempt):
            producer.written[producer.attempt] = producer.written.get(producer.attempt, 0) + 1
        else:
            producer.is_alive = False
            self.check_fenced(producer)

    @rule(
        number=producers,
        version=versions,
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2),
        is_commit=st.booleans(),
    )
    def do_a_whole_transaction(
        self,
        number: int,
        version: TransactionVersion,
        partitions: list[TopicPartition],
        is_commit: bool,
    ) -> None:
        producer = self.ready(number)
        if producer is not None and not producer.is_in_transaction:
            self.add(number, version, set(partitions))
            self.hear(producer)
            for partition in partitions:
                self.write(number, partition)
            self.end(number, is_commit)

    @rule(number=producers, is_commit=st.booleans())
    def end(self, number: int, is_commit: bool) -> None:
        producer = self.ready(number)
        if producer is None or not producer.is_in_transaction:
            return
        # Only in version 2 may it end what perhaps never began, and only by aborting.
        if producer.added or (producer.version.bumps_epoch and not is_commit):
            producer.end(is_commit=is_commit)

    @rule(number=producers)
    def expire(self, number: int) -> None:
        """A batch waits too long for its partition to be added. Only from version 2 on leaders add it meanwhile."""
        waiting = [one for one in self.producers if one.is_adding and one.version.bumps_epoch]
        if waiting:
            waiting[number % len(waiting)].expire()

    @rule(number=producers)
    def go_on_after_an_error(self, number: int) -> None:
        producer = self.ready(number)
        if producer is not None:
            producer.go_on()

    @rule(steps=STEPS)
    def live_a_while(self, steps: list[tuple[int, int, TransactionVersion]]) -> None:
        """Producers do what they are there for, mostly undisturbed."""
        while sum(one.is_alive for one in self.producers) < 2:
            self.start_producer(IDS[len(self.producers) % len(IDS)])
        for number, luck, version in steps:
            alive = [one for one in self.producers if one.is_alive]
            producer = alive[number % len(alive)] if alive else None
            if producer is None:
                return
            self.hear(producer)
            if luck == 0:
                self.world.advance(1)
            elif luck == 1:
                self.bring_a_request_again(number)
            elif luck <= 3:
                self.write_all_markers()
            elif producer.is_ready and producer.has_started:
                self.step(producer, luck, version)

    def step(self, producer: SimProducer, luck: int, version: TransactionVersion) -> None:
        number = [one for one in self.producers if one.is_ready and one.has_started].index(producer)
        if luck == 8 and version is V1:
            producer.go_on()
        elif not producer.is_in_transaction or not producer.added:
            self.add(number, version, set(PARTITIONS[: luck - 3]))
        elif luck < 8:
            self.write(number, PARTITIONS[luck % len(PARTITIONS)])
        else:
            self.end(number, is_commit=luck == 9)
        self.hear(producer)

    @rule(number=producers)
    def hear_one(self, number: int) -> None:
        if self.producers:
            self.hear(self.producers[-1 - number % len(self.producers)])

    @rule()
    def hear_all(self) -> None:
        for producer in self.producers:
            self.hear(producer)

    @rule(number=producers)
    def lose_an_answer(self, number: int) -> None:
        if self.producers:
            self.producers[-1 - number % len(self.producers)].lose_connection()

    @rule(number=producers)
    def kill_producer(self, number: int) -> None:
        producer = self.ready(number)
        if producer is not None:
            producer.is_alive = False

    @rule(number=st.integers(0, 100))
    def bring_a_request_again(self, number: int) -> None:
        """Before version 2 this could do harm, and did: it is what version 2 is for."""
        if self.repeatable:
            self.ask(self.repeatable[-1 - number % len(self.repeatable)])

    # --- what others do

    @rule(number=st.integers(0, 10), count=st.integers(1, 3))
    def write_some_markers(self, number: int, count: int) -> None:
        if self.world.effects:
            effect = self.world.effects[number % len(self.world.effects)]
            self.mark(effect, effect.partitions[-count:])

    @rule(number=st.integers(0, 10), count=st.integers(1, 3))
    def write_markers_without_a_report(self, number: int, count: int) -> None:
        if self.world.effects:
            effect = self.world.effects[number % len(self.world.effects)]
            for partition in effect.partitions[:count]:
                self.partitions[partition].mark(effect)

    @rule()
    def write_all_markers(self) -> None:
        while self.world.effects:
            self.mark(self.world.effects[0], self.world.effects[0].partitions)

    @rule(ms=st.sampled_from(WAITS_MS))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def fall_behind(self) -> None:
        self.world.is_lagging = True

    @rule()
    def catch_up(self) -> None:
        self.world.is_lagging = False
        self.world.catch_up()

    @rule(keeping=st.integers(0, 5))
    def crash_coordinator(self, keeping: int) -> None:
        keeping = min(keeping, len(self.world.log) - self.world.committed_end)
        self.world.crash(keeping=keeping)
        self.open_requests.clear()
        for producer in self.producers:
            if producer.ticket is not None and producer.ticket not in self.world.replies:
                producer.lose_connection()

    @rule()
    def settle(self) -> None:
        """With time and markers, everything ends, and as it was told."""
        self.catch_up()
        self.hear_all()
        # Those who wait may begin another when the one before is over.
        for _ in range(2):
            self.write_all_markers()
            self.world.advance(TIMEOUT_MS + TIMEOUT_PAUSE_MS)
        self.write_all_markers()
        self.check_replies()
        assert not self.open_requests
        assert not self.world.shard._open
        assert not self.world.shard._unmarked
        assert all(one.is_idle for one in self.world.shard._transactions.values())
        assert not any(log.open for log in self.partitions.values())
        for attempt, is_commit in self.told().items():
            written = sum(producer.written.get(attempt, 0) for producer in self.producers)
            assert self.outcomes().get(attempt, []) == [is_commit] * written

    # --- what must always hold

    @invariant()
    def a_transaction_is_committed_or_aborted_as_a_whole_and_as_was_told(self) -> None:
        told = self.told()
        for attempt, outcomes in self.outcomes().items():
            assert len(set(outcomes)) == 1, attempt
            assert told.get(attempt, outcomes[0]) == outcomes[0], attempt

    @invariant()
    def the_fold_of_the_log_is_what_the_coordinator_knows(self) -> None:
        folded, known = self.world.folded(), self.world.shard
        assert without_order(folded._transactions) == without_order(known._transactions)
        assert without_order(folded._open) == without_order(known._open)

    @invariant()
    def each_record_follows_from_the_one_before(self) -> None:
        last: dict[str, TransactionMetadata] = {}
        used: set[ProducerId] = set()
        for record in self.world.log:
            transactional_id = read_transaction_key(record.key)
            before = last.pop(transactional_id, None)
            if record.value is None:
                assert before is not None
                assert before.is_idle
                continue
            after = read_transaction_value(transactional_id, record.value)
            if before is None or before.producer_id != after.producer_id:
                assert after.producer_id not in used
                assert before is None or before.producer_epoch >= LAST_USABLE_EPOCH
            used.add(after.producer_id)
            if before is not None:
                check_transition(before, after)
            last[transactional_id] = after

    @invariant()
    def every_transaction_ends_in_its_time(self) -> None:
        for transaction in self.world.shard._open.values():
            assert self.world.now_ms < transaction.due_at_ms + TIMEOUT_PAUSE_MS

    @invariant()
    def every_request_is_answered_or_waits_for_markers(self) -> None:
        self.check_replies()
        shard = self.world.shard
        waiting = {
            ticket: transactional_id
            for transactional_id, tickets in shard._waiting._by_id.items()
            for ticket in tickets
        }
        assert self.open_requests.keys() - self.world.held_tickets == waiting.keys()
        for transactional_id in waiting.values():
            assert shard._transactions[transactional_id].is_prepared

    # --- helpers

    def ready(self, number: int) -> SimProducer | None:
        ready = [one for one in self.producers if one.is_ready and one.has_started]
        return ready[number % len(ready)] if ready else None

    def ask(self, request: Any, *, asker: SimProducer | None = None) -> Ticket:
        transactional_id = request.transactional_id
        if isinstance(request, InitProducerId) and request.producer_id == NO_PRODUCER_ID:
            # It fences all others.
            self.disturbed.update(
                one
                for one in self.producers
                if one is not asker and one.transactional_id == transactional_id
            )
        # Of an id that was forgotten nobody knows who was fenced.
        is_known = transactional_id in self.world.shard._transactions
        newest = self.newest.get(transactional_id) if is_known else None
        ticket = self.world.ask(request)
        self.open_requests[ticket] = (request, newest)
        if getattr(request, "version", V2) is V2:
            is_new = getattr(request, "new_producer_id", None) is None
            self.repeatable.append(request if is_new else replace(request, new_producer_id=None))
        return ticket

    def hear(self, producer: SimProducer) -> None:
        """Ask again for what was lost; take an answer, and one more if the first was not the last word."""
        producer.ask_again()
        for _ in range(2):
            if producer.ticket in self.world.replies:
                self.take_reply(producer)

    def take_reply(self, producer: SimProducer) -> None:
        assert producer.ticket is not None
        before = (producer.producer_id, producer.epoch)
        producer.on_reply(self.world.replies[producer.ticket])
        self.check_fenced(producer)
        identity = (producer.producer_id, producer.epoch)
        if identity != before:
            # No epoch is given to two.
            assert self.owners.setdefault(identity, producer) is producer

    def check_fenced(self, producer: SimProducer) -> None:
        """Lost answers and crashes of the coordinator alone fence nobody."""
        is_early = self.world.now_ms < START_MS + TIMEOUT_MS
        assert producer.is_alive or producer in self.disturbed or not is_early

    def check_replies(self) -> None:
        """Nobody gets anything done whose successor was told before."""
        for ticket in [one for one in self.open_requests if one in self.world.replies]:
            request, newest = self.open_requests.pop(ticket)
            reply = self.world.replies[ticket]
            if newest is not None and request.producer_id != NO_PRODUCER_ID:
                identity = (self.rank(request.producer_id), request.producer_epoch)
                if identity < newest:
                    errors = reply.errors.values() if hasattr(reply, "errors") else [reply.error]
                    assert None not in errors, (request, newest)
            if (
                isinstance(request, InitProducerId)
                and request.producer_id == NO_PRODUCER_ID
                and isinstance(reply, InitProducerIdReply)
                and reply.error is None
            ):
                told = (self.rank(reply.producer_id), reply.producer_epoch)
                newest_so_far = self.newest.get(request.transactional_id, told)
                self.newest[request.transactional_id] = max(told, newest_so_far)

    def rank(self, producer_id: ProducerId) -> int:
        """Which of all producer ids it is, by when it was first used."""
        seen: dict[ProducerId, None] = {}
        for record in self.world.log:
            if record.value is not None:
                seen.setdefault(read_transaction_value("", record.value).producer_id)
        return list(seen).index(producer_id) if producer_id in seen else len(seen)

    def mark(self, effect: WriteMarkers, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self.partitions[partition].mark(effect)
        self.world.ask(report_of(effect, partitions))
        transaction = self.world.shard._transactions[effect.transactional_id]
        is_pending = transaction.is_prepared and transaction.producer_epoch == effect.producer_epoch
        if not is_pending or len(partitions) == len(effect.partitions):
            assert not (is_pending and transaction.partitions == effect.partitions)
        if not is_pending:
            self.world.effects.remove(effect)

    def told(self) -> dict[Attempt, bool]:
        return {
            attempt: told for producer in self.producers for attempt, told in producer.told.items()
        }

    def outcomes(self) -> dict[Attempt, list[bool]]:
        outcomes = defaultdict[Attempt, list[bool]](list)
        for log in self.partitions.values():
            for attempt, is_commit in log.outcomes:
                outcomes[attempt].append(is_commit)
        return outcomes

    def teardown(self) -> None:
        self.settle()


def without_order(transactions: dict[str, TransactionMetadata]) -> dict[str, Any]:
    """Records group partitions by topic, so their order there is another one."""
    return {
        name: (one._replace(partitions=()), frozenset(one.partitions))
        for name, one in transactions.items()
    }


NEXT_STATES = {
    TransactionState.EMPTY: "EMPTY ONGOING COMPLETE_ABORT",
    TransactionState.ONGOING: "ONGOING PREPARE_COMMIT PREPARE_ABORT",
    TransactionState.PREPARE_COMMIT: "COMPLETE_COMMIT",
    TransactionState.PREPARE_ABORT: "COMPLETE_ABORT",
    TransactionState.COMPLETE_COMMIT: "EMPTY ONGOING COMPLETE_ABORT",
    TransactionState.COMPLETE_ABORT: "EMPTY ONGOING COMPLETE_ABORT",
}


def check_transition(before: TransactionMetadata, after: TransactionMetadata) -> None:
    assert after.state.name in NEXT_STATES[before.state].split()
    if before.producer_id == after.producer_id:
        assert 0 <= after.producer_epoch - before.producer_epoch <= 1
    else:
        assert after.producer_epoch == 0
    if before.state is TransactionState.ONGOING:
        assert after.producer_id == before.producer_id
        assert after.started_at_ms == before.started_at_ms
        assert set(before.partitions) <= set(after.partitions)
        if after.state is not TransactionState.ONGOING:
            assert before.partitions == after.partitions
            is_bumped = after.producer_epoch == before.producer_epoch + 1
            assert is_bumped or not after.version.bumps_epoch
    if after.state is TransactionState.ONGOING:
        assert (after.producer_id, after.producer_epoch) == (
            before.producer_id,
            before.producer_epoch,
        )
        assert after.producer_epoch <= LAST_USABLE_EPOCH
        assert after.partitions
    if after.is_idle:
        assert not after.partitions


def test_transactions_under_random_producers_clocks_and_crashes() -> None:
    run_machine(TransactionMachine, examples=100, steps=40)


@pytest.mark.long
@pytest.mark.skipif(not FUZZ, reason="make fuzz")
@pytest.mark.timeout(3_600)
def test_transactions_under_random_producers_clocks_and_crashes_at_length() -> None:
    run_machine(TransactionMachine, examples=3_000, steps=80)
