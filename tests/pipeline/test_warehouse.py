"""The warehouse on seeded rides, held against a plain loop over the events; and whatever happens, the same table."""

from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.making import PARTITIONS, Rides, rides, settings, sound_events
from respool.pipeline import warehouse
from respool.pipeline.table_schemas import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.job_settings import PipelineSettings

EVER_MS = 10**12


@pytest.fixture(scope="module")
def made() -> Rides:
    return rides(count=1_500, late_share=0.05)


def load(
    spark: "SparkSession", told: "PipelineSettings", made: Rides, rows: list[dict[str, Any]]
) -> None:
    positions = {
        f"rides/{number}": 1 + max(one["offset"] for one in rows if one["partition"] == number)
        for number in range(PARTITIONS)
    }
    frame = made.frame(spark, rows)
    warehouse.load(spark, table(told, warehouse.TABLE), frame, told, positions=positions)


def stored(told: "PipelineSettings") -> list[dict[str, Any]]:
    found = table(told, warehouse.TABLE).delta().to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda one: str(one["ride_id"]))


def expected(made: Rides) -> dict[str, dict[str, Any]]:
    """Ride -> what its events say, by a plain loop."""
    events, _ = sound_events(made.rows, lateness_ms=EVER_MS)
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for event in events.values():
        ride = found[event["ride_id"]]
        ride[f"{event['event_type']}_at"] = datetime.fromisoformat(event["event_time"])
        for name in ("fare", "distance_km", "duration_s", "driver_id"):
            if event[name] is not None:
                ride[name] = event[name]
    return found


def test_each_ride_is_a_row_with_what_its_events_say_wherever_the_log_was_cut(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    third = len(made.rows) // 3
    for rows in (made.rows[:third], made.rows[third:]):
        load(spark, told, made, rows)
    found, wanted = stored(told), expected(made)
    assert [one["ride_id"] for one in found] == sorted(wanted)
    for one in found:
        ride = wanted[one["ride_id"]]
        moments = {name: moment for name, moment in ride.items() if name.endswith("_at")}
        assert {name: one[name] for name in moments} == moments
        assert one["events"] == len(moments)
        assert one["date"] == min(moments.values()).date()
        assert one["fare"] == (None if "fare" not in ride else Decimal(str(ride["fare"])))
        assert one["driver_id"] == ride.get("driver_id")
        assert one["duration_s"] == ride.get("duration_s")


def test_a_load_that_is_done_again_changes_no_row(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    half = len(made.rows) // 2
    load(spark, told, made, made.rows[:half])
    load(spark, told, made, made.rows[half:])
    once = stored(told)
    load(spark, told, made, made.rows)
    assert stored(told) == once


def test_steps_cover_every_offset_once() -> None:
    steps = warehouse.steps({0: 5, 1: 0, 2: 7}, {0: 105, 1: 31, 2: 7}, 40)
    assert len(steps) == 4
    assert steps[0][0] == {0: 5, 1: 0, 2: 7}
    assert steps[-1][1] == {0: 105, 1: 31, 2: 7}
    assert all(before[1] == after[0] for before, after in pairwise(steps))


def test_there_are_no_steps_where_nothing_is_new() -> None:
    assert warehouse.steps({0: 5}, {0: 5}, 40) == []
    # A topic whose log begins beyond its last committed message is empty.
    assert warehouse.steps({0: 5}, {0: 3}, 40) == []
