"""The tour of docs/delays.md, run as it is written; and what else the page says."""

import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.model.delays import delay_headers
from respool.timing.cron import parse_schedule
from support.broker_process import BrokerProcess

PAGE = "docs/delays.md"


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        outputs = [run_block(block, broker) for block in blocks(PAGE) if block.kind == "tour"]
    _, read, listed, cancelled, _, _, at_the_end = outputs
    assert read == "at once\nin a second\n"
    check, morning, stats = listed.splitlines()
    assert check == "0\torder-7\torder-7\tonce"
    assert morning == "0\t-\t-\tonce"
    assert stats == "0\t2\t0"
    assert cancelled == morning + "\n"
    assert sorted(at_the_end.splitlines()) == [
        "0\t-\t-\tonce",
        "0\tstretch\t-\tschedule",
        "0\twater\t-\tonce",
    ]


def test_the_page_has_every_header() -> None:
    page = (ROOT / PAGE).read_text()
    named = set(re.findall(r"`(respool-[a-z-]+)`", page))
    known = {
        value
        for name, value in vars(delay_headers).items()
        if name.isupper() and isinstance(value, str)
    }
    internal = {
        "respool-",
        "respool-delivered-position",
        "respool-carried-from",
        "respool-carried-position",
    }
    assert named == known - internal


def test_schedules_of_the_page_are_schedules() -> None:
    page = (ROOT / PAGE).read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `respool-schedule` |")]
    texts = re.findall(r"`(.*?)`", row.split("|")[2])
    assert len(texts) == 3
    for text in texts:
        parse_schedule(text, zone=None, base_ms=0)
