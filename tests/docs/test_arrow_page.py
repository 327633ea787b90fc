"""docs/arrow.md and the example of rides, run as they are written."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import Message
from support.topics import Topics

pytestmark = pytest.mark.clients

HOUR_MS = 3_600_000


def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER_SETTINGS) as broker:
        outputs = [run_block(block, broker) for block in blocks("docs/arrow.md")]
    _, read, handed_on, queried, kept, tagged, _, refused, counted, followed = outputs[:10]
    assert read == "12 rides of 7 riders\n"
    assert handed_on == "12 12 [(12,)]\n"
    assert [line.split("│")[1:4] for line in queried.splitlines()[4:6]] == [
        [" Bonn    ", "     6 ", "   42.0 "],
        [" Köln    ", "     6 ", "   36.0 "],
    ]
    assert kept == "['key', 'offset']\n"
    assert tagged == "10 rides of Bonn\n"
    assert "begin at its end with since='latest'" in refused
    assert counted == "[(20,)]\n"
    assert followed == "None\n"
    _, wrote, shared_out, _, ended, unwritten = outputs[10:]
    assert wrote.startswith("3 rows in ")
    assert " 6 in (offsets " in shared_out
    assert ended.splitlines() == [
        "Ended(is_commit=True, was_before=False)",
        "Ended(is_commit=True, was_before=True)",
    ]
    assert unwritten == (
        "nothing was written: topic 'taxi_fares' has no partition 7; it has 3: 0 to 2\n"
    )


def test_the_example_counts_the_rides_of_three_days(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    rides = [
        Message(
            value=json.dumps({"city": city, "fare": 2.5}).encode(),
            timestamp_ms=now_ms - hours * HOUR_MS,
        )
        for city, hours in [("Bonn", 100), ("Köln", 70), ("Bonn", 50), ("Köln", 1), ("Köln", 80)]
    ]
    with BrokerProcess(tmp_path / "data") as broker:
        Topics(broker.address).create("rides")
        ConfluentClient().write(broker.address, ("rides", 0), rides)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/rides_of_three_days.py"), broker.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1:4] for line in done.stdout.splitlines() if "." in line]
    assert [[one.strip() for one in row] for row in rows] == [
        ["Köln", "2", "5.0"],
        ["Bonn", "1", "2.5"],
    ]
