"""The tour of docs/partitions.md, run as it is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.quick_broker import quick_broker

PAGE = "docs/partitions.md"


class InProcess(NamedTuple):
    address: str
    data: Path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    with quick_broker(BROKER_SETTINGS) as running:
        yield InProcess(running.bootstrap, tmp_path / "data")


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(broker: InProcess) -> None:
    _, read, left, active, retired = [run_block(block, broker) for block in blocks(PAGE)]
    assert [line.split() for line in read.splitlines()] == [["12", "paid"], ["12", "requested"]]
    rows = [line.split("\t") for line in left.splitlines()]
    assert [(row[2], row[3]) for row in rows] == [("3", "0"), ("4", "1"), ("5", "2")]
    assert all(row[4] == row[5] for row in rows)
    assert active == "[]\n"
    assert retired == "3\n"
