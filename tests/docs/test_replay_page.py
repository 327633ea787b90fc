"""The tour of docs/replay.md, run as it is written."""

import json
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        outputs = [run_block(block, broker) for block in blocks("docs/replay.md")]
    _, read, looked, moved, copied, programmed, placed, checked, listed = outputs
    assert read.splitlines() == [f"{days} days ago" for days in (5, 4, 3, 2, 1)]
    assert "trip-billing\tEmpty\tclassic" in looked
    assert moved.splitlines() == ["trips\t0\t5\t2\t3\t0"] * 2 + ["trip-billing\ttrips\t0\t2\t5\t3"]
    assert [line.split()[1] for line in copied.splitlines()] == ["trip-4", "trip-3", "trip-2"]
    assert programmed.splitlines() == ["3 messages in the range", "done 2"]
    assert placed.startswith("trips\t0\t2\t4\t2\n")
    assert checked.splitlines() == ["3 days ago", "2 days ago"]
    table, _, document = listed.partition("{")
    assert [line.split("\t")[1] for line in table.splitlines()] == [
        "reset",
        "replay",
        "replay",
        "replay",
    ]
    assert [act["state"] for act in json.loads("{" + document)["replays"]] == ["done"] * 4
