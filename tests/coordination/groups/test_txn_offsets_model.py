"""Offsets committed in and outside of transactions, in any order, against a plain account of what was written when.

For one partition that offset counts which was written last, of those that were not part of a transaction or whose
transaction was committed. An offset still to be decided on makes the partition unstable, unless a later one counts
already.
"""

from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordination.group_world import FUZZ, GROUP, TOPIC, error_of
from coordination.txn_group_world import ONE, THREE, TWO, TxnGroupWorld, Written
from respool.coordination.groups.group_requests import OffsetDelete, TopicToFetch
from respool.coordination.groups.offset_records import read_offset_key, read_offset_value
from respool.model.coordinator_errors import UnstableOffsetCommit
from respool.model.ids import NO_PRODUCER_ID, ProducerId
from support.model_runs import run_machine

PARTITIONS = (0, 1)
producers = st.sampled_from([ONE, TWO, THREE])
partitions = st.sampled_from(PARTITIONS)
offsets = st.integers(0, 1_000)


class Account(NamedTuple):
    offset: int
    is_stable: bool


class TxnOffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = TxnGroupWorld()

    @rule(producer_id=producers, partition=partitions, offset=offsets)
    def commit_in_transaction(self, producer_id: ProducerId, partition: int, offset: int) -> None:
        assert self.world.commit_in(producer_id, offset, partition=partition) is None

    @rule(partition=partitions, offset=offsets)
    def commit(self, partition: int, offset: int) -> None:
        assert self.world.commit(offset, partition=partition) is None

    @rule(producer_id=producers, is_commit=st.booleans())
    def end_transaction(self, producer_id: ProducerId, is_commit: bool) -> None:
        self.world.mark(producer_id, is_commit=is_commit)

    @rule(partition=partitions, luck=st.integers(0, 3))
    def delete(self, partition: int, luck: int) -> None:
        if not luck:
            topics = (TopicToFetch(TOPIC, (partition,)),)
            self.world.now(OffsetDelete(group_id=GROUP, topics=topics))

    @rule(lost=st.integers(0, 5))
    def crash(self, lost: int) -> None:
        """What was written last may not have been committed yet."""
        del self.world.entries[max(0, len(self.world.entries) - lost) :]
        self.world.reload()

    @invariant()
    def what_counts_is_what_the_account_says(self) -> None:
        for partition in PARTITIONS:
            account = self.account(partition)
            assert self.world.committed(partition) == account.offset
            stable = self.world.fetch(partition, require_stable=True)
            if account.is_stable:
                assert (stable.error, stable.offset) == (None, account.offset)
            else:
                assert error_of(stable) is UnstableOffsetCommit

    @invariant()
    def nothing_is_kept_of_transactions_that_are_over(self) -> None:
        pending = self.world.shard._offsets._pending
        unstable = [one for one in PARTITIONS if not self.account(one).is_stable]
        assert len(pending) == len(unstable)
        assert bool(pending._keys) == bool(unstable)

    def account(self, partition: int) -> Account:
        counted = -1
        undecided: list[tuple[ProducerId, int]] = []
        for entry in self.world.entries:
            if isinstance(entry, Written):
                if read_offset_key(entry.record.key)[2] != partition:
                    continue
                if entry.record.value is None:
                    counted, undecided = -1, []
                    continue
                offset = read_offset_value(entry.record.value).offset
                if entry.producer_id == NO_PRODUCER_ID:
                    counted, undecided = offset, []
                else:
                    undecided.append((entry.producer_id, offset))
                continue
            ended = [place for place, one in enumerate(undecided) if one[0] == entry.producer_id]
            if entry.is_commit and ended:
                counted = undecided[ended[-1]][1]
                undecided = undecided[ended[-1] + 1 :]
            undecided = [one for one in undecided if one[0] != entry.producer_id]
        return Account(counted, not undecided)


def test_offsets_in_and_outside_of_transactions_in_any_order() -> None:
    run_machine(TxnOffsetsMachine, examples=100, steps=30)


@pytest.mark.long
@pytest.mark.skipif(not FUZZ, reason="make fuzz")
@pytest.mark.timeout(3_600)
def test_offsets_in_and_outside_of_transactions_in_any_order_at_length() -> None:
    run_machine(TxnOffsetsMachine, examples=3_000, steps=60)
