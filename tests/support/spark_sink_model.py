"""A broker and a Spark in a few lines each, to run the sink's protocol in any order and stop it anywhere."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from respool.spark.sink.errors import DeciderFenced, SinkError
from respool.spark.sink.names import transactional_id
from respool.spark.sink.protocol import (
    AlreadyIn,
    CheckRows,
    Part,
    TaskId,
    WriteAgain,
    decide,
    fail_batch,
    join,
    mismatch,
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
from respool.spark.sink.state import Extent, Share, SinkState, TaskTransaction

Row = tuple[int, int, str]  # batch, task, and which computation of the batch it comes from


@dataclass
class Id:
    """A transactional id, as its coordinator has it."""

    epoch: int = 0
    state: str = "Empty"
    rows: list[Row] = field(default_factory=list)


@dataclass
class ModelBroker:
    ids: dict[str, Id] = field(default_factory=dict)
    state: str | None = None
    before: str | None = None
    reads: int = 0
    decider: int = 0
    visible: list[Row] = field(default_factory=list)
    decided: set[TaskTransaction] = field(default_factory=set)
    # Transactions that were aborted by time, and by someone who took their id.
    aborted_by_time: set[TaskTransaction] = field(default_factory=set)
    aborted_by_others: set[TaskTransaction] = field(default_factory=set)

    @property
    def timed_out(self) -> bool:
        return bool(self.decided & self.aborted_by_time)

    @property
    def trodden_on(self) -> bool:
        return bool(self.decided & self.aborted_by_others)

    def answer(self, effect: Effect) -> Any:  # noqa: PLR0911 - one for each.
        match effect:
            case ReadState():
                return None if self.state is None else SinkState.from_json(self.state)
            case ReadSummary():
                # Now and then as it was before the last change.
                self.reads += 1
                state = self.before if self.reads % 3 == 0 else self.state
                return None if state is None else SinkState.from_json(state).summary
            case BecomeDecider():
                self.decider += 1
                return self.decider
            case WriteState(token=token, state=state):
                if token != self.decider:
                    raise DeciderFenced("another is")
                self.before, self.state = self.state, state.to_json()
                self.decided |= {one.transaction for one in state.shares}
            case ListOpen(but=known):
                left_out = {one.transactional_id for one in known}
                return tuple(
                    TaskTransaction(name, 1, one.epoch)
                    for name, one in self.ids.items()
                    if one.state == "Ongoing" and name not in left_out
                )
            case Look(transactions=transactions):
                return tuple(Seen(is_open=self._is_open(one)) for one in transactions)
            case End(transactions=transactions, is_commit=is_commit):
                return tuple(self._end(one, is_commit=is_commit) for one in transactions)
            case Wait():
                return None
        return None

    def init(self, name: str) -> int:
        """InitProducerId: an open transaction is aborted, and whoever had it is fenced."""
        one = self.ids.setdefault(name, Id())
        if one.state == "Ongoing":
            self.aborted_by_others.add(TaskTransaction(name, 1, one.epoch))
        one.epoch += 1
        one.state, one.rows = "Empty", []
        return one.epoch

    def write(self, name: str, epoch: int, row: Row) -> bool:
        one = self.ids[name]
        if one.epoch != epoch or one.state not in ("Empty", "Ongoing"):
            return False
        one.state = "Ongoing"
        one.rows.append(row)
        return True

    def time_out(self, name: str) -> None:
        one = self.ids[name]
        self.aborted_by_time.add(TaskTransaction(name, 1, one.epoch))
        one.epoch += 1
        one.state, one.rows = "Abort", []

    def _end(self, transaction: TaskTransaction, *, is_commit: bool) -> Outcome:
        one = self.ids[transaction.transactional_id]
        if self._is_open(transaction):
            assert is_commit or transaction not in self.decided, "decided, and then aborted"
            if is_commit:
                self.visible += one.rows
            one.epoch += 1
            one.state, one.rows = "Commit" if is_commit else "Abort", []
            return Outcome.DONE
        if one.epoch == transaction.epoch + 1 and one.state in ("Commit", "Abort"):
            return Outcome.DONE if (one.state == "Commit") == is_commit else Outcome.OTHERWISE
        return Outcome.UNKNOWN

    def _is_open(self, transaction: TaskTransaction) -> bool:
        one = self.ids[transaction.transactional_id]
        return one.epoch == transaction.epoch and one.state == "Ongoing"


class Actor:
    """A process that goes on by one request at a time, or not at all."""

    def __init__(self, name: str, steps: Generator[Effect, Any, Any]) -> None:
        self.name = name
        self._steps = steps
        self._answer: Any = None
        self._thrown: Exception | None = None
        self.is_done = False
        self.result: Any = None
        self.error: SinkError | None = None

    def step(self, broker: ModelBroker) -> None:
        assert not self.is_done
        try:
            if self._thrown is not None:
                thrown, self._thrown = self._thrown, None
                effect = self._steps.throw(thrown)
            else:
                effect = self._steps.send(self._answer)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value
            return
        except SinkError as error:
            self.is_done, self.error = True, error
            return
        try:
            self._answer = effect(broker) if callable(effect) else broker.answer(effect)
        except DeciderFenced as error:
            self._thrown = error


@dataclass(frozen=True)
class Told:
    """A task's message to the driver."""

    share: Share | None


def task(place: TaskId, attempt: int, version: str) -> Generator[Any, Any, Told]:
    """A task of the model: every step that a broker sees is one."""
    part: Part = yield from join(place)
    row = (place.batch, place.task, version)
    # Task 2 never has rows.
    extent = Extent() if place.task == 2 else Extent(rows=1, bytes=10, checksum=hash(row) % 1000)
    match part:
        case AlreadyIn():
            return Told(None)
        case CheckRows(expected=expected) | WriteAgain(expected=expected):
            if expected != extent:
                raise mismatch(place.batch, place.task, expected, extent)
            if isinstance(part, CheckRows):
                return Told(None)
    if not extent.rows:
        return Told(None)
    name = transactional_id("query", place, attempt)
    epoch = yield lambda broker: broker.init(name)
    is_in = yield lambda broker: broker.write(name, epoch, row)
    if not is_in:
        raise SinkError("fenced")
    return Told(Share(task=place.task, transaction=TaskTransaction(name, 1, epoch), extent=extent))


class Run:
    """A start of the query: goes through batches until something fails."""

    TASKS = 3

    def __init__(self, name: str, spark: "ModelSpark") -> None:
        self.name = name
        self.spark = spark
        self.is_failed = False
        self.begin(spark.committed + 1)

    def begin(self, batch: int) -> None:
        self.batch = batch
        self.told: dict[int, Told] = {}
        self.attempts = dict.fromkeys(range(self.TASKS), 0)
        self.actors: list[Actor] = []
        self.tasks: dict[Actor, int] = {}
        self.ending: Actor | None = None
        self.giving_up: Actor | None = None
        for number in range(self.TASKS):
            self.try_task(number)

    def try_task(self, number: int) -> None:
        attempt = self.attempts[number]
        self.attempts[number] += 1
        place = TaskId(run=self.name, batch=self.batch, task=number)
        version = self.spark.version_of(self.batch, self.name)
        actor = Actor(f"{self.name}/{number}.{attempt}", task(place, attempt, version))
        self.tasks[actor] = number
        self.actors.append(actor)

    def shares(self) -> list[Share]:
        return [one.share for one in self.told.values() if one.share is not None]

    def stop(self) -> None:
        """Spark gives the batch up: also while its commit still runs."""
        if self.giving_up is None:
            self.is_failed = True
            steps = fail_batch(self.name, self.batch, shares=self.shares())
            self.giving_up = Actor(f"{self.name}/abort", steps)
            self.actors.append(self.giving_up)

    def step(self, actor: Actor) -> None:
        actor.step(self.spark.broker)
        if not actor.is_done:
            return
        self.actors.remove(actor)
        if actor is self.ending:
            if actor.error is not None:
                self.spark.errors.append(actor.error)
                self.stop()
            elif not self.is_failed:
                self.spark.committed = max(self.spark.committed, self.batch)
                # Tasks that lost a race may live on.
                left = [one for one in self.actors if one in self.tasks]
                self.begin(self.batch + 1)
                self.actors += left
        elif actor in self.tasks and actor.error is None:
            # Of several attempts the first one counts.
            self.told.setdefault(self.tasks[actor], actor.result)
            if len(self.told) == self.TASKS and self.ending is None and not self.is_failed:
                steps = decide(self.name, self.batch, tasks=self.TASKS, shares=self.shares())
                self.ending = Actor(f"{self.name}/commit", steps)
                self.actors.append(self.ending)
        elif actor in self.tasks and self.tasks[actor] not in self.told and not self.is_failed:
            assert actor.error is not None
            self.spark.errors.append(actor.error)
            if self.attempts[self.tasks[actor]] < 3:
                self.try_task(self.tasks[actor])
            else:
                self.stop()


@dataclass
class ModelSpark:
    is_deterministic: bool
    broker: ModelBroker = field(default_factory=ModelBroker)
    # The last batch in the checkpoint's commit log.
    committed: int = -1
    runs: list[Run] = field(default_factory=list)
    errors: list[SinkError] = field(default_factory=list)

    def version_of(self, batch: int, run: str) -> str:
        return "same" if self.is_deterministic else run

    def start(self) -> Run:
        run = Run(f"run{len(self.runs)}", self)
        self.runs.append(run)
        return run
