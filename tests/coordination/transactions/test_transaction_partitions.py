from typing import Any

import pytest

from coordination.shard_world import START_MS
from coordination.transaction_world import (
    A0,
    A1,
    B0,
    FIRST_PRODUCER_ID,
    V0,
    V2,
    TransactionWorld,
    add_of,
)
from respool.coordination.transactions.transaction_requests import TransactionState
from respool.model.coordinator_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAbortable,
)
from respool.model.ids import ProducerId, TopicPartition

NOT_THE_PRODUCER: list[tuple[dict[str, Any], type]] = [
    ({"transactional_id": "unknown"}, InvalidProducerIdMapping),
    ({"transactional_id": ""}, InvalidProducerIdMapping),
    ({"producer_id": ProducerId(FIRST_PRODUCER_ID + 1)}, InvalidProducerIdMapping),
    ({"producer_id": ProducerId(-1), "producer_epoch": 0}, InvalidProducerIdMapping),
    ({"producer_epoch": 0}, ProducerFenced),
    ({"producer_epoch": 2}, ProducerFenced),
    ({"producer_epoch": -1}, ProducerFenced),
]


# --- adding


def test_the_first_partition_begins_the_transaction() -> None:
    world = TransactionWorld()
    world.init()
    world.advance(5)
    assert world.add(A0) is None
    described = world.describe()
    assert described.state is TransactionState.ONGOING
    assert described.partitions == (A0,)
    assert described.started_at_ms == START_MS + 5


def test_more_partitions_join_and_the_time_runs_from_the_first() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.advance(5)
    assert world.add(A0, B0, A1, B0) is None
    assert set(world.describe().partitions) == {A0, A1, B0}
    assert len(world.describe().partitions) == 3
    assert world.describe().started_at_ms == START_MS


def test_partitions_that_are_in_already_need_no_record() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, A1)
    before = len(world.log)
    assert world.add(A1) is None
    assert world.add(A1, A0) is None
    assert len(world.log) == before


class Compared(TopicPartition):
    """Counts how often one is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return super().__eq__(other)

    __hash__ = TopicPartition.__hash__


def test_a_request_for_all_partitions_there_are_does_not_compare_each_with_each() -> None:
    world = TransactionWorld()
    world.init()
    everything = [TopicPartition("a", number) for number in range(1_000)]
    assert world.add(*everything) is None
    asked = [Compared("a", number) for number in range(1_001)]
    Compared.comparisons = 0
    assert world.add(*asked) is None
    assert world.verify(*asked) == [None] * 1_001
    assert len(world.describe().partitions) == 1_001
    assert Compared.comparisons < 20_000


def test_no_partitions_begin_nothing() -> None:
    world = TransactionWorld()
    world.init()
    before = len(world.log)
    assert world.add() is None
    assert len(world.log) == before
    assert world.state() is TransactionState.EMPTY


@pytest.mark.parametrize("version", [V0, V2])
@pytest.mark.parametrize("is_commit", [False, True])
def test_the_next_transaction_begins_with_none_of_the_last_ones_partitions(
    version: Any, is_commit: bool
) -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, A1, version=version)
    world.end(is_commit=is_commit, version=version)
    world.write_markers()
    world.advance(7)
    assert world.add(B0, version=version, producer_epoch=int(version.bumps_epoch)) is None
    assert world.describe().partitions == (B0,)
    assert world.describe().started_at_ms == START_MS + 7


@pytest.mark.parametrize(("fields", "error"), NOT_THE_PRODUCER)
def test_others_add_nothing(fields: dict[str, Any], error: type) -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    before = len(world.log)
    assert type(world.add(A0, **({"producer_epoch": 1} | fields))) is error
    assert len(world.log) == before


def test_unknown_ids_leave_nothing_behind() -> None:
    world = TransactionWorld()
    for number in range(10):
        world.add(A0, transactional_id=f"unknown {number}")
        world.verify(A0, transactional_id=f"unknown {number}")
        world.end(transactional_id=f"unknown {number}")
    assert world.log == []
    assert not world.shard._transactions
    assert not world.shard._open
    assert not world.shard._waiting._by_id


# --- asking whether they were added


def test_partitions_of_the_open_transaction_are_verified() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, B0)
    before = len(world.log)
    assert world.verify(A0, A1, B0) == [None, TransactionAbortable, None]
    assert len(world.log) == before


@pytest.mark.parametrize(("fields", "error"), NOT_THE_PRODUCER)
def test_for_others_nothing_is_verified(fields: dict[str, Any], error: type) -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    world.add(A0, producer_epoch=1)
    assert world.verify(A0, A1, **({"producer_epoch": 1} | fields)) == [error, error]


def test_nothing_is_verified_once_the_end_is_decided() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.end()
    assert world.verify(A0) == [ConcurrentTransactions]
    world.write_markers()
    assert world.verify(A0) == [TransactionAbortable]


def test_in_version_2_the_end_fences_what_was_not_verified_yet() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, version=V2)
    world.end(version=V2)
    assert world.verify(A0) == [ProducerFenced]
    world.write_markers()
    assert world.verify(A0) == [ProducerFenced]
    # The next transaction of that producer, without this partition.
    world.add(A1, version=V2, producer_epoch=1)
    assert world.verify(A0, producer_epoch=1) == [TransactionAbortable]
    assert world.verify(A0) == [ProducerFenced]


# --- while markers are written


@pytest.mark.parametrize("version", [V0, V2])
def test_the_next_transaction_begins_when_the_markers_of_the_last_are_written(
    version: Any,
) -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, version=version)
    world.end(version=version)
    epoch = int(version.bumps_epoch)
    ticket = world.ask(add_of(B0, version=version, producer_epoch=epoch))
    assert world.is_waiting(ticket)
    assert world.write_markers().partitions == (A0,)
    assert world.replies[ticket].error is None
    assert world.describe().partitions == (B0,)
    assert world.state() is TransactionState.ONGOING
