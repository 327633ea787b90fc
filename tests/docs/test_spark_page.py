"""docs/spark.md, run as it is written."""

from pathlib import Path
from typing import TYPE_CHECKING

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from docs.shared_spark import run_block_shared
from respool.spark.source.source_options import NAMES
from support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_the_tour_of_the_source_works_as_it_is_written(
    spark: "SparkSession", tmp_path: Path
) -> None:
    topics, tour = blocks("docs/spark.md")[:2]
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        run_block(topics, broker)
        printed = run_block_shared(tour, broker, spark)
    assert "|anna|" in printed.replace(" ", "")
    assert "43.7" in printed
    assert printed.splitlines()[-3:] == ["2 of Anna's", "1 in Bonn", "3 in the stream"]


def test_every_option_of_the_source_is_on_the_page() -> None:
    text = PAGE.read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []
