"""The sink's half of docs/spark.md, run as it is written."""

from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from respool.spark.sink.options import NAMES
from support.broker_process import BrokerProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_tour_of_the_sink_works_as_it_is_written(tmp_path: Path) -> None:
    topics, _, tour = blocks("docs/spark.md")
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        run_block(topics, broker)
        printed = run_block(tour, broker, timeout_s=280).replace(" ", "")
    assert "|anna|EUR12.50|" in printed
    assert "|ben|EUR8.00|" in printed


def test_every_option_of_the_sink_is_on_the_page() -> None:
    text = PAGE.read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []
