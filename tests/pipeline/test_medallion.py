"""Bronze, silver and gold on seeded rides, held against plain Python and DuckDB."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.making import DAY_MS, Rides, milliseconds, rides, settings, sound_events
from respool.pipeline import bronze, gold, silver
from respool.pipeline.events import judged, sound, without_repeats
from respool.pipeline.jobs import Silent
from respool.pipeline.table_schemas import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.job_settings import PipelineSettings

READERS = {number: f"rides/{number} an-id" for number in range(3)}


@pytest.fixture(scope="module")
def two_days() -> Rides:
    return rides()


def load(spark: "SparkSession", told: "PipelineSettings", made: Rides, *, batches: int = 1) -> None:
    """Into bronze, as micro-batches would bring them."""
    lake = table(told, "bronze")
    size = -(-len(made.rows) // batches)
    for start in range(0, len(made.rows), size):
        rows = made.rows[start : start + size]
        bronze.add_batch(lake, made.frame(spark, rows), readers=READERS)


def stored(told: "PipelineSettings", name: str) -> list[dict[str, Any]]:
    """As anybody reads the table, without Spark."""
    found: list[dict[str, Any]] = table(told, name).delta().to_pyarrow_table().to_pylist()
    return found


def test_bronze_holds_every_event_as_it_came(
    spark: "SparkSession", two_days: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    load(spark, told, two_days, batches=3)
    found = {(one["partition"], one["offset"]): one for one in stored(told, "bronze")}
    assert len(found) == len(two_days.rows) == table(told, "bronze").delta().count()
    for row in two_days.rows:
        seen = found[row["partition"], row["offset"]]
        assert (seen["key"], seen["value"]) == (row["key"], row["value"])
        assert seen["timestamp"] == row["timestamp"]
        assert seen["headers"] == row["headers"]
        assert seen["date"] == row["timestamp"].date()


def test_silver_and_quarantine_split_events_as_plain_python_does(
    spark: "SparkSession", two_days: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    load(spark, told, two_days, batches=3)
    outcome = silver.run(spark, told, Silent())
    events, aside = sound_events(two_days.rows, lateness_ms=told.lateness_ms)
    found = stored(told, "silver")
    assert len(found) == len(events)
    for one in found:
        event = events[one["event_id"]]
        assert one["ride_id"] == event["ride_id"]
        assert milliseconds(one["event_time"]) == milliseconds(
            datetime.fromisoformat(event["event_time"])
        )
        assert one["fare"] == (None if event["fare"] is None else Decimal(str(event["fare"])))
        assert (one["lat"], one["city"]) == (event["lat"], event["city"])
    put_aside = stored(told, "quarantine")
    assert {(one["partition"], one["offset"]): one["reason"] for one in put_aside} == aside
    # All that the generator broke is there by the kind of its trouble, and by nothing else.
    patterns = Counter(
        row["pattern"] for row in two_days.truth.to_pylist() if row["kind"] == "malformed"
    )
    patterns["not_json"] += patterns.pop("truncated")
    assert patterns == Counter(one["reason"] for one in put_aside if one["reason"] != "late")
    assert outcome.counts["repeats left out"] == len(two_days.rows) - len(found) - len(put_aside)
    assert outcome.counts["repeats left out"] > 0


def test_silver_is_the_same_however_bronze_was_cut_and_whenever_it_ran(
    spark: "SparkSession", two_days: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path, rows_per_batch=1_000)
    half = len(two_days.rows) // 2
    lake = table(told, "bronze")
    for rows in (two_days.rows[:half], two_days.rows[half:]):
        bronze.add_batch(lake, two_days.frame(spark, rows), readers=READERS)
        silver.run(spark, told, Silent())
    again = silver.run(spark, told, Silent())
    assert set(again.counts.values()) == {0}
    events, aside = sound_events(two_days.rows, lateness_ms=told.lateness_ms)
    assert sorted(one["event_id"] for one in stored(told, "silver")) == sorted(events)
    assert len(stored(told, "quarantine")) == len(aside)


def test_gold_sums_what_plain_python_sums(
    spark: "SparkSession", two_days: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    typed = without_repeats(sound(judged(two_days.frame(spark), told))).persist()
    events, _aside = sound_events(two_days.rows, lateness_ms=told.lateness_ms)
    asked: Counter[Any] = Counter()
    driven: Counter[Any] = Counter()
    for event in events.values():
        happened = datetime.fromisoformat(event["event_time"]).astimezone(UTC)
        hour = happened.replace(minute=0, second=0, microsecond=0)
        if event["event_type"] == "requested":
            asked[hour, event["city"]] += 1
        if event["event_type"] == "finished":
            driven[happened.date(), event["driver_id"], event["city"]] += event["duration_s"]
    cities = {
        (one["window_start"].replace(tzinfo=UTC), one["city"]): one["requested"]
        for one in gold.cities(typed, told.window_ms).toArrow().to_pylist()
        if one["requested"]
    }
    assert cities == asked
    drivers = {
        (one["date"], one["driver_id"], one["city"]): one["driving_s"]
        for one in gold.drivers(typed, told.window_ms).toArrow().to_pylist()
    }
    assert drivers == driven
    fares = {
        (one["window_start"].replace(tzinfo=UTC), one["city"], one["payment_method"]): one["fares"]
        for one in gold.fares(typed, told.window_ms).toArrow().to_pylist()
    }
    assert fares == paid_by_hour(events)


def test_gold_goes_on_after_a_restart_and_late_events_change_their_window(
    spark: "SparkSession", two_days: Rides, tmp_path: Path
) -> None:
    # Open for the whole history: nothing is too late, in however many batches it comes.
    told = settings(tmp_path, lateness_ms=5 * DAY_MS)
    half = len(two_days.rows) // 2
    silver_table = table(told, "silver")
    typed = without_repeats(sound(judged(two_days.frame(spark), told))).persist()
    middle = two_days.rows[half]["timestamp"].isoformat()
    for part in (f"recorded_at < '{middle}'", f"recorded_at >= '{middle}'"):
        silver_table.append(typed.where(part).coalesce(1), positions={})
        (query,) = gold.start(spark, told, Silent(), every_ms=None, marts=(gold.FARES,))
        query.awaitTermination()
    events, _aside = sound_events(two_days.rows, lateness_ms=told.lateness_ms)
    fares = {
        (one["window_start"], one["city"], one["payment_method"]): one["fares"]
        for one in stored(told, "gold_fares")
    }
    assert fares == paid_by_hour(events)
    assert len(fares) == len(stored(told, "gold_fares"))


def paid_by_hour(events: dict[str, dict[str, Any]]) -> dict[Any, Decimal]:
    paid: dict[Any, Decimal] = defaultdict(Decimal)
    for event in events.values():
        if event["event_type"] == "paid":
            happened = datetime.fromisoformat(event["event_time"]).astimezone(UTC)
            hour = happened.replace(minute=0, second=0, microsecond=0)
            paid[hour, event["city"], event["payment_method"]] += Decimal(str(event["fare"]))
    return paid
