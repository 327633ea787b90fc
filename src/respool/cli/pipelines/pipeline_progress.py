"""Progress of `respool pipeline run`: a bar on a terminal; elsewhere lines at a bounded rate, for logs.

A line has what a job has done so far, and how far its query is behind the topic:

    bronze: reading the topic: 120,000 rows in 3 batches, 40,000 messages behind, 31 s
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Protocol

from respool.cli import output
from respool.model.quantities import counted
from respool.spark.source.stream_offset import CheckpointUnreadable, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.jobs import ProgressListener

# A job's lines are at least this far apart; without news, a job that is running has one per minute.
NOTE_SECONDS = 10.0
QUIET_SECONDS = 60.0
_TICK_SECONDS = 1.0


class JobsProgress(Protocol):
    """Shows the progress of several jobs."""

    def of(self, job: str) -> "ProgressListener":
        """Return the listener for this job, which begins now."""

    def ended(self, job: str, *, is_final: bool) -> None:
        """The job has ended; unless this is final, it runs again, or its streaming queries continue."""

    def watching(self, spark: "SparkSession") -> AbstractContextManager[None]:
        """Within it, the session's queries are looked at."""


@contextmanager
def shown_progress() -> "Iterator[JobsProgress]":
    """Show a bar or lines, as standard error allows."""
    if output.is_error_terminal():
        with output.progress("Spark starts", total=None, unit="rows") as bar:
            yield Bar(bar)
        return
    output.note("Spark starts")
    yield Lines(output.note, now=time.monotonic)


class Bar:
    """One bar for all jobs: the present step, and the sum of rows."""

    def __init__(self, bar: output.ProgressBar) -> None:
        self._bar = bar

    def of(self, _job: str) -> "ProgressListener":
        return self

    def ended(self, job: str, *, is_final: bool) -> None:
        pass

    def watching(self, _spark: "SparkSession") -> AbstractContextManager[None]:
        return nullcontext()

    def step(self, text: str) -> None:
        self._bar.describe(text)

    def rows(self, count: int) -> None:
        self._bar.advance(count)


@dataclass(slots=True)
class _Job:
    began_s: float
    step: str = ""
    rows: int = 0
    batches: int = 0
    is_running: bool = True
    has_news: bool = False
    noted_s: float | None = None


class Lines:
    """The first step of a job is noted at once, everything else by `tick`. For several threads."""

    def __init__(self, note: Callable[[str], None], *, now: Callable[[], float]) -> None:
        self._note = note
        self._now = now
        self._lock = Lock()
        self._jobs: dict[str, _Job] = {}

    def of(self, job: str) -> "ProgressListener":
        with self._lock:
            found = self._jobs.setdefault(job, _Job(self._now()))
            found.is_running = True
        return _Listener(self, job)

    def ended(self, job: str, *, is_final: bool) -> None:
        with self._lock:
            one = self._jobs[job]
            one.is_running = False
            # Its outcome has the final counts.
            one.has_news = one.has_news and not is_final

    def watching(self, spark: "SparkSession") -> AbstractContextManager[None]:
        return _ticking(lambda: self.tick(messages_behind_of(spark)))

    def step(self, job: str, text: str) -> None:
        with self._lock:
            one = self._jobs[job]
            one.has_news = one.has_news or text != one.step
            one.step = text
            if one.noted_s is None:
                one.noted_s, one.has_news = self._now(), False
                self._note(text)

    def rows(self, job: str, count: int) -> None:
        with self._lock:
            one = self._jobs[job]
            one.rows += count
            one.batches += 1
            one.has_news = True

    def tick(self, behind: Mapping[str, int]) -> None:
        """Note each job that has news, if its last line is old enough. `behind` is by job."""
        with self._lock:
            now = self._now()
            for name, one in self._jobs.items():
                quiet = now - (one.began_s if one.noted_s is None else one.noted_s)
                if quiet >= (NOTE_SECONDS if one.has_news else QUIET_SECONDS) and (
                    one.has_news or one.is_running
                ):
                    one.noted_s, one.has_news = now, False
                    self._note(_line(name, one, behind.get(name), seconds=now - one.began_s))


def _line(name: str, job: _Job, behind: int | None, *, seconds: float) -> str:
    batches = "1 batch" if job.batches == 1 else f"{job.batches:,} batches"
    done = f"{counted(job.rows, 'row')} in {batches}"
    lag = "" if behind is None else f", {counted(behind, 'message')} behind"
    return f"{job.step or name}: {done}{lag}, {seconds:.0f} s"


class _Listener:
    def __init__(self, lines: Lines, job: str) -> None:
        self._lines = lines
        self._job = job

    def step(self, text: str) -> None:
        self._lines.step(self._job, text)

    def rows(self, count: int) -> None:
        self._lines.rows(self._job, count)


def messages_behind_of(spark: "SparkSession") -> dict[str, int]:
    """Return, for each running query that reads a topic, how many messages it had left after its last batch."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    found: dict[str, int] = {}
    try:
        for query in spark.streams.active:
            last = query.lastProgress
            for source in last.sources if last is not None else ():
                behind = messages_behind(source.latestOffset, source.endOffset)
                if query.name is not None and behind is not None:
                    found[query.name] = behind
    except (Py4JError, PySparkException):
        # A query that ends just now. Its error, if any, is that of its job.
        return found
    return found


def messages_behind(latest: str | None, end: str | None) -> int | None:
    """Compare two positions of a source as Spark tells them; None unless both are offsets of topics."""
    try:
        ends, reached = from_json(json.loads(latest or "")), from_json(json.loads(end or ""))
    except (ValueError, CheckpointUnreadable):
        return None
    return sum(
        max(0, offset - (reached[topic].offsets.get(number, 0) if topic in reached else 0))
        for topic, at in ends.items()
        for number, offset in at.offsets.items()
    )


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    is_over = Event()

    def run() -> None:
        while not is_over.wait(_TICK_SECONDS):
            tick()

    ticker = Thread(target=run, name="progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_over.set()
        ticker.join()
