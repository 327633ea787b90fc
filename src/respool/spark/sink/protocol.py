"""The steps of tasks and of the driver: which run may write, and which batches count. Pure: effects out, answers in.

The steps are generators. They yield an `Effect`, and are sent its answer: by `executing.py`, which asks brokers, and in
tests by a model that answers in any order, and stops anywhere. A `WriteState` may raise `DeciderFenced`.

Invariants:
1. State is changed only by `BecomeDecider`, `ReadState`, `WriteState`, in this order. This fences every previous
   decider.
2. A share is decided only while its run owns the sink, and only if its transaction was open after `BecomeDecider`.
3. A decided transaction is never aborted. Only transactions listed before a successful `WriteState` are aborted, so no
   process can have decided them later, and none of them belongs to a newer run. They are aborted by their epoch, so
   that a later transaction of the same id is not affected.
4. Tasks of a run begin only after everything that was decided before has ended.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from respool.spark.sink.errors import (
    BatchFailed,
    CheckpointBehind,
    DecidedLost,
    DeciderFenced,
    OutcomeUnknown,
    RepairMismatch,
    Superseded,
    TransactionGone,
)
from respool.spark.sink.protocol_steps import (
    BecomeDecider,
    Effect,
    End,
    ListOpen,
    Look,
    Outcome,
    ReadState,
    ReadSummary,
    Seen,
    Wait,
    WriteState,
)
from respool.spark.sink.state import (
    Extent,
    Share,
    SinkState,
    Summary,
    TaskTransaction,
)

# Attempts to change the state while other processes change it.
TRIES = 20
# How long tasks other than the first wait for it to take over, before they try themselves.
WAIT_SECONDS = 0.1
WAITS = 10


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """Identifies a task: the run of the query, the batch, and the task's number."""

    run: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Write all rows."""


@dataclass(frozen=True, slots=True)
class AlreadyIn:
    """The batch already counts: write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAgain:
    """This task's rows were lost after they were decided. The new rows must be the same."""

    expected: Extent


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRows:
    """Rows of other tasks were lost, but this task's were not: write nothing, and check that its rows are the same."""

    expected: Extent


Part: TypeAlias = WriteRows | AlreadyIn | WriteAgain | CheckRows


def join(place: TaskId) -> Generator[Effect, Any, Part]:
    """Start a task. When this returns, the task may open its transaction."""
    summary: Summary | None = yield ReadSummary()
    waits = 0 if place.task == 0 else WAITS
    while waits and (summary is None or summary.run != place.run):
        _check_not_gone(summary, place)
        # All tasks of a run start together; one of them is enough to take over.
        waits -= 1
        yield Wait(seconds=WAIT_SECONDS)
        summary = yield ReadSummary()
    if summary is not None and summary.run == place.run:
        if place.batch > summary.batch:
            return WriteRows()
        if place.batch == summary.batch and not summary.has_lost:
            return AlreadyIn()
    # An ended run must not disturb the current one: becoming the decider would fence it.
    _check_not_gone(summary, place)
    for _ in range(TRIES):
        try:
            state = yield from _take_over(place)
        except DeciderFenced:
            # Most likely another task of this run; or another run, which the next attempt detects.
            yield Wait(seconds=WAIT_SECONDS)
            continue
        return _part(state, place)
    raise Superseded(
        f"run {place.run} could not take the sink over in {TRIES} tries: others kept changing it. "
        "Does the query run elsewhere, too?"
    )


def _check_not_gone(state: Summary | SinkState | None, place: TaskId) -> None:
    if state is not None and place.run in state.gone:
        raise Superseded(
            f"run {state.run} of this query has taken over from run {place.run}, which writes no more. "
            "Is the query started twice from the same checkpoint? Stop one"
        )


def _part(state: SinkState, place: TaskId) -> Part:
    _check_not_behind(state, place.batch)
    if place.batch > state.batch:
        return WriteRows()
    if not state.lost:
        return AlreadyIn()
    expected = state.extent_of(place.task)
    if any(one.task == place.task for one in state.lost):
        return WriteAgain(expected=expected)
    return CheckRows(expected=expected)


def _take_over(place: TaskId) -> Generator[Effect, Any, SinkState]:
    # List before the state is read and written: open transactions then belong to runs that this write ends.
    left_open: tuple[TaskTransaction, ...] = yield ListOpen()
    token = yield BecomeDecider()
    found: SinkState | None = yield ReadState()
    state = found or SinkState()
    if state.run == place.run:
        return state
    _check_not_gone(state, place)
    _check_not_behind(state, place.batch)
    state = yield from _resolve(state, place.batch)
    state = state.taken_over_by(place.run)
    yield WriteState(token=token, state=state)
    decided = {one.transaction for one in state.shares}
    yield End(transactions=tuple(one for one in left_open if one not in decided), is_commit=False)
    return state


def _resolve(state: SinkState, batch: int) -> Generator[Effect, Any, SinkState]:
    """Commit what was decided, or find it lost. Every run would commit it, so committing it twice is harmless."""
    open_still = tuple(one.transaction for one in state.unresolved)
    if not open_still:
        return state
    outcomes: Sequence[Outcome] = yield End(transactions=open_still, is_commit=True)
    by_outcome: dict[Outcome, list[TaskTransaction]] = {one: [] for one in Outcome}
    for transaction, outcome in zip(open_still, outcomes, strict=True):
        by_outcome[outcome].append(transaction)
    lost, unknown = by_outcome[Outcome.OTHERWISE], by_outcome[Outcome.UNKNOWN]
    if batch > state.batch:
        # The query continued with the next batch, so the driver's commit had ended all of them; their ids were reused.
        if lost:
            raise DecidedLost(
                f"batch {state.batch} was decided, {_names(lost)} of it aborted since, and the query continues with "
                f"batch {batch}: those rows are missing. Go back to a checkpoint before it, with a new query"
            )
        return state.resolved()
    if unknown:
        raise OutcomeUnknown(
            f"batch {state.batch} was decided, and of {_names(unknown)} nobody knows whether it was committed: another "
            "process used the same id since. Compare the topic with the batch's input before the query continues"
        )
    return state.resolved(lost=lost)


def _check_not_behind(state: SinkState, batch: int) -> None:
    if batch < state.batch:
        raise CheckpointBehind(
            f"the query is at batch {batch}, and batch {state.batch} of it is in the topic already: its checkpoint is "
            "older than what it wrote. Its data is already in the topic, or would be written twice. Use the newest "
            "checkpoint; or a new one, with which everything it reads is written again"
        )


# -- the driver --------------------------------------------------------------------------------------------------------


def decide(
    run: str, batch: int, *, tasks: int, shares: Sequence[Share]
) -> Generator[Effect, Any, None]:
    """After all tasks are done: make the whole batch count."""
    for _ in range(TRIES if shares else 0):
        try:
            yield from _decide(run, batch, tasks=tasks, shares=shares)
        except DeciderFenced:
            # Fenced by a late task, or by another run. Check everything again, so that nothing is missed.
            yield Wait(seconds=WAIT_SECONDS)
            continue
        return
    if shares:
        raise Superseded(
            f"batch {batch} of run {run} could not be decided in {TRIES} tries: others kept changing the sink. "
            "It does not count"
        )


def _decide(
    run: str, batch: int, *, tasks: int, shares: Sequence[Share]
) -> Generator[Effect, Any, None]:
    written = tuple(one.transaction for one in shares)
    token = yield BecomeDecider()
    state: SinkState | None = yield ReadState()
    if state is None or state.run != run:
        raise Superseded(
            f"run {'nobody' if state is None else state.run} writes for this query now, not run {run}: "
            f"batch {batch} of it does not count"
        )
    if state.failed_batch == batch:
        raise BatchFailed(f"batch {batch} of run {run} has failed before: nothing of it counts")
    _check_not_behind(state, batch)
    if batch == state.batch and not state.lost:
        # It was decided before: by this very call, if its answer was lost, or by one with other transactions.
        yield End(transactions=_without(written, state.shares), is_commit=False)
        yield from _end_decided(state, batch)
        return
    new = _repaired(state, tasks, shares) if batch == state.batch else None
    new = new or state.decided(batch, tasks=tasks, shares=shares)
    # Attempts that lost a race: speculation, retries. List them before the check below, after which time counts.
    left_open: tuple[TaskTransaction, ...] = yield ListOpen(but=written)
    seen: Sequence[Seen] = yield Look(transactions=written)
    _check_open(batch, shares, seen)
    yield WriteState(token=token, state=new)
    # From here on the batch counts, whatever happens.
    yield from _end_decided(new, batch)
    left_over = _without(left_open, new.shares)
    if left_over:
        yield End(transactions=left_over, is_commit=False)


def _end_decided(state: SinkState, batch: int) -> Generator[Effect, Any, None]:
    transactions = tuple(one.transaction for one in state.unresolved)
    outcomes: Sequence[Outcome] = yield End(transactions=transactions, is_commit=True)
    bad = [one for one, end in zip(transactions, outcomes, strict=True) if end is not Outcome.DONE]
    if bad:
        raise DecidedLost(
            f"batch {batch} was decided, and then {_names(bad)} ended before it was committed. The next start of the "
            "query writes what is missing of it"
        )


def _repaired(state: SinkState, tasks: int, shares: Sequence[Share]) -> SinkState:
    if tasks != state.tasks:
        raise RepairMismatch(
            f"batch {state.batch} had {state.tasks} tasks, part of it was lost, and now it has {tasks}: what is "
            "missing cannot be written alone. Run the query with the settings it had (cores, shuffle partitions)"
        )
    again = {one.task: one for one in shares}
    for lost in state.lost:
        found = again.pop(lost.task, None)
        if found is None or found.extent != lost.extent:
            raise mismatch(state.batch, lost.task, lost.extent, found.extent if found else Extent())
    if again:
        raise RepairMismatch(
            f"tasks {sorted(again)} of batch {state.batch} wrote again, though they were in"
        )
    return state.repaired(shares)


def mismatch(batch: int, task: int, before: Extent, now: Extent) -> RepairMismatch:
    """The error for a repair that cannot continue: the plan does not give the same rows to the same tasks."""
    return RepairMismatch(
        f"part of batch {batch} was lost after it was decided (its transaction timed out before it was committed), and "
        f"is to be written again. Task {task} had {before}, and now has {now}: the query does not give the same rows "
        "twice, so that missing rows cannot be identified. Nothing was written. Start it with a new "
        "checkpoint, from offsets of your choice, and with a larger transactionTimeout"
    )


def _check_open(batch: int, shares: Sequence[Share], seen: Sequence[Seen]) -> None:
    for share, one in zip(shares, seen, strict=True):
        if one.is_open and one.has_time:
            continue
        what = f"is {one.state}" if not one.is_open else "is about to time out"
        raise TransactionGone(
            f"the transaction {share.transaction.transactional_id} of task {share.task} {what}, so batch {batch} "
            "cannot count whole, and nothing of it does. If the batch took longer than transactionTimeout, raise it, "
            "or make batches smaller"
        )


def fail_batch(run: str, batch: int, *, shares: Sequence[Share]) -> Generator[Effect, Any, None]:
    """Abandon a batch that failed, or whose commit did: abort its transactions, but commit those already decided."""
    if not shares:
        return
    token = yield BecomeDecider()
    found: SinkState | None = yield ReadState()
    state = found or SinkState()
    if state.run == run and batch > state.batch:
        # When a query is stopped, Spark may call this while the commit still runs. This prevents a later decision.
        try:
            yield WriteState(token=token, state=replace(state, failed_batch=batch))
        except DeciderFenced:
            # The next run ends them.
            return
    yield End(
        transactions=_without(tuple(one.transaction for one in shares), state.shares),
        is_commit=False,
    )
    if state.run == run and batch == state.batch:
        yield End(transactions=tuple(one.transaction for one in state.unresolved), is_commit=True)


def _without(
    transactions: Sequence[TaskTransaction], shares: Sequence[Share]
) -> tuple[TaskTransaction, ...]:
    decided = {one.transaction for one in shares}
    return tuple(one for one in transactions if one not in decided)


def _names(transactions: Sequence[TaskTransaction]) -> str:
    return ", ".join(one.transactional_id for one in transactions[:5])
