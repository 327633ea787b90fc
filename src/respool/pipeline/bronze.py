"""Bronze: every event from the log start on, unchanged, by day of arrival, exactly once.

Each commit carries, for each partition, the offset up to which the table has its records. A micro-batch that is
repeated, after a crash between commit and checkpoint or with a lost checkpoint, adds only later rows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from respool.pipeline import topic_frames
from respool.pipeline.jobs import JobOutcome, ProgressListener
from respool.pipeline.staging import stage
from respool.pipeline.table_schemas import schema_of, table
from respool.pipeline.table_stream import started
from respool.pipeline.topic_frames import lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Commit, Table

JOB = "bronze"
GROUP = "pipeline-bronze"


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    """Read everything that is in the topic at present."""
    seen = _Counter(tell)
    tell.step("bronze: reading the topic")
    gone = _lost(settings)
    start(spark, settings, seen, every_ms=None).awaitTermination()
    counts = {
        "events added": seen.added,
        "events in the table": table(settings, "bronze").delta().count(),
    }
    if gone:
        counts["offsets lost"] = gone
    return JobOutcome(job=JOB, counts=counts)


def start(
    spark: "SparkSession",
    settings: "PipelineSettings",
    tell: ProgressListener,
    *,
    every_ms: int | None,
) -> "StreamingQuery":
    bronze = table(settings, "bronze")
    bronze.made()

    def add(batch: "DataFrame", _number: int) -> None:
        # Looked up for every batch: partitions may be added while the query runs.
        readers = topic_frames.readers(settings, settings.topic)
        tell.rows(add_batch(bronze, batch, readers=readers).rows)

    stream = topic_frames.read_stream(spark, settings, settings.topic, group=GROUP)
    writer = stream.writeStream.foreachBatch(add)
    return started(writer, JOB, settings.checkpoint_path(JOB), every_ms=every_ms)


def _lost(settings: "PipelineSettings") -> int:
    """Return how many offsets the topic has deleted before the table read them.

    With a checkpoint, the source detects the loss; without one, it begins at the log start, wherever that is.
    """
    if any((settings.checkpoint_path(JOB) / "offsets").glob("[0-9]*")):
        return 0
    made = table(settings, "bronze").made()
    readers = topic_frames.readers(settings, settings.topic)
    first, _last = topic_frames.ends(settings, settings.topic)
    known = {number: made.transaction_version(reader) for number, reader in readers.items()}
    gone = lost(settings.topic, first, known, is_accepted=settings.accept_loss, table=JOB)
    return sum(gone.values())


def add_batch(bronze: "Table", batch: "DataFrame", *, readers: Mapping[int, str]) -> "Commit":
    """Add the rows that the table does not have; `readers` are the names under which positions are stored.

    Batches of a partition must come in order of their offsets.
    """
    delta = bronze.made()
    found = {number: delta.transaction_version(reader) for number, reader in readers.items()}
    known = {number: position for number, position in found.items() if position is not None}
    staged = stage(bronze_rows(batch, known), bronze.path, bronze.partition_by)
    moved: dict[str, int] = {}
    if staged.files:
        # Counted in the written files: counting the batch would fetch it from the brokers again.
        written = batch.sparkSession.read.parquet(*staged.paths)
        for row in written.groupBy("partition").agg(f.max("offset").alias("last")).collect():
            moved[readers[row["partition"]]] = row["last"] + 1
    return bronze.commit(staged, positions=moved, before=delta)


def bronze_rows(batch: "DataFrame", positions: Mapping[int, int]) -> "DataFrame":
    """Return the rows at or after these positions, with their day."""
    wanted = f.lit(True)
    for partition, position in positions.items():
        wanted &= (f.col("partition") != partition) | (f.col("offset") >= position)
    dated = batch.where(wanted).withColumn("date", f.to_date("timestamp"))
    return dated.select(*schema_of("bronze").fieldNames())


class _Counter:
    """Forwards progress, and counts rows."""

    def __init__(self, tell: ProgressListener) -> None:
        self._tell = tell
        self.added = 0

    def step(self, text: str) -> None:
        self._tell.step(text)

    def rows(self, count: int) -> None:
        self.added += count
        self._tell.rows(count)
