"""Replay: scores past days, by time of arrival, with another model, and compares the scores with the live ones.

It reads a time range of the topic, and ends. It joins no group, commits no offsets and writes to no topic, so live
consumers are not affected.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from respool.client.kafka.errors import UnknownTopic
from respool.pipeline import topic_frames
from respool.pipeline.compare import compared
from respool.pipeline.comparison_result import Comparison
from respool.pipeline.events import judged, sound, without_repeats
from respool.pipeline.features import HISTORY_DAYS, finished_rides
from respool.pipeline.job_settings import DAY_MS
from respool.pipeline.jobs import BadReplay, JobOutcome, ProgressListener
from respool.pipeline.live_scores import scores_of
from respool.pipeline.model import found_or_trained, frauds_of
from respool.pipeline.table_schemas import schema_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.model import About

JOB = "replay-fraud"
TABLE = "fraud_replays"


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    from respool.pipeline.report import write_replay_report

    since_ms, until_ms = settings.replay_since_ms, settings.replay_until_ms
    if since_ms >= until_ms:
        raise BadReplay(
            f"a replay from {since_ms} to {until_ms} (ms) is empty: its end is its start or before"
        )
    tell.step("replay-fraud: a model")
    silver = table(settings, "silver").read(spark)
    # Never train on test data: neither on events of the window, nor on earlier events that arrived in it.
    arrived = f.unix_millis("recorded_at")
    model = found_or_trained(
        settings.new_model, settings, silver.where(arrived < since_ms), until_ms=since_ms
    )
    check_unseen(model.about, since_ms)
    tell.step("replay-fraud: events of the window")
    # Rides of the window's first hour need their history, as in live scoring.
    history_ms = HISTORY_DAYS * DAY_MS + settings.lateness_ms
    rows = topic_frames.read_times(
        spark,
        settings,
        settings.topic,
        since_ms=max(0, since_ms - history_ms),
        until_ms=until_ms,
    ).persist()
    try:
        read = rows.where(f.unix_millis("timestamp") >= since_ms).count()
        tell.rows(read)
        events = without_repeats(sound(judged(rows, settings)))
        tell.step("replay-fraud: scoring")
        replay = replay_name(model.about.name, since_ms, until_ms)
        scored = model.score(finished_rides(events), settings.threshold).where(arrived >= since_ms)
        kept = scored.withColumn("replay", f.lit(replay)).select(*schema_of(TABLE).fieldNames())
        store = table(settings, TABLE)
        before = store.made()
        commit = store.replace(
            kept.coalesce(2), partitions=[replay], positions={replay: until_ms}, before=before
        )
    finally:
        rows.unpersist()
    tell.step("replay-fraud: comparing with the live scores")
    comparison = compare(spark, settings, store.read(spark, partitions=[replay]))
    path = write_replay_report(
        settings, comparison, model.about, events=read, rides=commit.rows, name=replay
    )
    return JobOutcome(
        job=JOB,
        counts={
            "events of the window": read,
            "rides scored": commit.rows,
            "scored live, too": comparison.both,
            "called fraud live": comparison.fraud_to_live,
            "called fraud by the new model": comparison.fraud_to_new,
            "by both": comparison.fraud_to_both,
        },
        figures=figures_of(comparison),
        files=(str(path),),
    )


def check_unseen(about: "About", since_ms: int) -> None:
    """
    Raises:
        BadReplay: the model was trained on rides of the window.
    """
    if about.trained_until_ms > since_ms:
        days = (about.trained_until_ms - since_ms) / DAY_MS
        raise BadReplay(
            f"the model {about.name!r} was trained on rides that ended in the window's first {days:.1f} days, so what "
            "it says of them shows nothing; take a window that begins later (--days, --until), or give another name "
            "with --new-model, and it is trained on what came before"
        )


def compare(
    spark: "SparkSession", settings: "PipelineSettings", replayed: "DataFrame"
) -> Comparison:
    """Compare with the topic's scores: the first score of each ride, which was the one acted upon."""
    live = live_scores(spark, settings).join(replayed.select("ride_id"), "ride_id", "left_semi")
    frauds = None if settings.truth is None else frauds_of(spark, settings.truth)
    return compared(live, replayed, frauds)


def live_scores(spark: "SparkSession", settings: "PipelineSettings") -> "DataFrame":
    try:
        first, last = topic_frames.ends(settings, settings.scores_topic)
    except UnknownTopic:
        # There are no live scores to compare with, as the counts will show.
        return spark.createDataFrame([], schema_of("fraud_scores"))
    rows = topic_frames.read_between(spark, settings, settings.scores_topic, start=first, end=last)
    # All scores of a ride are in one partition.
    earliest = Window.partitionBy("ride_id").orderBy("offset")
    found = scores_of(rows).withColumn("which", f.row_number().over(earliest))
    return found.where("which = 1").drop("which")


def replay_name(model: str, since_ms: int, until_ms: int) -> str:
    return f"{model}-{since_ms}-{until_ms}"


def figures_of(comparison: Comparison) -> dict[str, float]:
    found = {"agreement": comparison.agreement, "mean difference": comparison.difference_mean}
    for who, quality in (("live", comparison.live_quality), ("new", comparison.new_quality)):
        if quality is not None:
            found |= {f"precision {who}": quality.precision, f"recall {who}": quality.recall}
    return found
