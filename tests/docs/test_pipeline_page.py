"""docs/pipeline.md, run as it is written, and its tables held against the code."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from demo import spark_act

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from docs.shared_spark import run_block_shared
from respool.pipeline.jobs import JOBS
from respool.pipeline.table_schemas import SCHEMAS
from support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs/pipeline.md").read_text()
TOUR = blocks("docs/pipeline.md")


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(spark: "SparkSession", tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        check([run_block_shared(block, broker, spark) for block in TOUR], tmp_path)
        check_as_the_demo_does(broker.address, tmp_path)


@pytest.mark.clients
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_tour_works_with_a_process_and_a_spark_for_each_command(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        check([run_block(block, broker, timeout_s=600) for block in TOUR], tmp_path)


def check(outputs: list[str], folder: Path) -> None:
    loaded, tables, scored, replayed, warehouse = outputs
    assert "bronze\tevents in the table\t12000" in loaded
    assert "gold\ttoo late for their window\t0" in loaded
    assert "negative_fare" in tables
    assert '"model":"v1"' in scored
    assert re.search(r"replay-fraud\tagreement\t0\.\d+", replayed)
    # A new model, trained on what came before the window, finds most of the fraud in it.
    recall = re.search(r"replay-fraud\trecall new\t(\d\.\d+)", replayed)
    assert recall is not None
    assert float(recall[1]) > 0.5
    assert "warehouse\toffsets read\t12000" in warehouse
    assert (folder / "lake" / "reports" / "pipeline.html").exists()


def check_as_the_demo_does(address: str, folder: Path) -> None:
    """The demo's second act runs the same jobs: what it counts is right here, too, and it keeps these reports."""
    reports = spark_act.keep_reports(folder / "lake", folder / "kept")
    assert all("<svg" in one.read_text() for one in reports)
    kept, replayed = (one.stem for one in reports)
    assert kept == "pipeline"
    # Named for its model and its window.
    name, since_ms, _ = replayed.rsplit("-", 2)
    assert name == "replay-v2"
    counts = spark_act.counted(
        address,
        folder / "lake",
        folder / "truth.parquet",
        events=12_000,
        since_ms=int(since_ms),
    )
    assert len(counts) == 7
    assert {what: seen for what, (seen, _) in counts.items()} == {
        what: expected for what, (_, expected) in counts.items()
    }


def test_the_page_names_every_job_table_and_reason() -> None:
    for name in (*JOBS, *SCHEMAS):
        assert f"`{name}`" in PAGE
    told = set(
        re.findall(r'_found\(\s*"(\w+)"', (ROOT / "src/respool/pipeline/events.py").read_text())
    )
    assert all(f"`{reason}`" in PAGE for reason in told)
    assert len(told) == 10
