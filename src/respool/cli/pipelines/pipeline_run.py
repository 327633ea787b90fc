"""Implements `respool pipeline run`: a Spark session, its jobs, progress, and a table of the counts."""

import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.cli import output
from respool.cli.connection_options import BrokerConnection
from respool.cli.interrupts import noticing_ctrl_c
from respool.cli.pipelines.pipeline_progress import JobsProgress, shown_progress
from respool.client.kafka import errors as client_errors
from respool.model.errors import RespoolError
from respool.model.operator_errors import NotFound, OperatorError, Unreachable
from respool.pipeline import topic_frames
from respool.pipeline.jobs import READ_TOPIC, STANDS_ON, STREAMING, USE_BROKER, TableMissing, job
from respool.pipeline.table_schemas import table
from respool.spark.java import NoJava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.jobs import JobOutcome, ProgressListener

# The interval at which Ctrl-C and the streaming queries are checked.
TICK_SECONDS = 0.2
# One of our errors, wherever Spark quotes it; and the last line of a Python traceback in Spark's output.
_OURS = re.compile(r"\b(respool\.(?:\w+\.)+[A-Z]\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(
    r"^(?!org\.|java\.|scala\.|py4j\.|pyspark\.)((?:\w+\.)+[A-Z]\w+|[A-Z]\w*Error): (.+)$",
    re.MULTILINE,
)


def run(
    jobs: Sequence[str],
    settings: "PipelineSettings",
    connection: BrokerConnection,
    *,
    master: str,
    spark_settings: Mapping[str, str],
    every_ms: int | None,
    as_json: bool,
) -> None:
    """Run the jobs once, or repeatedly every `every_ms` until Ctrl-C."""
    log = settings.data / "logs" / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    outcomes: list[JobOutcome] = []
    with _errors_in_words(log):
        # Before Spark starts, which takes a while, and whose errors are longer.
        _check_tables(jobs, settings)
        if USE_BROKER.intersection(jobs):
            connection.connect().close()
        if READ_TOPIC.intersection(jobs):
            topic_frames.readers(settings, settings.topic)
    with (
        _errors_in_words(log),
        shown_progress() as shown,
        _session(master, spark_settings, log) as spark,
        shown.watching(spark),
    ):
        if every_ms is None:
            for name in jobs:
                began = time.monotonic()
                outcomes.append(job(name)(spark, settings, shown.of(name)))
                shown.ended(name, is_final=True)
                output.note(f"{name} done in {time.monotonic() - began:.1f} seconds")
        else:
            output.note(f"running every {every_ms / 1000:g} seconds, Ctrl-C ends it")
            outcomes = _run_continuously(spark, jobs, settings, shown, every_ms)
    print_outcomes(outcomes, as_json=as_json)


def _check_tables(jobs: Sequence[str], settings: "PipelineSettings") -> None:
    for number, name in enumerate(jobs):
        needed = STANDS_ON.get(name)
        if needed is None or needed in jobs[:number]:
            continue
        if not table(settings, needed).exists:
            raise TableMissing(needed, needed)


def print_outcomes(outcomes: Sequence["JobOutcome"], *, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "jobs": [
                    {
                        "job": one.job,
                        "counts": one.counts,
                        "figures": one.figures,
                        "files": list(one.files),
                    }
                    for one in outcomes
                ]
            }
        )
        return
    rows: list[tuple[str, str, object]] = []
    for one in outcomes:
        rows += [(one.job, name, number) for name, number in one.counts.items()]
        rows += [(one.job, name, f"{number:.4f}") for name, number in one.figures.items()]
    output.print_rows(output.Headings("job", "what", "number", numbers=["number"]), rows)
    for one in outcomes:
        for file in one.files:
            output.note(f"report: {file}")


def _run_continuously(
    spark: "SparkSession",
    jobs: Sequence[str],
    settings: "PipelineSettings",
    shown: JobsProgress,
    every_ms: int,
) -> "list[JobOutcome]":
    """Streaming jobs keep running; the others run in turn. The final counts are those of the last turn."""
    last: dict[str, JobOutcome] = {}
    queries: list[StreamingQuery] = []
    started: set[str] = set()
    with noticing_ctrl_c() as ctrl_c:
        try:
            while not ctrl_c.pressed:
                began = time.monotonic()
                _raise_if_ended(queries)
                for name in jobs:
                    if name in started:
                        continue
                    # Jobs may take longer than a turn: also check here whether a query has ended.
                    _raise_if_ended(queries)
                    tell = shown.of(name)
                    last[name] = job(name)(spark, settings, tell)
                    shown.ended(name, is_final=False)
                    if name in STREAMING:
                        # Its first run has created the tables that the next jobs need; from now on it keeps running.
                        queries += _start(name, spark, settings, tell, every_ms)
                        started.add(name)
                while not ctrl_c.pressed and time.monotonic() - began < every_ms / 1000:
                    _raise_if_ended(queries)
                    time.sleep(TICK_SECONDS)
        finally:
            for query in queries:
                query.stop()
    return list(last.values())


def _start(
    name: str,
    spark: "SparkSession",
    settings: "PipelineSettings",
    tell: "ProgressListener",
    every_ms: int,
) -> "list[StreamingQuery]":
    from importlib import import_module

    made: Any = import_module(f"respool.pipeline.{name}").start(
        spark, settings, tell, every_ms=every_ms
    )
    return made if isinstance(made, list) else [made]


def _raise_if_ended(queries: "Sequence[StreamingQuery]") -> None:
    for query in queries:
        if not query.isActive:
            error = query.exception()
            raise error or OperatorError(f"the query {query.name} has ended, and did not say why")


@contextmanager
def _session(master: str, settings: Mapping[str, str], log: Path) -> "Iterator[SparkSession]":
    """A Spark session whose output goes to a file: a JVM keeps the standard error it was started with."""
    from respool.spark import session

    with log.open("ab") as file:
        sys.stderr.flush()
        ours = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                told = {**_local_settings(master), **settings}
                spark = session("respool pipeline", master=master, settings=told)
            spark.sparkContext.setLogLevel("WARN")
        finally:
            os.dup2(ours, 2)
            os.close(ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield spark
    finally:
        spark.stop()


def _local_settings(master: str) -> dict[str, str]:
    """On one machine, more shuffle partitions than cores only add work, above all for stateful streaming queries."""
    found = re.fullmatch(r"local\[(\d+|\*)\]", master)
    if found is None:
        return {}
    cores = os.cpu_count() or 1 if found[1] == "*" else int(found[1])
    return {"spark.sql.shuffle.partitions": str(max(2, cores))}


@contextmanager
def _errors_in_words(log: Path) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except OperatorError:
        raise
    except NoJava as error:
        raise OperatorError(str(error)) from error
    except client_errors.BrokerUnreachable as error:
        raise Unreachable(str(error)) from error
    except client_errors.UnknownTopic as error:
        raise NotFound(str(error)) from error
    except RespoolError as error:
        raise OperatorError(str(error)) from error
    except PySparkException as error:
        with log.open("a") as file:
            file.write(f"{error}\n")
        raise OperatorError(cause_of(str(error)), hint=f"Spark's own log: {log}") from error


def cause_of(text: str) -> str:
    """The cause in a long Spark error message: our error, else the last Python error in it, or else its first line."""
    found = _OURS.findall(text) or _CAUSE.findall(text)
    if found:
        name, what = found[-1]
        return f"{what} ({name.rpartition('.')[2]})"
    return text.strip().splitlines()[0] if text.strip() else "Spark failed without an error message"
