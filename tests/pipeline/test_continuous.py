"""`respool pipeline run --continuous`: jobs that stay up, take what comes, and end with Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError

from pipeline.making import PARTITIONS, TOPIC, publish, rides, settings
from respool.pipeline.job_settings import PipelineSettings
from respool.pipeline.table_schemas import table
from respool.testing import Broker
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

RESPOOL = [sys.executable, "-c", "import sys; from respool.cli.main import main; sys.exit(main())"]


@contextmanager
def going_on(told: PipelineSettings, *jobs: str) -> "Iterator[subprocess.Popen[str]]":
    words = ["pipeline", "run", *jobs, "--continuous", "--every", "1s", "--master", "local[2]"]
    words += ["--data", str(told.data), "-b", told.bootstrap]
    process = subprocess.Popen(
        [*RESPOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rows_of(told: PipelineSettings, name: str) -> int:
    try:
        return int(table(told, name).delta().count())
    except (TableNotFoundError, DeltaError, FileNotFoundError):
        return 0


def wait_for_rows(told: PipelineSettings, wanted: int, process: "subprocess.Popen[str]") -> None:
    def are_there() -> bool:
        assert process.poll() is None, process.communicate()
        return rows_of(told, "bronze") == rows_of(told, "silver") == wanted

    wait_until(are_there, f"{wanted} rows in bronze and silver", seconds=120)


def test_jobs_that_go_on_take_what_comes_and_end_with_ctrl_c(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic(TOPIC, partitions=PARTITIONS, retention_ms=-1)
    told = settings(tmp_path, bootstrap=broker.bootstrap)
    rows = rides(days=1, count=200, malformed_share=0, duplicate_share=0, late_share=0).rows
    half = len(rows) // 2
    publish(told, rows[:half])
    with going_on(told, "bronze", "silver") as process:
        wait_for_rows(told, half, process)
        publish(told, rows[half:])
        wait_for_rows(told, len(rows), process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "Ctrl-C ends it" in said
    assert rows_of(told, "bronze") == len(rows)
