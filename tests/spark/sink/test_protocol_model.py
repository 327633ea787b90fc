"""Tasks, retries, speculation, drivers that die anywhere, drivers that live on, timeouts: each batch is there once.

Each walk is a seed: what happens next is drawn, at every request that a broker would see. At its end the query is
started once more and nothing happens to it: then everything is there once, or the error says why it cannot be.
"""

import os
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.spark.sink.errors import DecidedLost, OutcomeUnknown, RepairMismatch
from support.spark_sink_model import Actor, ModelSpark, Run

_WALKS = 40_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 600
_STEPS = 120


class Walk:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.spark = ModelSpark(is_deterministic=rng.random() < 0.5)
        self.spark.start()
        # Some walks have no timeouts, so that what they do to the rest is not hidden by them.
        times_out = rng.choice((0.0, 0.0, 0.5, 3.0))
        self.events = {
            self.anyone_goes_on: 40.0,
            self.newest_run_goes_on: 15.0,
            self.one_dies: rng.choice((0.5, 3.0)),
            self.another_attempt: rng.choice((0.0, 3.0)),
            self.another_run: rng.choice((0.5, 2.0, 5.0)),
            self.query_is_stopped: rng.choice((0.0, 1.0)),
            self.transaction_times_out: times_out,
        }

    def run(self) -> None:
        names, weights = list(self.events), list(self.events.values())
        for event in self.rng.choices(names, weights, k=_STEPS):
            event()
            self.check_nothing_is_there_twice()
        self.start_once_more()

    def actors(self) -> list[tuple[Run, Actor]]:
        return [(run, actor) for run in self.spark.runs for actor in run.actors]

    def anyone_goes_on(self) -> None:
        if actors := self.actors():
            run, actor = self.rng.choice(actors)
            for _ in range(self.rng.choice((1, 1, 2, 3, 8))):
                if not actor.is_done:
                    run.step(actor)

    def newest_run_goes_on(self) -> None:
        run = self.spark.runs[-1]
        for _ in range(self.rng.randint(1, 30)):
            if run.actors:
                run.step(run.actors[0])

    def one_dies(self) -> None:
        if not (actors := self.actors()):
            return
        run, actor = self.rng.choice(actors)
        run.actors.remove(actor)
        if actor in run.tasks and run.tasks[actor] not in run.told and not run.is_failed:
            run.try_task(run.tasks[actor])
        elif actor is run.ending:
            run.stop()

    def another_attempt(self) -> None:
        run, number = self.spark.runs[-1], self.rng.randint(0, 1)
        if not run.is_failed and run.ending is None and run.attempts[number] < 4:
            run.try_task(number)

    def another_run(self) -> None:
        """The query is started anew; the driver before is dead, or only believed to be."""
        if self.rng.random() < 0.4:
            for run in self.spark.runs:
                run.actors.clear()
        self.spark.start()

    def query_is_stopped(self) -> None:
        self.spark.runs[-1].stop()

    def transaction_times_out(self) -> None:
        ids = self.spark.broker.ids
        if names := sorted(name for name, one in ids.items() if one.state == "Ongoing"):
            self.spark.broker.time_out(self.rng.choice(names))

    def check_nothing_is_there_twice(self) -> None:
        places = Counter((batch, task) for batch, task, _ in self.spark.broker.visible)
        assert max(places.values(), default=1) == 1, places

    def start_once_more(self) -> None:
        spark = self.spark
        for run in spark.runs:
            run.actors.clear()
        last = spark.start()
        until = last.batch + 1
        while last.actors and last.batch <= until and not last.is_failed:
            last.step(last.actors[0])
        self.check_nothing_is_there_twice()
        if last.is_failed:
            self.check_it_may_fail(spark.errors[-1])
            return
        visible = spark.broker.visible
        for batch in range(until + 1):
            versions = {version for number, _, version in visible if number == batch}
            tasks = sorted(task for number, task, _ in visible if number == batch)
            assert tasks == [0, 1], (batch, visible)
            assert len(versions) == 1, (batch, visible)

    def check_it_may_fail(self, error: Exception) -> None:
        """Only what a broker aborted in time, or a process of an older run by its id, can stand in the way."""
        broker = self.spark.broker
        match error:
            case RepairMismatch():
                assert broker.timed_out or broker.trodden_on
                assert not self.spark.is_deterministic
            case OutcomeUnknown() | DecidedLost():
                assert broker.trodden_on
            case _:
                pytest.fail(f"{error!r}")


def test_whatever_dies_each_batch_is_there_once() -> None:
    for seed in range(_WALKS):
        try:
            Walk(random.Random(seed)).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@settings(max_examples=150, deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_whatever_dies_each_batch_is_there_once_by_hypothesis(rng: random.Random) -> None:
    Walk(rng).run()
