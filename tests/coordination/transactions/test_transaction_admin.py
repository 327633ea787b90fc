from typing import Any

import pytest

from coordination.shard_world import START_MS
from coordination.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    TransactionWorld,
    init_of,
    told,
)
from respool.coordination.transactions.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
    TransactionState,
)
from respool.model.coordinator_errors import InvalidRegularExpression, TransactionalIdNotFound
from respool.model.errors import InvalidRequest
from respool.model.ids import ProducerId


def busy_world() -> TransactionWorld:
    """Three ids: one open for 100 ms, one open for 50, one that never had a transaction."""
    world = TransactionWorld()
    for number, name in enumerate(["open-old", "open-new", "idle"]):
        assert told(world.init(name)) == (number, 0)
    world.add(A0, transactional_id="open-old")
    world.advance(50)
    producer_id = ProducerId(FIRST_PRODUCER_ID + 1)
    world.add(A0, A1, transactional_id="open-new", producer_id=producer_id)
    world.advance(50)
    return world


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["open-old", "open-new", "idle"]),
        ({"states": frozenset({"Ongoing"})}, ["open-old", "open-new"]),
        ({"states": frozenset({"Ongoing", "Empty"})}, ["open-old", "open-new", "idle"]),
        ({"states": frozenset({"ongoing"})}, []),
        ({"states": frozenset({"CompleteCommit"})}, []),
        ({"producer_ids": frozenset({1_001, 1_002, 9})}, ["open-new", "idle"]),
        ({"duration_ms_min": 0}, ["open-old", "open-new"]),
        ({"duration_ms_min": 50}, ["open-old"]),
        ({"duration_ms_min": 100}, []),
        ({"id_pattern": "open-.*"}, ["open-old", "open-new"]),
        ({"id_pattern": "open"}, []),
        ({"id_pattern": ""}, ["open-old", "open-new", "idle"]),
        ({"id_pattern": ".*n.*", "duration_ms_min": 60}, ["open-old"]),
    ],
)
def test_those_are_listed_that_meet_all_conditions(
    fields: dict[str, Any], names: list[str]
) -> None:
    reply = busy_world().now(ListTransactions(**fields))
    assert sorted(one.transactional_id for one in reply.transactions) == sorted(names)


def test_a_listed_transaction_has_its_producer_and_state() -> None:
    reply = busy_world().now(ListTransactions(states=frozenset({"Empty"})))
    assert reply == ListTransactionsReply(
        transactions=(ListedTransaction("idle", ProducerId(1_002), TransactionState.EMPTY),)
    )


def test_states_that_there_are_not_are_named() -> None:
    reply = busy_world().now(ListTransactions(states=frozenset({"Empty", "Full", "Dead", "empty"})))
    assert reply.unknown_states == ("Full", "empty")
    assert len(reply.transactions) == 1


def test_a_pattern_that_is_none_is_an_error() -> None:
    reply = busy_world().now(ListTransactions(id_pattern="(("))
    assert isinstance(reply.error, InvalidRegularExpression)
    assert reply.transactions == ()


def test_states_have_kafkas_names() -> None:
    assert [state.kafka_name for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    ]


def test_each_id_asked_for_is_described_in_order() -> None:
    world = busy_world()
    names = ("open-new", "unknown", "", "idle")
    described = world.now(DescribeTransactions(transactional_ids=names)).transactions
    assert tuple(one.transactional_id for one in described) == names
    assert described[0] == DescribedTransaction(
        transactional_id="open-new",
        state=TransactionState.ONGOING,
        producer_id=ProducerId(1_001),
        producer_epoch=0,
        timeout_ms=TIMEOUT_MS,
        started_at_ms=START_MS + 50,
        partitions=(A0, A1),
    )
    assert isinstance(described[1].error, TransactionalIdNotFound)
    assert isinstance(described[2].error, InvalidRequest)
    assert (described[3].error, described[3].started_at_ms) == (None, -1)


def test_an_operator_ends_an_open_transaction_by_asking_for_a_producer_id() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    ticket = world.ask(init_of(ID))
    assert not world.write_markers().is_commit
    assert world.replies[ticket].error is None
    assert world.state() is TransactionState.EMPTY
