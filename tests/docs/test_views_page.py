"""The tour of docs/views.md, run as it is written; and what else the page says."""

import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.model.where import parse_where
from support.broker_process import BrokerProcess

PAGE = "docs/views.md"


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        outputs = [run_block(block, broker) for block in blocks(PAGE)]
    _, tried, created, read, lag, _, changed = outputs
    paid = [f"ride-{number} paid" for number in range(1, 5)]
    assert tried == "bookings\t4\t14\t14\n"
    assert created.splitlines() == [
        "bookings.v.eu\tbookings\tno\ttag = 'paid' and region = 'eu'",
        *paid,
    ]
    assert sorted(read.splitlines()) == paid
    rows = [line.split("\t") for line in lag.splitlines()]
    assert [(row[1], row[-1]) for row in rows] == [("bookings.v.eu", "0")] * 2
    assert "bookings.v.open\twhere\ttag in ('disputed', 'open')" in changed
    assert changed.endswith("refused\n")


def test_every_clause_of_the_page_is_one() -> None:
    table = (ROOT / PAGE).read_text().split("## Conditions")[1].split("\n\n")[2]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    clauses = [clause for row in rows for clause in re.findall(r"`(.*?)`", row)]
    assert len(clauses) > 10
    for clause in clauses:
        parse_where(clause.replace("…", "tag = 'paid'"))
