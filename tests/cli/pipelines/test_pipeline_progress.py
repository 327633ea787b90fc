"""What `respool pipeline run` tells where it has no terminal: enough to see that it moves, and never a flood."""

import json
import threading
from typing import Any

import pytest

from respool.cli import output
from respool.cli.pipelines import pipeline_progress
from respool.cli.pipelines.pipeline_progress import Bar, Lines, messages_behind, shown_progress


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.noted: list[str] = []
        self.lines = Lines(self.noted.append, now=lambda: self.now)

    def pass_seconds(self, seconds: int, behind: dict[str, int] | None = None) -> None:
        for _ in range(seconds):
            self.now += 1
            self.lines.tick(behind or {})


def test_a_job_tells_what_it_has_moved_and_how_far_it_is_behind() -> None:
    world = World()
    bronze = world.lines.of("bronze")
    bronze.step("bronze: reading the topic")
    assert world.noted == ["bronze: reading the topic"]
    bronze.rows(2_000)
    bronze.rows(500)
    world.pass_seconds(10, {"bronze": 1_500, "other": 1})
    assert world.noted[1:] == [
        "bronze: reading the topic: 2,500 rows in 2 batches, 1,500 messages behind, 10 s"
    ]
    bronze.rows(1)
    world.lines.ended("bronze", is_final=True)
    silver = world.lines.of("silver")
    silver.step("silver: reading bronze")
    silver.rows(1)
    world.pass_seconds(10)
    assert world.noted[2:] == [
        "silver: reading bronze",
        "silver: reading bronze: 1 row in 1 batch, 10 s",
    ]


def test_a_thousand_batches_in_a_minute_are_six_lines() -> None:
    world = World()
    warehouse = world.lines.of("warehouse")
    for _ in range(60):
        for _ in range(17):
            warehouse.step("warehouse: events to rides")
            warehouse.rows(10)
        world.pass_seconds(1)
    assert len(world.noted) == 1 + 6
    assert world.noted[-1] == "warehouse: events to rides: 10,200 rows in 1,020 batches, 60 s"


def test_without_news_a_running_job_has_a_line_per_minute_and_one_that_has_ended_none() -> None:
    world = World()
    world.lines.of("gold").step("gold: windows of silver")
    world.pass_seconds(120)
    assert world.noted[1:] == [
        "gold: windows of silver: 0 rows in 0 batches, 60 s",
        "gold: windows of silver: 0 rows in 0 batches, 120 s",
    ]
    world.lines.ended("gold", is_final=True)
    world.pass_seconds(600)
    assert len(world.noted) == 3


def test_a_query_that_goes_on_after_its_job_tells_of_new_rows() -> None:
    world = World()
    bronze = world.lines.of("bronze")
    bronze.step("bronze: reading the topic")
    world.lines.ended("bronze", is_final=False)
    world.pass_seconds(60)
    bronze.rows(7)
    world.pass_seconds(1, {"bronze": 0})
    assert world.noted[1:] == [
        "bronze: reading the topic: 7 rows in 1 batch, 0 messages behind, 61 s"
    ]


def test_messages_behind_are_counted_over_topics_and_partitions() -> None:
    latest = json.dumps({"rides": {"id": "a", "offsets": {"0": 10, "1": 20}}, "new": {"0": 5}})
    end = json.dumps({"rides": {"id": "a", "offsets": {"0": 4, "1": 21}}})
    assert messages_behind(latest, end) == 6 + 0 + 5
    # Positions in tables, and of queries that have not read yet.
    assert messages_behind('{"version": 3, "table": "x"}', '{"version": 1, "table": "x"}') is None
    assert messages_behind(None, end) is None
    assert messages_behind("null", "null") is None


def test_a_terminal_has_its_bar_and_a_log_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress() as shown:
        shown.of("bronze").step("bronze: reading the topic")
    told = capsys.readouterr()
    assert told.err.splitlines() == ["Spark starts", "bronze: reading the topic"]
    assert told.out == ""
    monkeypatch.setattr(output, "is_error_terminal", lambda: True)
    with shown_progress() as shown:
        assert isinstance(shown, Bar)


def test_lines_are_ticked_while_a_session_is_watched_and_not_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticked = threading.Event()

    def look(_spark: object) -> dict[str, int]:
        ticked.set()
        return {}

    monkeypatch.setattr(pipeline_progress, "_TICK_SECONDS", 0.001)
    monkeypatch.setattr(pipeline_progress, "messages_behind_of", look)
    world = World()
    no_session: Any = None
    with world.lines.watching(no_session):
        assert ticked.wait(30)
    assert "progress" not in [one.name for one in threading.enumerate()]
