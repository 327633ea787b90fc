"""Batches on a real broker, with deaths at every step: each row is there once."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from respool.spark.option_values import BadOption
from respool.spark.sink.errors import (
    BatchFailed,
    CheckpointBehind,
    DecidedLost,
    RepairMismatch,
    Superseded,
    TransactionGone,
)
from respool.spark.sink.state_store import DECIDER_TIMEOUT_MS, StateStore
from respool.testing import Broker
from support.spark_sink_query import Died, Query, options_of, rows_of

DieAt = Callable[[int | None], None]
# More steps than a commit or a take-over has.
STEPS = 10


def test_a_batch_is_seen_when_it_is_committed_and_not_before(query: Query) -> None:
    messages = query.tasks("a", 0)
    assert query.values() == []
    query.commit(messages, 0)
    assert query.values() == rows_of(0)


def test_batches_of_one_run_follow_each_other(query: Query) -> None:
    for batch in range(9):
        query.batch("a", batch)
    assert query.values() == rows_of(*range(9))


def test_a_batch_that_is_in_is_not_written_again_by_the_next_run(query: Query) -> None:
    query.batch("a", 0)
    again = query.tasks("b", 0, version=" computed anew")
    assert [one.share for one in again] == [None, None]
    query.commit(again, 0)
    query.batch("b", 1)
    assert query.values() == rows_of(0, 1)


@pytest.mark.parametrize("steps", range(STEPS))
@pytest.mark.parametrize("is_told", [False, True], ids=["driver dies", "Spark aborts"])
def test_a_commit_that_dies_anywhere_leaves_a_batch_whole_or_not_at_all(
    query: Query, die_at: DieAt, steps: int, is_told: bool
) -> None:
    query.batch("a", 0)
    messages = query.tasks("a", 1, version=" of a")
    die_at(steps)
    with suppress(Died):
        query.commit(messages, 1)
    die_at(None)
    if is_told:
        query.abort(messages, 1)
    query.batch("b", 1, version=" of b")
    query.batch("b", 2)
    assert query.values() in (
        sorted(rows_of(0, 2) + rows_of(1, version=" of a")),
        sorted(rows_of(0, 2) + rows_of(1, version=" of b")),
    )


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_take_over_that_dies_anywhere_is_done_by_the_next(
    query: Query, die_at: DieAt, steps: int
) -> None:
    messages = query.tasks("a", 0, version=" of a")
    die_at(4)
    with suppress(Died):
        query.commit(messages, 0)
    die_at(steps)
    with suppress(Died):
        query.batch("b", 0, version=" of b")
    die_at(None)
    query.batch("c", 0, version=" of c")
    query.batch("c", 1)
    (version,) = {one.partition(" ")[2] for one in query.values() if one.startswith("0/")}
    assert query.values() == sorted(rows_of(0, version=f" {version}") + rows_of(1))


@pytest.mark.parametrize("steps", range(STEPS))
def test_an_abort_that_dies_anywhere_takes_nothing_back_that_counts(
    query: Query, die_at: DieAt, steps: int
) -> None:
    messages = query.tasks("a", 0)
    die_at(5)
    with suppress(Died):
        query.commit(messages, 0)
    die_at(steps)
    with suppress(Died):
        query.abort(messages, 0)
    die_at(None)
    query.batch("b", 0)
    query.batch("b", 1)
    assert query.values() == rows_of(0, 1)


def test_nobody_waits_for_a_decider_that_died_in_the_middle_of_writing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Less than the timeout of the transaction that the dead one has left open.
    assert DECIDER_TIMEOUT_MS > 8_000
    query = Query(
        query.broker, options_of(query.broker, **{"kafka.default.api.timeout.ms": "8000"})
    )
    query.batch("a", 0)
    messages = query.tasks("a", 1)
    real = StateStore._point_at

    def point_and_die(self: StateStore, *what: Any) -> None:
        real(self, *what)
        raise Died

    monkeypatch.setattr(StateStore, "_point_at", point_and_die)
    with pytest.raises(Died):
        query.commit(messages, 1)
    monkeypatch.setattr(StateStore, "_point_at", real)
    query.batch("b", 1)
    assert query.values() == rows_of(0, 1)


def test_a_run_that_was_taken_over_from_cannot_write_or_decide(query: Query) -> None:
    query.batch("a", 0)
    late = query.tasks("a", 1, version=" late")
    query.batch("b", 1)
    with pytest.raises(Superseded, match="run b writes for this query now"):
        query.commit(late, 1)
    with pytest.raises(Superseded, match="taken over"):
        query.task("a", 2, 0)
    query.abort(late, 1)
    query.batch("b", 2)
    assert query.values() == rows_of(0, 1, 2)


def test_what_was_given_up_cannot_be_decided_any_more(query: Query) -> None:
    messages = query.tasks("a", 0)
    query.abort(messages, 0)
    with pytest.raises(BatchFailed):
        query.commit(messages, 0)
    query.batch("b", 0)
    assert query.values() == rows_of(0)


def test_an_older_checkpoint_than_what_was_written_is_refused(query: Query) -> None:
    for batch in range(3):
        query.batch("a", batch)
    with pytest.raises(CheckpointBehind, match="at batch 1, and batch 2"):
        query.task("b", 1, 0)
    assert query.values() == rows_of(0, 1, 2)


def test_of_two_attempts_of_a_task_one_counts_and_the_other_holds_nobody_back(
    query: Query,
) -> None:
    query.task("a", 0, 0, attempt=0, version=" loses")
    messages = [query.task("a", 0, 0, attempt=1), query.task("a", 0, 1)]
    query.commit(messages, 0)
    # Were it still open, readers would wait for it.
    query.batch("a", 1)
    assert query.values() == rows_of(0, 1)


def test_a_batch_whose_transaction_timed_out_does_not_count(query: Query) -> None:
    messages = query.tasks("a", 0)
    query.broker.clock.advance(seconds=700)
    with pytest.raises(TransactionGone, match="transactionTimeout"):
        query.commit(messages, 0)
    query.batch("b", 0)
    assert query.values() == rows_of(0)


def test_a_batch_without_rows_leaves_no_trace(query: Query) -> None:
    query.commit(query.tasks("a", 0, rows=0), 0)
    query.batch("a", 1)
    assert query.values() == rows_of(1)


def lost_in_part(query: Query, die_at: DieAt) -> None:
    """Batch 0 is decided, its driver dies, and time aborts what it wrote."""
    messages = query.tasks("a", 0)
    die_at(5)
    with suppress(Died):
        query.commit(messages, 0)
    die_at(None)
    query.broker.clock.advance(seconds=700)


def test_what_was_decided_and_lost_is_written_again(query: Query, die_at: DieAt) -> None:
    lost_in_part(query, die_at)
    query.batch("b", 0)
    query.batch("b", 1)
    assert query.values() == rows_of(0, 1)


def test_of_what_was_decided_only_what_was_lost_is_written_again(
    query: Query, die_at: DieAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from respool.spark.sink import executing

    messages = query.tasks("a", 0)
    first = messages[0].share
    assert first is not None
    real = executing.end_all

    def commit_first_and_die(cluster: object, transactions: object, *, is_commit: bool) -> None:
        real(cluster, [first.transaction], is_commit=is_commit)  # type: ignore[arg-type]
        raise Died

    monkeypatch.setattr(executing, "end_all", commit_first_and_die)
    with pytest.raises(Died):
        query.commit(messages, 0)
    monkeypatch.setattr(executing, "end_all", real)
    query.broker.clock.advance(seconds=700)
    again = query.tasks("b", 0)
    assert [one.share is None for one in again] == [True, False]
    query.commit(again, 0)
    query.batch("b", 1)
    assert query.values() == rows_of(0, 1)


def test_what_was_lost_and_comes_out_otherwise_is_an_error(query: Query, die_at: DieAt) -> None:
    lost_in_part(query, die_at)
    with pytest.raises(RepairMismatch, match="does not give the same rows"):
        query.batch("b", 0, version=" other")
    with pytest.raises(RepairMismatch, match="Task 1 had 5 rows"):
        query.commit([query.task("c", 0, 0), query.task("c", 0, 1, rows=4)], 0)
    assert query.values() == []


def test_what_was_lost_needs_as_many_tasks_again(query: Query, die_at: DieAt) -> None:
    lost_in_part(query, die_at)
    with pytest.raises(RepairMismatch, match="had 2 tasks"):
        query.commit([*query.tasks("b", 0), query.task("b", 0, 2, rows=0)], 0)


def test_a_commit_tells_when_a_decided_transaction_was_lost(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    from respool.spark.sink import executing

    messages = query.tasks("a", 0)
    real = executing.end_all

    def end_late(cluster: object, transactions: object, *, is_commit: bool) -> object:
        query.broker.clock.advance(seconds=700)
        return real(cluster, transactions, is_commit=is_commit)  # type: ignore[arg-type]

    monkeypatch.setattr(executing, "end_all", end_late)
    with pytest.raises(DecidedLost, match="next start"):
        query.commit(messages, 0)
    monkeypatch.setattr(executing, "end_all", real)
    query.abort(messages, 0)
    query.batch("b", 0)
    assert query.values() == rows_of(0)


def test_a_state_too_large_for_an_offset_is_found_in_its_topic(query: Query) -> None:
    for run, batch in (("a", 0), ("a", 1), ("b", 1), ("b", 2)):
        messages = [query.task(run, batch, number, rows=1) for number in range(30)]
        query.commit(messages, batch)
    assert query.values() == rows_of(0, 1, 2, tasks=30, rows=1)


def test_a_transaction_timeout_beyond_the_brokers_is_told_by_its_option() -> None:
    with Broker(topics={"out": 1}) as broker:
        query = Query(broker, options_of(broker, transactionTimeout="20m"))
        with pytest.raises(BadOption, match="transactionTimeout = 1200000 ms is more"):
            query.task("a", 0, 0)


def test_without_exactly_once_rows_are_seen_at_once() -> None:
    with Broker(topics={"out": 1}) as broker:
        query = Query(broker, options_of(broker, exactlyOnce="false"))
        messages = query.tasks("a", 0)
        assert query.values() == rows_of(0)
        query.commit(messages, 0)
        query.abort(messages, 0)
        assert query.values() == rows_of(0)


def test_a_query_that_lay_still_for_weeks_goes_on_where_it_was() -> None:
    with Broker(topics={"out": {"partitions": 2, "retention.ms": -1}}) as broker:
        query = Query(broker, options_of(broker))
        query.batch("a", 0)
        query.batch("a", 1)
        # The group's offset and the tasks' transactional ids are forgotten by then; the topic is not.
        broker.clock.advance(weeks=3)
        with pytest.raises(CheckpointBehind):
            query.task("b", 0, 0)
        query.batch("b", 2)
        assert query.values() == rows_of(0, 1, 2)
