"""Who may write, and what counts: the steps of tasks and of the driver. Pure: each step is asked for, and answered.

These are generators. They yield an `Effect`, and are sent its answer: by `executing.py`, which asks brokers, and in
tests by a model that does so in any order, and stops anywhere. Into a `WriteState`, `DeciderFenced` may be thrown.

What must stay true:
1. State is changed by `BecomeDecider`, `ReadState`, `WriteState` only, in this order. Who does so fences whoever began
   before.
2. A share is decided only while its run owns the sink, and only when it was seen open after `BecomeDecider`.
3. Nothing is aborted that was decided. What may be aborted was listed before a `WriteState` that succeeded, so that
   nobody can have decided it later, and nobody else's can be among it; and it is aborted by its epoch, so that
   a later transaction of the same id is left alone.
4. Tasks of a run begin only when all that was decided before has ended.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from respool.spark.sink.errors import (
    BatchGivenUp,
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
    Transaction,
)

# Of a change of the state, when others change it at the same time.
TRIES = 20
# How long tasks other than the first wait for it to take over, before they try themselves.
WAIT_SECONDS = 0.1
WAITS = 10


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a task stands: in which run of the query, in which batch, as which of its tasks."""

    run: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Write all of them."""


@dataclass(frozen=True, slots=True)
class AlreadyIn:
    """The batch counts already: write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAgain:
    """These rows were lost after they were decided. They must be the same again."""

    expected: Extent


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRows:
    """Others' rows were lost, these are in: write nothing, and see that they are the same."""

    expected: Extent


Part: TypeAlias = WriteRows | AlreadyIn | WriteAgain | CheckRows


def join(place: Place) -> Generator[Effect, Any, Part]:
    """A task begins. When this returns, it may open its transaction."""
    summary: Summary | None = yield ReadSummary()
    waits = 0 if place.task == 0 else WAITS
    while waits and (summary is None or summary.run != place.run):
        _check_not_gone(summary, place)
        # All tasks of a run begin together; one of them is enough to take over.
        waits -= 1
        yield Wait(seconds=WAIT_SECONDS)
        summary = yield ReadSummary()
    if summary is not None and summary.run == place.run:
        if place.batch > summary.batch:
            return WriteRows()
        if place.batch == summary.batch and not summary.has_lost:
            return AlreadyIn()
    # A run that is gone would disturb the one that writes: who becomes the decider fences the one before.
    _check_not_gone(summary, place)
    for _ in range(TRIES):
        try:
            state = yield from _take_over(place)
        except DeciderFenced:
            # Another task of this run, most likely; or another run, which the next try will see.
            yield Wait(seconds=WAIT_SECONDS)
            continue
        return _part(state, place)
    raise Superseded(
        f"run {place.run} could not take the sink over in {TRIES} tries: others kept changing it. "
        "Does the query run elsewhere, too?"
    )


def _check_not_gone(state: Summary | SinkState | None, place: Place) -> None:
    if state is not None and place.run in state.gone:
        raise Superseded(
            f"run {state.run} of this query has taken over from run {place.run}, which writes no more. "
            "Is the query started twice from the same checkpoint? Stop one"
        )


def _part(state: SinkState, place: Place) -> Part:
    _check_not_behind(state, place.batch)
    if place.batch > state.batch:
        return WriteRows()
    if not state.lost:
        return AlreadyIn()
    expected = state.extent_of(place.task)
    if any(one.task == place.task for one in state.lost):
        return WriteAgain(expected=expected)
    return CheckRows(expected=expected)


def _take_over(place: Place) -> Generator[Effect, Any, SinkState]:
    # Before the state is read and written: what is open by then belongs to runs that are gone when it is written.
    left_open: tuple[Transaction, ...] = yield ListOpen()
    token = yield BecomeDecider()
    found: SinkState | None = yield ReadState()
    state = found or SinkState()
    if state.run == place.run:
        return state
    _check_not_gone(state, place)
    _check_not_behind(state, place.batch)
    state = yield from _settle(state, place.batch)
    state = state.taken_over_by(place.run)
    yield WriteState(token=token, state=state)
    decided = {one.transaction for one in state.shares}
    yield End(transactions=tuple(one for one in left_open if one not in decided), is_commit=False)
    return state


def _settle(state: SinkState, batch: int) -> Generator[Effect, Any, SinkState]:
    """End what was decided, or find it lost. It is committed whoever decided it, so it harms nobody to do it twice."""
    open_still = tuple(one.transaction for one in state.unsettled)
    if not open_still:
        return state
    outcomes: Sequence[Outcome] = yield End(transactions=open_still, is_commit=True)
    by_outcome: dict[Outcome, list[Transaction]] = {one: [] for one in Outcome}
    for transaction, outcome in zip(open_still, outcomes, strict=True):
        by_outcome[outcome].append(transaction)
    lost, unknown = by_outcome[Outcome.OTHERWISE], by_outcome[Outcome.UNKNOWN]
    if batch > state.batch:
        # The query went on to the next batch, so the driver's commit had ended all of them. Their ids were used since.
        if lost:
            raise DecidedLost(
                f"batch {state.batch} was decided, {_names(lost)} of it aborted since, and the query goes on with "
                f"batch {batch}: those rows are missing. Go back to a checkpoint before it, with a new query"
            )
        return state.settled()
    if unknown:
        raise OutcomeUnknown(
            f"batch {state.batch} was decided, and of {_names(unknown)} nobody knows whether it was committed: another "
            "process used the same id since. Compare the topic with the batch's input before the query goes on"
        )
    return state.settled(lost=lost)


def _check_not_behind(state: SinkState, batch: int) -> None:
    if batch < state.batch:
        raise CheckpointBehind(
            f"the query is at batch {batch}, and batch {state.batch} of it is in the topic already: its checkpoint is "
            "older than what it wrote. What it would write now is in, or would be in twice. Use the newest checkpoint; "
            "or a new one, with which everything it reads is written again"
        )


# -- the driver --------------------------------------------------------------------------------------------------------


def decide(
    run: str, batch: int, *, tasks: int, shares: Sequence[Share]
) -> Generator[Effect, Any, None]:
    """All tasks are done: make the batch count, whole."""
    for _ in range(TRIES if shares else 0):
        try:
            yield from _decide(run, batch, tasks=tasks, shares=shares)
        except DeciderFenced:
            # Aborted by a late task, or by another run. It is all looked at again, so that nothing is missed.
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
    if state.given_up == batch:
        raise BatchGivenUp(f"batch {batch} of run {run} was given up before: nothing of it counts")
    _check_not_behind(state, batch)
    if batch == state.batch and not state.lost:
        # It was decided before: by this very call, if its answer was lost, or by somebody with other transactions.
        yield End(transactions=_without(written, state.shares), is_commit=False)
        yield from _end_decided(state, batch)
        return
    new = _repaired(state, tasks, shares) if batch == state.batch else None
    new = new or state.decided(batch, tasks=tasks, shares=shares)
    # Of attempts that lost a race: speculation, retries. Before the others are looked at: from then on time counts.
    left_open: tuple[Transaction, ...] = yield ListOpen(but=written)
    seen: Sequence[Seen] = yield Look(transactions=written)
    _check_open(batch, shares, seen)
    yield WriteState(token=token, state=new)
    # From here on the batch counts, whatever happens.
    yield from _end_decided(new, batch)
    left_over = _without(left_open, new.shares)
    if left_over:
        yield End(transactions=left_over, is_commit=False)


def _end_decided(state: SinkState, batch: int) -> Generator[Effect, Any, None]:
    transactions = tuple(one.transaction for one in state.unsettled)
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
    """A repair cannot go on: the plan does not give the same rows to the same tasks."""
    return RepairMismatch(
        f"part of batch {batch} was lost after it was decided (its transaction timed out before it was committed), and "
        f"is to be written again. Task {task} had {before}, and now has {now}: the query does not give the same rows "
        "twice, so that what is missing cannot be told from what is in. Nothing was written. Start it with a new "
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


def give_up(run: str, batch: int, *, shares: Sequence[Share]) -> Generator[Effect, Any, None]:
    """The batch failed, or its commit did: take back what may be taken back. What was decided is committed instead."""
    if not shares:
        return
    token = yield BecomeDecider()
    found: SinkState | None = yield ReadState()
    state = found or SinkState()
    if state.run == run and batch > state.batch:
        # Spark may call this while the commit still runs, when a query is stopped. Now that cannot decide it any more.
        try:
            yield WriteState(token=token, state=replace(state, given_up=batch))
        except DeciderFenced:
            # Whoever comes next ends them.
            return
    yield End(
        transactions=_without(tuple(one.transaction for one in shares), state.shares),
        is_commit=False,
    )
    if state.run == run and batch == state.batch:
        yield End(transactions=tuple(one.transaction for one in state.unsettled), is_commit=True)


def _without(
    transactions: Sequence[Transaction], shares: Sequence[Share]
) -> tuple[Transaction, ...]:
    decided = {one.transaction for one in shares}
    return tuple(one for one in transactions if one not in decided)


def _names(transactions: Sequence[Transaction]) -> str:
    return ", ".join(one.transactional_id for one in transactions[:5])
