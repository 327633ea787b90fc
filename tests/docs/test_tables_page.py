"""The tour of docs/tables.md, run as it is written; and its table of settings."""

import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.model.tables.table_settings import TABLE_SETTING_NAMES
from support.broker_process import BrokerProcess

PAGE = "docs/tables.md"


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        outputs = [
            run_block(block, broker, timeout_s=180)
            for block in blocks(PAGE)
            if block.kind == "tour"
        ]
    _, table, rejected, _, both, status = outputs
    assert table == "1 Oslo 12.5 0 0\n2 Bergen None 0 1\n"
    assert rejected == "(0, 2, 'null', 'not a JSON object')\n"
    assert both == '1 Oslo None\n2 Bergen None\n3 Oslo {"riders": 4}\n'
    assert status == "0\t4\t0\t4\t0\n"


def test_the_page_has_every_setting() -> None:
    page = (ROOT / PAGE).read_text().split("\n## Settings\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(respool\.table[a-z.]*)`", " ".join(rows))) == TABLE_SETTING_NAMES
