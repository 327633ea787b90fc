"""Gold: the tables of the dashboards. Fares, cities and drivers in windows of event time, updated as events arrive.

Three streaming queries read silver, each with its own checkpoint. A window stays open as long as events may be late
(`lateness_ms`), and its row is replaced whenever it changes; then its state is dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from respool.pipeline.job_settings import DAY_MS
from respool.pipeline.jobs import JobOutcome, ProgressListener, TableMissing
from respool.pipeline.table_schemas import schema_of, table
from respool.pipeline.table_stream import query_id, started, stream_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Commit, Table

JOB = "gold"
BATCHES_COUNTED_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mart:
    """One gold table."""

    name: str
    # The key of a row, in addition to its window.
    keys: tuple[str, ...]
    make: "Callable[[DataFrame, int], DataFrame]"


def fares(events: "DataFrame", window_ms: int) -> "DataFrame":
    """Sums of fares by window."""
    return _by_window(
        events.where("event_type = 'paid'"),
        window_ms,
        FARES.keys,
        f.count("*").alias("rides"),
        f.sum("fare").cast("decimal(18,2)").alias("fares"),
        f.sum("distance_km").cast("decimal(18,2)").alias("distance_km"),
    )


def cities(events: "DataFrame", window_ms: int) -> "DataFrame":
    """Numbers of requested, assigned, finished and cancelled rides, and the surge."""
    asked = f.when(f.col("event_type") == "requested", f.col("surge"))
    return _by_window(
        events,
        window_ms,
        CITIES.keys,
        *(
            f.count(f.when(f.col("event_type") == one, 1)).alias(one)
            for one in ("requested", "assigned", "finished", "cancelled")
        ),
        f.avg(asked).alias("surge_mean"),
        f.max(asked).alias("surge_max"),
    )


def drivers(events: "DataFrame", window_ms: int) -> "DataFrame":
    """Each driver's distance and earnings, by day, or by window if that is longer."""
    return _by_window(
        events.where("event_type = 'finished'"),
        max(window_ms, DAY_MS),
        DRIVERS.keys,
        f.count("*").alias("rides"),
        f.sum("fare").cast("decimal(18,2)").alias("fares"),
        f.sum("distance_km").cast("decimal(18,2)").alias("distance_km"),
        f.sum("duration_s").alias("driving_s"),
    )


FARES = Mart(name="gold_fares", keys=("city", "currency", "payment_method"), make=fares)
CITIES = Mart(name="gold_cities", keys=("city",), make=cities)
DRIVERS = Mart(name="gold_drivers", keys=("driver_id", "city"), make=drivers)
MARTS = (FARES, CITIES, DRIVERS)


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    """Process everything that silver has at present."""
    tell.step("gold: windows of silver")
    dropped = 0
    # One after the other: each query starts its own Python processes, and a small machine has few cores.
    for mart in MARTS:
        for query in start(spark, settings, tell, every_ms=None, marts=(mart,)):
            query.awaitTermination()
            dropped += _dropped(query)
    counts = {
        f"{mart.name.removeprefix('gold_')} by window": table(settings, mart.name).delta().count()
        for mart in MARTS
    }
    return JobOutcome(job=JOB, counts={**counts, "too late for their window": dropped})


def start(
    spark: "SparkSession",
    settings: "PipelineSettings",
    tell: ProgressListener,
    *,
    every_ms: int | None,
    marts: Sequence[Mart] = MARTS,
) -> "list[StreamingQuery]":
    silver = table(settings, "silver")
    if not silver.exists:
        raise TableMissing("silver", "silver")
    # A batch without rows would only drop old state, and rewrite each table unchanged.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    # Dropped rows are reported per batch, and Spark keeps only the last hundred by default.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(BATCHES_COUNTED_MAX))
    stream = stream_of(spark, silver, rows_per_batch=settings.rows_per_batch)
    return [_start(mart, stream, settings, tell, every_ms) for mart in marts]


def _start(
    mart: Mart,
    silver: "DataFrame",
    settings: "PipelineSettings",
    tell: ProgressListener,
    every_ms: int | None,
) -> "StreamingQuery":
    gold = table(settings, mart.name)
    gold.made()
    checkpoint = settings.checkpoint_path(mart.name)

    def update(batch: "DataFrame", number: int) -> None:
        # The batch number alone does not identify a batch: see `query_id`.
        reader = f"query {query_id(checkpoint)}"
        tell.rows(upsert(gold, batch, mart.keys, batch_id=number, reader=reader).rows)

    events = silver.withWatermark("event_time", f"{settings.lateness_ms} milliseconds")
    writer = mart.make(events, settings.window_ms).writeStream.outputMode("update")
    return started(writer.foreachBatch(update), mart.name, checkpoint, every_ms=every_ms)


def upsert(
    gold: "Table", batch: "DataFrame", keys: Sequence[str], *, batch_id: int, reader: str
) -> "Commit":
    """Upsert these rows by window and keys. A batch that is already committed is skipped."""
    from respool.pipeline.tables import Commit

    before = gold.made()
    done = before.transaction_version(reader)
    if done is not None and done >= batch_id:
        return Commit(version=None)
    new = batch.select(*schema_of(gold.path.name).fieldNames()).persist()
    try:
        days = [str(row["date"]) for row in new.select("date").distinct().collect()]
        old = gold.read(batch.sparkSession, version=before.version(), partitions=days)
        same = ["window_start", *keys]
        # A key may be null, and two nulls must compare equal here.
        kept = old.alias("old").join(
            new.select(*same).alias("new"),
            [f.col(f"old.{name}").eqNullSafe(f.col(f"new.{name}")) for name in same],
            "left_anti",
        )
        merged = kept.unionByName(new).repartition("date")
        return gold.replace(merged, partitions=days, positions={reader: batch_id}, before=before)
    finally:
        new.unpersist()


def _by_window(
    events: "DataFrame", window_ms: int, keys: Sequence[str], *columns: "Column"
) -> "DataFrame":
    window = f.window("event_time", f"{window_ms} milliseconds")
    made = events.groupBy(window, *(f.col(key) for key in keys)).agg(*columns)
    begins = f.col("window.start")
    rest = [name for name in made.columns if name != "window"]
    return made.select(begins.alias("window_start"), *rest, f.to_date(begins).alias("date"))


def _dropped(query: "StreamingQuery") -> int:
    """Return how many rows arrived after their window was closed, as counted by Spark."""
    return sum(
        operator.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )
