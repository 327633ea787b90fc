"""Warehouse: one row for each ride, loaded in batches.

A run reads each partition of the topic from the table's position to the present end, folds the events of each ride into
a row, and merges it with the existing row. The positions are part of the commit, so a repeated or crashed run produces
the same table as an undisturbed one.

Late events change the row of their ride, in the partition of its day. Folding takes the minimum or maximum of each
column, so events may come in any order and any number of times.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as f

from respool.pipeline import topic_frames
from respool.pipeline.events import EVENT_TYPES, judged, sound
from respool.pipeline.jobs import JobOutcome, ProgressListener
from respool.pipeline.staging import Staged
from respool.pipeline.table_schemas import schema_of, table
from respool.pipeline.topic_frames import lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Commit, Table

JOB = "warehouse"
TABLE = "warehouse_rides"
# No limit: the warehouse accepts events no matter how late they are.
_NEVER_LATE_MS = 2**60
# The status is the furthest step; a cancelled ride stays cancelled.
_STATUSES = ("cancelled", "paid", "finished", "started", "assigned", "requested")


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    rides = table(settings, TABLE)
    delta = rides.made()
    readers = topic_frames.readers(settings, settings.topic)
    first, last = topic_frames.ends(settings, settings.topic)
    known = {number: delta.transaction_version(reader) for number, reader in readers.items()}
    gone = lost(
        settings.topic,
        first,
        known,
        is_accepted=settings.accept_loss or settings.from_start,
        table=TABLE,
    )
    start = {
        number: first[number] if settings.from_start else max(first[number], at or 0)
        for number, at in known.items()
    }
    counts = {"offsets read": 0, "rides written": 0}
    if gone:
        # Committed at once, so that the loss is reported only once, even if there is nothing left to read.
        noted = {readers[number]: first[number] for number in gone}
        rides.commit(Staged.nothing(rides.path), positions=noted, before=delta)
        counts["offsets lost"] = sum(gone.values())
    for begin, end in steps(start, last, settings.rows_per_batch):
        tell.step("warehouse: events to rides")
        rows = topic_frames.read_between(spark, settings, settings.topic, start=begin, end=end)
        positions = {
            readers[number]: offset for number, offset in end.items() if offset > begin[number]
        }
        counts["rides written"] += load(spark, rides, rows, settings, positions=positions).rows
        number = sum(end.values()) - sum(begin.values())
        counts["offsets read"] += number
        tell.rows(number)
    counts["rides in the table"] = rides.delta().count()
    return JobOutcome(job=JOB, counts=counts)


def steps(
    start: dict[int, int], end: dict[int, int], rows_max: int
) -> list[tuple[dict[int, int], dict[int, int]]]:
    """Divide start to end into steps with a target number of offsets, over all partitions in parallel."""
    total = sum(max(0, end[number] - start[number]) for number in start)
    count = -(-total // rows_max)

    def at(step: int) -> dict[int, int]:
        return {
            number: begin + max(0, end[number] - begin) * step // count
            for number, begin in start.items()
        }

    return [(at(step), at(step + 1)) for step in range(count)]


def load(
    spark: "SparkSession",
    rides: "Table",
    rows: "DataFrame",
    settings: "PipelineSettings",
    *,
    positions: dict[str, int],
) -> "Commit":
    """Merge the events of these rows, and store the positions, in one commit."""
    from dataclasses import replace

    events = sound(judged(rows, replace(settings, lateness_ms=_NEVER_LATE_MS)))
    new = folded(events).persist()
    merged = None
    try:
        before = rides.made()
        old = rides.read(spark, version=before.version())
        # Rides may already have a row, of any day: a ride's day is that of its first event.
        met = old.join(f.broadcast(new.select("ride_id")), "ride_id", "left_semi")
        merged = merged_rows(met.unionByName(new)).persist()
        days = {
            str(row["date"])
            for frame in (met, merged)
            for row in frame.select("date").distinct().collect()
        }
        kept = rides.read(spark, version=before.version(), partitions=days).join(
            new.select("ride_id"), "ride_id", "left_anti"
        )
        whole = kept.unionByName(merged).repartition("date")
        return rides.replace(whole, partitions=days, positions=positions, before=before)
    finally:
        new.unpersist()
        if merged is not None:
            merged.unpersist()


def folded(events: "DataFrame") -> "DataFrame":
    """Fold events into one row for each ride, with the columns that these events determine."""

    def of(event_type: str, name: str) -> Column:
        return f.when(f.col("event_type") == event_type, f.col(name))

    begins = f.col("event_type").isin("requested", "assigned", "started")
    rows = events.select(
        "ride_id",
        *(of(one, "event_time").alias(f"{one}_at") for one in EVENT_TYPES),
        of("requested", "lat").alias("pickup_lat"),
        of("requested", "lon").alias("pickup_lon"),
        f.when(~begins, f.col("lat")).alias("dropoff_lat"),
        f.when(~begins, f.col("lon")).alias("dropoff_lon"),
        *(
            f.col(name)
            for name in ("city", "rider_id", "driver_id", "fare", "currency", "distance_km")
        ),
        *(f.col(name) for name in ("duration_s", "surge", "payment_method", "device")),
    )
    return merged_rows(rows)


def merged_rows(rows: "DataFrame") -> "DataFrame":
    """Merge rows of the same ride. Commutative and idempotent."""
    moments = [f"{one}_at" for one in EVENT_TYPES]
    wanted = schema_of(TABLE).fieldNames()
    reckoned = {"ride_id", "status", "events", "date", *moments}
    found = rows.groupBy("ride_id").agg(
        *(f.min(name).alias(name) for name in moments),
        *(f.max(name).alias(name) for name in wanted if name not in reckoned),
    )
    status = f.coalesce(*(f.when(f.col(f"{one}_at").isNotNull(), f.lit(one)) for one in _STATUSES))
    number = sum((f.col(name).isNotNull().cast("int") for name in moments), f.lit(0))
    return (
        found.withColumn("status", status)
        .withColumn("events", number)
        .withColumn("date", f.to_date(f.least(*moments)))
        .select(*wanted)
    )
