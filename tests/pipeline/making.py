"""Rides for the pipeline's tests: the same rows in Spark's form and as plain Python, made from a seed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
from pyspark.sql.types import StructType

import respool
from respool.pipeline.job_settings import PipelineSettings
from respool.pipeline.table_schemas import schema_of, table
from respool.rides.records import RecordMaker
from respool.rides.ride_plan import RidePlan
from respool.rides.ride_stream import RideStream
from respool.rides.truth import truth_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNTIL_MS = 1_763_164_800_000  # 2025-11-15T00:00:00Z
DAY_MS = 86_400_000
PARTITIONS = 3
TOPIC = "rides"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rides:
    # As a topic holds them: rows of dicts in the order of arrival.
    rows: list[dict[str, Any]]
    truth: pa.Table

    def frame(
        self, spark: "SparkSession", rows: "Iterable[dict[str, Any]] | None" = None
    ) -> "DataFrame":
        return frame(spark, self.rows if rows is None else list(rows))

    def truth_file(self, folder: Path) -> Path:
        from pyarrow import parquet

        path = folder / "truth.parquet"
        parquet.write_table(self.truth, path)
        return path


def rides(*, days: float = 2, count: int = 3_000, seed: int = 7, **changed: Any) -> Rides:
    wanted: dict[str, Any] = {
        "malformed_share": 0.02,
        "duplicate_share": 0.02,
        "late_share": 0.02,
        "fraud_share": 0.08,
        **changed,
    }
    plan = RidePlan(
        seed=seed,
        start_ms=UNTIL_MS - int(days * DAY_MS),
        until_ms=UNTIL_MS,
        count=count,
        **wanted,
    )
    maker = RecordMaker(plan.cities)
    rows: list[dict[str, Any]] = []
    truths = []
    ends = [0] * PARTITIONS
    for piece in RideStream(plan).history():
        truths.append(truth_of(piece))
        for record in maker.make(piece).to_pylist():
            partition = crc32(record["key"]) % PARTITIONS
            rows.append(
                {
                    "topic": TOPIC,
                    "partition": partition,
                    "offset": ends[partition],
                    "timestamp": record["timestamp"],
                    "timestampType": 0,
                    "key": record["key"],
                    "value": record["value"],
                    "headers": record["headers"],
                }
            )
            ends[partition] += 1
    return Rides(rows=rows, truth=pa.concat_tables(truths))


def frame(spark: "SparkSession", rows: list[dict[str, Any]]) -> "DataFrame":
    """As `format("respool")` gives them: bronze without the day."""
    schema = StructType([field for field in schema_of("bronze") if field.name != "date"])
    data = [tuple(row[name] for name in schema.fieldNames()) for row in rows]
    return spark.createDataFrame(data, schema)


def settings(folder: Path, **changed: Any) -> PipelineSettings:
    return PipelineSettings(data=folder / "lake", topic=TOPIC, **changed)


def publish(told: PipelineSettings, rows: list[dict[str, Any]]) -> None:
    names = ("key", "value", "timestamp", "headers")
    wanted = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    data = pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], wanted)
    respool.write_table(data, TOPIC, bootstrap=told.bootstrap)


def stored(told: PipelineSettings, name: str) -> list[dict[str, Any]]:
    found = table(told, name).delta().to_pyarrow_table().to_pylist()
    return sorted(found, key=str)


def milliseconds(moment: datetime) -> int:
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def sound_events(
    rows: Iterable[dict[str, Any]], *, lateness_ms: int
) -> tuple[dict[str, dict[str, Any]], dict[tuple[int, int], str]]:
    """Plain Python's view: event id -> event of what is sound, and (partition, offset) -> reason of what is not."""
    events: dict[str, dict[str, Any]] = {}
    aside: dict[tuple[int, int], str] = {}
    for row in rows:
        reason, event = _judged(row, lateness_ms)
        if reason is not None:
            aside[row["partition"], row["offset"]] = reason
        elif event is not None:
            events.setdefault(event["event_id"], event)
    return events, aside


def _judged(  # noqa: PLR0911 - a list of reasons
    row: dict[str, Any], lateness_ms: int
) -> tuple[str | None, dict[str, Any] | None]:
    if not row["value"]:
        return "empty", None
    try:
        event = json.loads(row["value"])
    except ValueError:
        return "not_json", None
    if any(event.get(name) is None for name in ("ride_id", "event_type", "event_time", "city")):
        return "missing_field", None
    if not isinstance(event["lat"], float | int) or not isinstance(event["rider_id"], str):
        return "wrong_type", None
    try:
        happened = datetime.fromisoformat(event["event_time"])
    except ValueError:
        return "bad_time", None
    if event["event_type"] == "teleported":
        return "unknown_event", None
    if event["fare"] is not None and event["fare"] < 0:
        return "negative_fare", None
    if milliseconds(row["timestamp"]) - milliseconds(happened) > lateness_ms:
        return "late", None
    return None, event
