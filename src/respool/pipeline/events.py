"""Parses, validates and deduplicates ride events. Pure: data frames in, data frames out.

Only the content of a row decides, independent of batches, whether it is valid, goes to quarantine with a reason, or is
a duplicate of a valid row.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column, Window
from pyspark.sql import functions as f

from respool.pipeline.table_schemas import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from respool.pipeline.job_settings import PipelineSettings

EVENT_TYPES = ("requested", "assigned", "started", "finished", "paid", "cancelled")
SCHEMA_VERSIONS = ("1",)

# All fields are read as text: a value of the wrong type must be detected, not converted.
_TEXTS = (
    "event_id",
    "ride_id",
    "event_type",
    "event_time",
    "city",
    "rider_id",
    "driver_id",
    "lat",
    "lon",
    "fare",
    "currency",
    "distance_km",
    "duration_s",
    "surge",
    "payment_method",
    "device",
    "schema_version",
)
_BROKEN = "_broken"
_JSON = ", ".join(f"{name} string" for name in (*_TEXTS, _BROKEN))
_REQUIRED = ("event_id", "ride_id", "event_type", "event_time", "city", "rider_id")
_NUMBER = r"^-?\d+(\.\d+)?([eE][-+]?\d+)?$"
# The pattern of each field's value, if present.
_SHAPES = {
    "event_id": r"^[0-9a-f]{16}$",
    "ride_id": r"^ride-[0-9a-f]{16}$",
    "rider_id": r"^rider-\d+$",
    "driver_id": r"^driver-\d+$",
    "lat": _NUMBER,
    "lon": _NUMBER,
    "fare": _NUMBER,
    "distance_km": _NUMBER,
    "duration_s": r"^\d+$",
    "surge": _NUMBER,
}
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"
_TYPES = {
    "lat": "double",
    "lon": "double",
    "fare": "decimal(12,2)",
    "distance_km": "decimal(9,2)",
    "duration_s": "int",
    "surge": "double",
}


def judged(bronze: "DataFrame", settings: "PipelineSettings") -> "DataFrame":
    """Return each row with parsed fields, and with `reason` and `detail`, which are null for a valid row."""
    text = f.when(f.expr("is_valid_utf8(value)"), f.col("value").cast("string"))
    read = bronze.withColumn(
        "json", f.from_json(text, _JSON, {"columnNameOfCorruptRecord": _BROKEN})
    ).withColumn("happened_at", _time("json.event_time"))
    late_ms = f.unix_millis("timestamp") - f.unix_millis("happened_at")
    reasons = [
        _found("empty", f.col("value").isNull() | (f.length("value") == 0)),
        _found("not_json", f.col("json").isNull() | f.col(f"json.{_BROKEN}").isNotNull()),
        *(
            _found("missing_field", f.col(f"json.{name}").isNull(), f.lit(name))
            for name in _REQUIRED
        ),
        _found(
            "unknown_version",
            ~f.coalesce(f.col("json.schema_version"), f.lit("")).isin(*SCHEMA_VERSIONS),
            f.col("json.schema_version"),
        ),
        *(
            _found("wrong_type", ~f.col(f"json.{name}").rlike(shape), f.lit(name))
            for name, shape in _SHAPES.items()
        ),
        *(_found("wrong_type", _does_not_fit(name), f.lit(name)) for name in _TYPES),
        _found("bad_time", f.col("happened_at").isNull(), f.col("json.event_time")),
        _found(
            "unknown_event", ~f.col("json.event_type").isin(*EVENT_TYPES), f.col("json.event_type")
        ),
        _found("negative_fare", f.col("json.fare").try_cast("double") < 0, f.col("json.fare")),
        _found("late", late_ms > settings.lateness_ms, _seconds(late_ms)),
        _found("future", late_ms < -settings.clock_skew_ms, _seconds(-late_ms)),
    ]
    return (
        read.withColumn("judgement", f.coalesce(*reasons))
        .withColumn("reason", f.col("judgement.reason"))
        .withColumn("detail", f.substring("judgement.detail", 1, 100))
        .drop("judgement")
    )


def sound(rows: "DataFrame") -> "DataFrame":
    """Return the valid events of checked rows, with types, duplicates included."""
    typed = [
        f.col(f"json.{name}").try_cast(_TYPES.get(name, "string")).alias(name)
        for name in _TEXTS
        if name not in {"event_time", "schema_version"}
    ]
    found = rows.where(f.col("reason").isNull()).select(
        *typed,
        f.col("happened_at").alias("event_time"),
        f.col("timestamp").alias("recorded_at"),
        "topic",
        "partition",
        "offset",
        f.to_date("happened_at").alias("date"),
    )
    return found.select(*schema_of("silver").fieldNames())


def quarantined(rows: "DataFrame") -> "DataFrame":
    """Return the invalid rows, unchanged, with the reason."""
    found = rows.where(f.col("reason").isNotNull()).withColumnRenamed("timestamp", "recorded_at")
    return found.withColumn("date", f.to_date("recorded_at")).select(
        *schema_of("quarantine").fieldNames()
    )


def without_repeats(events: "DataFrame", known: "DataFrame | None" = None) -> "DataFrame":
    """Return the first copy of each event, except events whose `event_id` is in `known`."""
    first = Window.partitionBy("event_id").orderBy("recorded_at", "partition", "offset")
    once = events.withColumn("copy", f.row_number().over(first)).where("copy = 1").drop("copy")
    if known is None:
        return once
    return once.join(known.select("event_id").distinct(), "event_id", "left_anti").select(
        *events.columns
    )


def _found(reason: str, condition: Column, detail: Column | None = None) -> Column:
    return f.when(
        condition,
        f.struct(
            f.lit(reason).alias("reason"),
            (f.lit(None) if detail is None else detail).cast("string").alias("detail"),
        ),
    )


def _does_not_fit(name: str) -> Column:
    """True for a number too large for its column. A plain cast would fail the job on each run."""
    text = f.col(f"json.{name}")
    number = text.try_cast(_TYPES[name])
    too_large = number.isNull()
    if _TYPES[name] == "double":
        too_large |= f.abs(number) == float("inf")
    return text.isNotNull() & too_large


def _seconds(milliseconds: Column) -> Column:
    return f.concat(f.floor(milliseconds / 1000).cast("string"), f.lit(" s"))


def _time(name: str) -> Column:
    return f.when(f.col(name).rlike(_TIME), f.col(name).try_cast("timestamp"))
