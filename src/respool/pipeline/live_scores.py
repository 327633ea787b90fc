"""Fraud: scores each ride when it ends, into a table and from there into a topic, exactly once in each.

The scores table stores the version of silver that it has reached. A streaming query writes the topic from the table's
versions: a restarted query writes the same rows again, and the sink recognizes them.
"""

from typing import TYPE_CHECKING

from pyarrow.dataset import field
from pyspark.sql import functions as f

from respool.pipeline import topic_frames
from respool.pipeline.features import HISTORY_DAYS, finished_rides
from respool.pipeline.jobs import JobOutcome, ProgressListener, TableMissing
from respool.pipeline.model import FraudModel, found_or_trained
from respool.pipeline.table_schemas import schema_of, table
from respool.pipeline.table_stream import started, stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Table

JOB = "fraud"
QUERY = "fraud-scores"
# A model is trained on the first half of the rides; the second half shows how good it is.
TRAINED_SHARE = 0.5


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    silver, scores = table(settings, "silver"), table(settings, "fraud_scores")
    if not silver.exists:
        raise TableMissing("silver", "silver")
    tell.step("fraud: a model")
    model = found_or_trained(
        settings.model, settings, silver.read(spark), until_ms=_trained_until_ms
    )
    tell.step("fraud: scoring what is new")
    added = score_new(spark, silver, scores, model, settings.threshold)
    tell.rows(added)
    tell.step("fraud: writing scores to the topic")
    topic_frames.ensure(settings, settings.scores_topic, like=settings.topic)
    publish(spark, settings)
    stored = scores.arrow_dataset()
    return JobOutcome(
        job=JOB,
        counts={
            "rides the model learnt from": model.about.rides,
            "rides scored": added,
            "scores in the table": stored.count_rows(),
            "of them called fraud": stored.count_rows(filter=field("is_fraud")),
        },
    )


def score_new(
    spark: "SparkSession", silver: "Table", scores: "Table", model: FraudModel, threshold: float
) -> int:
    """Score the rides that ended in versions of silver not scored yet; return how many."""
    before = scores.made()
    done = scores.has_read(silver, before)
    latest = silver.version
    additions = silver.additions(after=done, upto=latest, is_new=True)
    new = finished_rides(
        silver.read_files(spark, [path for one in additions for path in one.paths])
    ).select("event_id", "rider_id", "date")
    days = new.agg(f.min("date").alias("first"), f.max("date").alias("last")).collect()[0]
    if days["first"] is None:
        return 0
    since = f.date_sub(f.lit(days["first"]), HISTORY_DAYS)
    history = finished_rides(silver.read(spark, version=latest)).where(f.col("date") >= since)
    riders = new.select("rider_id").distinct()
    scored = model.score(history.join(riders, "rider_id", "left_semi"), threshold)
    wanted = scored.join(new.select("event_id"), "event_id", "left_semi")
    rows = wanted.select(*schema_of("fraud_scores").fieldNames()).repartition("date")
    return scores.append(rows, positions=scores.reads(silver, latest), before=before).rows


def publish(spark: "SparkSession", settings: "PipelineSettings") -> None:
    """Write the scores that the topic does not have yet."""
    scores = table(settings, "fraud_scores")
    rows = messages(stream_of(spark, scores, rows_per_batch=settings.rows_per_batch))
    writer = topic_frames.write_stream(rows, settings, settings.scores_topic)
    checkpoint = settings.checkpoint_path(QUERY)
    started(writer, QUERY, checkpoint, every_ms=None).awaitTermination()


def messages(scores: "DataFrame") -> "DataFrame":
    """Convert scores to records: the key is the ride's id, the value is JSON."""
    fields = [name for name in scores.columns if name not in {"date", "replay"}]
    iso = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"}
    return scores.select(
        f.col("ride_id").cast("binary").alias("key"),
        f.to_json(f.struct(*fields), iso).cast("binary").alias("value"),
    )


def scores_of(messages_: "DataFrame") -> "DataFrame":
    """Convert records back to scores; records that are not scores are skipped."""
    schema = schema_of("fraud_scores")
    read = messages_.select(
        f.from_json(f.col("value").cast("string"), schema).alias("one"), "partition", "offset"
    )
    found = read.where("one.ride_id is not null and one.score is not null")
    return found.select("one.*", "partition", "offset")


def _trained_until_ms(events: "DataFrame") -> int:
    span = events.agg(
        f.min(f.unix_millis("event_time")).alias("first"),
        f.max(f.unix_millis("event_time")).alias("last"),
    ).collect()[0]
    if span["first"] is None:
        return 0
    return int(span["first"] + (span["last"] - span["first"]) * TRAINED_SHARE)
