"""`respool pipeline`: what is refused before Spark is started, and how Spark's long tales become a line."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.cli.pipelines import pipeline, pipeline_run
from respool.cli.pipelines.pipeline_progress import Lines
from respool.cli.pipelines.pipeline_run import cause_of
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.security import Login, Security
from respool.model.operator_errors import OperatorError
from respool.pipeline.job_settings import PipelineSettings
from respool.pipeline.jobs import JOBS, JobOutcome


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["brass"], "there is no job 'brass'"),
        (["bronze", "bronze"], "bronze is given twice"),
        (["replay-fraud", "--continuous"], "ends where its window does"),
        (["gold", "--window", "soon"], "--window"),
        (["gold", "--lateness", "0s"], "1ms at least"),
        # It was two milliseconds, and put every event into quarantine.
        (["gold", "--lateness", "2"], "'2' has no unit: write 2ms, 2s, 2m, 2h or 2d"),
        (["gold", "--master", "foo"], "--master 'foo' is no Spark master"),
        (["replay-fraud", "--days", "0"], "--days 0"),
        (["replay-fraud", "--until", "someday"], "--until"),
        (["fraud", "--model", "../v1"], "--model '../v1'"),
        (["fraud", "--new-model", "v2:oracle"], "forest or logistic, not 'oracle'"),
        (["gold", "--conf", "spark.x"], "is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_by_name(run: Run, arguments: list[str], words: str) -> None:
    ended = run("pipeline", "run", *arguments)
    assert ended.code == ExitCode.USAGE
    assert words in ended.err


def test_a_truth_that_is_not_there_is_not_found(run: Run, tmp_path: Path) -> None:
    ended = run("pipeline", "run", "fraud", "--truth", str(tmp_path / "none.parquet"))
    assert ended.code == ExitCode.NOT_FOUND
    assert "none.parquet" in ended.err


@pytest.mark.parametrize("job", ["bronze", "fraud", "replay-fraud", "warehouse"])
def test_nobody_at_the_address_is_told_before_spark_is_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """`fraud` noticed it after its scoring, a minute later."""
    waited: list[float] = []
    monkeypatch.setattr(Cluster, "sleep", lambda _cluster, seconds: waited.append(seconds))
    monkeypatch.setattr(pipeline_run, "_check_tables", lambda *_: None)
    monkeypatch.setattr(pipeline_run, "_session", lambda *_: pytest.fail("Spark was started"))
    ended = run("pipeline", "run", job, "-b", "127.0.0.1:1", "--data", str(tmp_path / "lake"))
    # A first contact that is refused is not retried.
    assert waited == []
    assert ended.code == ExitCode.UNREACHABLE
    assert "no broker at 127.0.0.1:1, from --broker (127.0.0.1:1: connection refused)" in ended.err
    assert "start one with: respool serve. Another address: --broker HOST:PORT" in ended.err


def test_a_missing_extra_names_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == "deltalake" else find_spec(name)

    monkeypatch.setattr(pipeline, "find_spec", found)
    ended = run("pipeline", "run", "bronze")
    assert ended.code == ExitCode.FAILED
    assert "this command needs deltalake" in ended.err
    assert 'pip install ".[pipeline]"' in ended.err


@pytest.mark.parametrize("command", ["report", "clean"])
def test_without_tables_it_is_said_what_to_run(run: Run, tmp_path: Path, command: str) -> None:
    ended = run("pipeline", command, "--data", str(tmp_path))
    assert ended.code == ExitCode.NOT_FOUND
    assert "respool pipeline run bronze" in ended.err


def test_what_may_be_in_use_is_not_cleaned(run: Run, tmp_path: Path) -> None:
    """It kept an hour without a word, as the tables' library counts in hours."""
    ended = run("pipeline", "clean", "--data", str(tmp_path), "--keep", "59m")
    assert ended.code == ExitCode.USAGE
    assert "--keep 59m: it must be 1h at least" in ended.err


@pytest.mark.parametrize(
    ("jobs", "needed"),
    [(["silver"], "bronze"), (["silver", "gold"], "bronze"), (["fraud"], "silver")],
)
def test_a_table_that_is_not_there_is_told_before_spark_is_started(
    run: Run, tmp_path: Path, jobs: list[str], needed: str
) -> None:
    ended = run("pipeline", "run", *jobs, "--data", str(tmp_path / "lake"))
    assert ended.code == ExitCode.FAILED
    assert f"there is no table {needed} yet: run {needed} first" in ended.err


def test_help_names_every_job(run: Run) -> None:
    ended = run("pipeline", "run", "--help")
    assert all(name in ended.out for name in JOBS)
    assert list(pipeline.JOBS) == list(JOBS)


def test_the_cause_is_the_last_python_error_in_what_spark_tells() -> None:
    told = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "x.py", line 71, in initialOffset\n'
        "respool.client.arrow.errors.UnknownTopic: there is no topic 'rides'\n"
        " SQLSTATE: 38000\n"
        "=== Streaming Query ===\n"
        "Identifier: bronze [id = 1]\n"
    )
    assert cause_of(told) == "there is no topic 'rides' (UnknownTopic)"
    # Without the traceback, it is in the middle of a line.
    told = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown: "
        "respool.client.kafka.errors.UnknownTopic: there is no topic 'rides': create it\n SQLSTATE: 38000\n"
    )
    assert cause_of(told) == "there is no topic 'rides': create it (UnknownTopic)"
    assert cause_of("org.apache.spark.SparkException: Job aborted.\n\tat x") == (
        "org.apache.spark.SparkException: Job aborted."
    )
    assert cause_of("\n") == "Spark failed without an error message"


def test_a_query_that_ended_ends_the_run_before_the_next_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Ended:
        name, isActive = "bronze", False  # noqa: N815 - Spark's name

        def exception(self) -> None:
            return None

        def stop(self) -> None:
            pass

    ran: list[str] = []

    def job(name: str) -> Callable[..., JobOutcome]:
        def run(*_: object) -> JobOutcome:
            ran.append(name)
            return JobOutcome(job=name, counts={})

        return run

    monkeypatch.setattr(pipeline_run, "job", job)
    monkeypatch.setattr(pipeline_run, "_start", lambda *_: [Ended()])
    run: Any = pipeline_run._run_continuously
    shown = Lines(lambda _text: None, now=lambda: 0.0)
    with pytest.raises(OperatorError, match="bronze has ended"):
        run(None, ["bronze", "silver"], PipelineSettings(data=tmp_path), shown, 1)
    assert ran == ["bronze"]


@pytest.mark.parametrize("command", ["report", "clean"])
def test_tables_are_reported_and_cleaned_without_spark(tmp_path: Path, command: str) -> None:
    """They asked for pyspark, numba and confluent_kafka, which they do not use."""
    now = datetime.now(UTC)
    rows = pa.table(
        {
            "window_start": [now],
            "city": ["Köln"],
            "requested": [3],
            "assigned": [2],
            "finished": [2],
            "cancelled": [0],
            "surge_mean": [1.0],
            "surge_max": [1.0],
            "date": [now.date()],
        }
    )
    tables = tmp_path / "tables"
    write_deltalake(str(tables / "gold_cities"), rows, partition_by=["date"])
    program = (
        "import sys\n"
        "for name in ('pyspark', 'py4j', 'numba', 'llvmlite', 'confluent_kafka', 'duckdb'):\n"
        "    sys.modules[name] = None\n"
        "from respool.cli.main import main\n"
        f"raise SystemExit(main(['pipeline', {command!r}, '--data', {str(tmp_path)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reports" / "pipeline.html").exists() == (command == "report")


@pytest.mark.parametrize("by_variable", [False, True])
def test_security_of_options_or_a_file_reaches_the_jobs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_variable: bool
) -> None:
    found: list[PipelineSettings] = []
    monkeypatch.setattr(
        pipeline_run, "run", lambda _jobs, settings, *_, **__: found.append(settings)
    )
    security = Security(login=Login(mechanism="SCRAM-SHA-512", username="app", password="open up"))
    if by_variable:
        file = tmp_path / "client.properties"
        file.write_text(
            "bootstrap.servers=kafka-1:9093\nclient.id=night-job\nrequest.timeout.ms=61000\n"
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=app\n"
            "sasl.password=open up\n"
        )
        monkeypatch.setenv("RESPOOL_CLIENT_CONFIG", str(file))
        monkeypatch.delenv("RESPOOL_BROKER", raising=False)
        arguments = []
        client = {"client_id": "night-job", "request_timeout_ms": 61_000}
    else:
        file = tmp_path / "password"
        file.write_text("open up\n")
        arguments = [
            *("--bootstrap", "kafka-1:9093, ,", "--security-protocol", "SASL_PLAINTEXT"),
            *("--sasl-mechanism", "SCRAM-SHA-512", "--username", "app"),
            *("--password-file", str(file)),
        ]
        client = {}
    ended = run("pipeline", "run", "bronze", "--data", str(tmp_path), *arguments)
    assert ended.code == 0, ended.err
    assert [(one.bootstrap, one.security, one.client) for one in found] == [
        ("kafka-1:9093", security, client)
    ]
    assert "open up" not in repr(found)


@pytest.mark.parametrize("command", ["report", "clean"])
def test_a_damaged_table_is_named_in_one_sentence(run: Run, tmp_path: Path, command: str) -> None:
    """It was a traceback of 74 lines, and none of them named the table."""
    path = tmp_path / "tables" / "gold_cities"
    write_deltalake(str(path), pa.table({"city": ["Köln"]}))
    (path / "_delta_log" / f"{0:020}.json").write_text("{broken")
    ended = run("pipeline", command, "--data", str(tmp_path))
    assert ended.code == ExitCode.FAILED
    assert ended.err.startswith("error: the table gold_cities cannot be read: ")
    assert len(ended.err.splitlines()) == 1
    assert "delete the table" in ended.err
