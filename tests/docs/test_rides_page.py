"""docs/rides.md, run as it is written, and its tables held against what is generated."""

import json
import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.rides.outcomes import EventType, Fraud, Malformed
from support.broker_process import BrokerProcess

PAGE = (ROOT / "docs/rides.md").read_text()


def first_cells(heading: str) -> list[str]:
    """The names in the first column of the table that begins so."""
    rows = PAGE.split(f"| {heading}|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        generated, printed, patterns, detected = [
            run_block(block, broker) for block in blocks("docs/rides.md")
        ]
    rows = [line.split("\t") for line in generated.splitlines()]
    assert sum(int(number) for what, _, number in rows if what == "events") == 20_000
    events = [json.loads(json.loads(line)["value"]) for line in printed.splitlines()]
    assert len(events) == 2
    assert list(events[0]) == first_cells("field | type | ")
    assert all(pattern in patterns for pattern in ("fake_gps", "collusion", "fare_inflation"))
    assert detected == "[(True, 0)]\n"


def test_the_page_names_every_type_kind_and_pattern() -> None:
    assert first_cells("malformed | the value ") == [one.name.lower() for one in Malformed if one]
    assert first_cells("fraud | what shows ") == [one.name.lower() for one in Fraud if one]
    assert all(f"`{one.name.lower()}`" in PAGE for one in EventType)
