"""docs/pipeline.md, run as it is written, and its tables held against the code."""

import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.pipeline.catalog import SCHEMAS
from respool.pipeline.jobs import JOBS
from support.broker_process import BrokerProcess

PAGE = (ROOT / "docs/pipeline.md").read_text()


@pytest.mark.clients
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        loaded, tables, scored, replayed, warehouse = [
            run_block(block, broker, timeout_s=600) for block in blocks("docs/pipeline.md")
        ]
    assert "bronze\tevents in the table\t12000" in loaded
    assert "gold\ttoo late for their window\t0" in loaded
    assert "negative_fare" in tables
    assert '"model":"v1"' in scored
    assert re.search(r"replay-fraud\tagreement\t0\.\d+", replayed)
    assert "warehouse\toffsets read\t12000" in warehouse
    assert (tmp_path / "lake" / "reports" / "pipeline.html").exists()


def test_the_page_names_every_job_table_and_reason() -> None:
    for name in (*JOBS, *SCHEMAS):
        assert f"`{name}`" in PAGE
    told = set(
        re.findall(r'_found\(\s*"(\w+)"', (ROOT / "src/respool/pipeline/events.py").read_text())
    )
    assert all(f"`{reason}`" in PAGE for reason in told)
    assert len(told) == 10
