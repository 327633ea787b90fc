"""ListTransactions, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REGULAR_EXPRESSION,
    Producer,
    begin_to_load,
    settle,
    start_with_transactions,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.LIST_TRANSACTIONS)
every_version = pytest.mark.parametrize("version", VERSIONS)
versions_with_duration = pytest.mark.parametrize("version", VERSIONS[1:])
versions_with_pattern = pytest.mark.parametrize("version", VERSIONS[2:])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    """With an id in each state, in one coordinator or another."""
    broker = start_with_transactions(start_broker)
    Producer(broker, "empty")
    Producer(broker, "open").write("rides", 0)
    Producer(broker, "stuck").write("fares", 1)
    for name, commit in (("committed", True), ("aborted", False)):
        producer = Producer(broker, name)
        producer.write("rides", 1)
        producer.end(commit=commit)
        settle(broker)
    broker.take_offline("fares", 1)
    stuck = Producer(broker, "stuck", init=False)
    stuck.id, stuck.epoch = _producer_id(broker, "stuck"), 0
    stuck.end(commit=True)
    settle(broker)
    return broker


def ask(broker: RunningBroker, version: int, **filters: Any) -> Any:
    fields = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    return broker.ask(Api.LIST_TRANSACTIONS, version, **{**fields, **filters})


def names(broker: RunningBroker, version: int, **filters: Any) -> set[str]:
    reply = ask(broker, version, **filters)
    assert (reply.error_code, reply.unknown_state_filters) == (0, ())
    found = [one.transactional_id for one in reply.transaction_states]
    assert len(set(found)) == len(found)
    return set(found)


def _producer_id(broker: RunningBroker, name: str) -> int:
    listed = ask(broker, 0).transaction_states
    return next(int(one.producer_id) for one in listed if one.transactional_id == name)


@every_version
def test_without_filters_all_are_told_with_their_states(
    broker: RunningBroker, version: int
) -> None:
    reply = ask(broker, version)

    assert {one.transactional_id: one.transaction_state for one in reply.transaction_states} == {
        "empty": "Empty",
        "open": "Ongoing",
        "stuck": "PrepareCommit",
        "committed": "CompleteCommit",
        "aborted": "CompleteAbort",
    }
    assert len({one.producer_id for one in reply.transaction_states}) == 5


@every_version
def test_only_states_and_producers_asked_for_are_told(broker: RunningBroker, version: int) -> None:
    open_id, empty_id = _producer_id(broker, "open"), _producer_id(broker, "empty")

    assert names(broker, version, state_filters=["Ongoing", "CompleteAbort"]) == {
        "open",
        "aborted",
    }
    assert names(broker, version, producer_id_filters=[open_id, empty_id, 999]) == {
        "open",
        "empty",
    }
    assert names(
        broker, version, state_filters=["Empty"], producer_id_filters=[open_id, empty_id]
    ) == {"empty"}
    assert names(broker, version, producer_id_filters=[999]) == set()


@every_version
def test_states_that_do_not_exist_are_named(broker: RunningBroker, version: int) -> None:
    reply = ask(broker, version, state_filters=["Ongoing", "Hanging"])

    assert (reply.error_code, reply.unknown_state_filters) == (0, ("Hanging",))
    assert [one.transactional_id for one in reply.transaction_states] == ["open"]
    nothing = ask(broker, version, state_filters=["Hanging"])
    assert nothing.transaction_states == ()


@versions_with_duration
def test_only_those_open_for_long_are_told(broker: RunningBroker, version: int) -> None:
    broker.clock.advance(5_000)
    Producer(broker, "young").write("rides", 2)
    broker.clock.advance(1)

    assert names(broker, version, duration_filter=5_000) == {"open", "stuck"}
    assert names(broker, version, duration_filter=0) == {"open", "stuck", "young"}
    assert names(broker, version, duration_filter=6_000) == set()


@versions_with_pattern
def test_only_names_that_fit_the_pattern_are_told(broker: RunningBroker, version: int) -> None:
    assert names(broker, version, transactional_id_pattern=".*ed") == {"committed", "aborted"}
    assert names(broker, version, transactional_id_pattern="open|stuc") == {"open"}
    assert len(names(broker, version, transactional_id_pattern="")) == 5


@versions_with_pattern
def test_a_pattern_that_is_none_is_refused(broker: RunningBroker, version: int) -> None:
    reply = ask(broker, version, transactional_id_pattern="(")

    assert (reply.error_code, reply.transaction_states) == (INVALID_REGULAR_EXPRESSION, ())


@every_version
def test_without_a_topic_of_transactions_there_are_none(
    start_broker: StartBroker, version: int
) -> None:
    assert names(start_broker(), version) == set()


@every_version
def test_while_a_coordinator_loads_nothing_is_told(broker: RunningBroker, version: int) -> None:
    begin_to_load(broker)

    reply = ask(broker, version)

    assert (reply.error_code, reply.transaction_states) == (COORDINATOR_LOAD_IN_PROGRESS, ())
