"""The tables by name, and their columns. Spark is imported only for its types: reading tables needs none of it."""

from functools import cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Table

# The columns of `format("respool")`, including headers. `date` is the day of arrival.
_BRONZE = """
    topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary,
    headers headers, date date
"""
_EVENT = """
    event_id string, ride_id string, event_type string, event_time timestamp, city string, rider_id string,
    driver_id string, lat double, lon double, fare decimal(12,2), currency string, distance_km decimal(9,2),
    duration_s int, surge double, payment_method string, device string
"""
# `date` is the day on which the event happened.
_SILVER = f"{_EVENT}, recorded_at timestamp, topic string, partition int, offset bigint, date date"
# The invalid row, unchanged, and the reason. `date` is the day of arrival.
_QUARANTINE = """
    reason string, detail string, topic string, partition int, offset bigint, recorded_at timestamp, key binary,
    value binary, date date
"""
_FARES = """
    window_start timestamp, city string, currency string, payment_method string, rides bigint, fares decimal(18,2),
    distance_km decimal(18,2), date date
"""
_CITIES = """
    window_start timestamp, city string, requested bigint, assigned bigint, finished bigint, cancelled bigint,
    surge_mean double, surge_max double, date date
"""
_DRIVERS = """
    window_start timestamp, driver_id string, city string, rides bigint, fares decimal(18,2),
    distance_km decimal(18,2), driving_s bigint, date date
"""
_SCORES = """
    ride_id string, event_id string, event_time timestamp, city string, rider_id string, driver_id string,
    model string, score double, is_fraud boolean, date date
"""
_REPLAYS = f"{_SCORES}, replay string"
# One row for each ride. `date` is the day of its first event.
_WAREHOUSE = """
    ride_id string, status string, city string, rider_id string, driver_id string, requested_at timestamp,
    assigned_at timestamp, started_at timestamp, finished_at timestamp, paid_at timestamp, cancelled_at timestamp,
    pickup_lat double, pickup_lon double, dropoff_lat double, dropoff_lon double, fare decimal(12,2), currency string,
    distance_km decimal(9,2), duration_s int, surge double, payment_method string, device string, events int, date date
"""

SCHEMAS = {
    "bronze": _BRONZE,
    "silver": _SILVER,
    "quarantine": _QUARANTINE,
    "gold_fares": _FARES,
    "gold_cities": _CITIES,
    "gold_drivers": _DRIVERS,
    "fraud_scores": _SCORES,
    "fraud_replays": _REPLAYS,
    "warehouse_rides": _WAREHOUSE,
}
PARTITION_BY = {"fraud_replays": ("replay",)}


def schema_of(name: str) -> "StructType":
    return structure(SCHEMAS[name])


def structure(columns: str) -> "StructType":
    """Convert `name type, name type` to Spark's schema. Spark's own parser needs a session."""
    from pyspark.sql.types import StructField, StructType

    # Commas inside brackets are not followed by a space.
    pairs = (one.split() for one in " ".join(columns.split()).split(", "))
    return StructType([StructField(name, _type(word)) for name, word in pairs])


def _type(word: str) -> "DataType":
    from pyspark.sql.types import DecimalType

    if word in (types := _types()):
        return types[word]
    digits, scale = word.removeprefix("decimal(").removesuffix(")").split(",")
    return DecimalType(int(digits), int(scale))


@cache
def _types() -> "dict[str, DataType]":
    from pyspark.sql import types as t

    return {
        "bigint": t.LongType(),
        "binary": t.BinaryType(),
        "boolean": t.BooleanType(),
        "date": t.DateType(),
        "double": t.DoubleType(),
        "int": t.IntegerType(),
        "string": t.StringType(),
        "timestamp": t.TimestampType(),
        # As the source returns them.
        "headers": t.ArrayType(
            t.StructType(
                [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
            )
        ),
    }


def table(settings: "PipelineSettings", name: str) -> "Table":
    from respool.pipeline.tables import Table

    return Table(
        settings.table_path(name),
        partial(schema_of, name),
        partition_by=PARTITION_BY.get(name, ("date",)),
    )
