"""`respool pipeline run --continuous`: jobs that stay up, take what comes, and end with Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import TableNotFoundError

from pipeline.making import PARTITIONS, TOPIC, publish, rides, settings
from respool.cli.main import main
from respool.pipeline.job_settings import PipelineSettings
from respool.pipeline.jobs import TableUnreadable
from respool.pipeline.table_schemas import table
from respool.testing import Broker
from support.spark import shared
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESPOOL = [sys.executable, "-c", "import sys; from respool.cli.main import main; sys.exit(main())"]


class Topic:
    """Half of the events are in it from the start, the others come when jobs have read those."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        broker.create_topic(TOPIC, partitions=PARTITIONS, retention_ms=-1)
        self.told = settings(folder, bootstrap=broker.bootstrap)
        made = rides(days=1, count=200, malformed_share=0, duplicate_share=0, late_share=0)
        self.rows = made.rows
        self._half = len(self.rows) // 2
        publish(self.told, self.rows[: self._half])

    @property
    def words(self) -> list[str]:
        """The command."""
        return [
            *("pipeline", "run", "bronze", "silver", "--continuous", "--every", "1s"),
            *("--master", "local[2]", "--data", str(self.told.data), "-b", self.told.bootstrap),
        ]

    def follow(self, is_running: Callable[[], bool]) -> None:
        """Until all is in both tables."""
        wait_for_rows(self.told, self._half, is_running)
        publish(self.told, self.rows[self._half :])
        wait_for_rows(self.told, len(self.rows), is_running)


def rows_of(told: PipelineSettings, name: str) -> int:
    try:
        return int(table(told, name).delta().count())
    except (TableNotFoundError, TableUnreadable, FileNotFoundError):
        return 0


def wait_for_rows(told: PipelineSettings, wanted: int, is_running: Callable[[], bool]) -> None:
    def are_there() -> bool:
        assert is_running()
        return rows_of(told, "bronze") == rows_of(told, "silver") == wanted

    wait_until(are_there, f"{wanted} rows in bronze and silver", seconds=120)


def test_jobs_that_go_on_take_what_comes_and_end_with_ctrl_c(
    spark: "SparkSession", broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(broker, tmp_path)
    ended: list[int] = []
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            topic.follow(is_running=lambda: not ended)
        except BaseException as error:
            failures.append(error)
        finally:
            if not ended:
                os.kill(os.getpid(), signal.SIGINT)

    follower = Thread(target=follow)
    with shared(spark, folder=tmp_path):
        follower.start()
        try:
            ended.append(main(topic.words))
        finally:
            ended.append(-1)
            follower.join()
    said = capfd.readouterr().err
    assert not failures, said
    assert ended[0] == 0, said
    assert "Ctrl-C ends it" in said
    assert rows_of(topic.told, "bronze") == len(topic.rows)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.spark
@pytest.mark.xdist_group("spark-processes")
def test_a_process_that_goes_on_ends_with_ctrl_c(broker: Broker, tmp_path: Path) -> None:
    topic = Topic(broker, tmp_path)
    with going_on(topic.words) as process:
        topic.follow(is_running=lambda: process.poll() is None)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "Ctrl-C ends it" in said
    assert rows_of(topic.told, "bronze") == len(topic.rows)


@contextmanager
def going_on(words: list[str]) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [*RESPOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
