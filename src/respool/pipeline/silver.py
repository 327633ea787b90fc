"""Silver: typed, valid events without duplicates, by the day on which they happened; the others go to quarantine.

It reads the rows that each version of bronze added. Both tables store the version of bronze that they have reached, so
each gets every row once, even if a run ends between the two commits. A duplicate has the same event time and therefore
the same day, so deduplication compares events of that day only.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.storagelevel import StorageLevel

from respool.pipeline.events import judged, quarantined, sound, without_repeats
from respool.pipeline.jobs import JobOutcome, ProgressListener, TableMissing
from respool.pipeline.table_schemas import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.tables import Addition, Table

JOB = "silver"


def run(spark: "SparkSession", settings: "PipelineSettings", tell: ProgressListener) -> JobOutcome:
    bronze, silver, quarantine = (
        table(settings, name) for name in ("bronze", "silver", "quarantine")
    )
    if not bronze.exists:
        raise TableMissing("bronze", "bronze")
    tell.step("silver: reading bronze")
    latest = bronze.version
    read = added = put_aside = 0
    for upto, paths, rows in _steps(bronze, [silver, quarantine], latest, settings.rows_per_batch):
        frame = judged(bronze.read_files(spark, paths), settings).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            if silver.has_read(bronze, before := silver.made()) < upto:
                new = _new_events(silver, frame)
                done = silver.reads(bronze, upto)
                added += silver.append(new, positions=done, before=before).rows
            if quarantine.has_read(bronze, before := quarantine.made()) < upto:
                found = quarantined(frame).repartition("date")
                done = quarantine.reads(bronze, upto)
                put_aside += quarantine.append(found, positions=done, before=before).rows
        finally:
            frame.unpersist()
        read += rows
        tell.rows(rows)
    return JobOutcome(
        job=JOB,
        counts={
            "events read": read,
            "sound events added": added,
            "put into quarantine": put_aside,
            "repeats left out": read - added - put_aside,
        },
    )


def _new_events(silver: "Table", frame: "DataFrame") -> "DataFrame":
    events = sound(frame)
    days = [str(row["date"]) for row in events.select("date").distinct().collect()]
    known = silver.read(frame.sparkSession, partitions=days)
    return without_repeats(events, known).repartition("date")


def _steps(
    bronze: "Table", tables: "Sequence[Table]", latest: int, rows_max: int
) -> "Iterator[tuple[int, list[str], int]]":
    """Yield groups of bronze versions with a target number of rows: the last version, its files, their rows.

    A group ends at the stored version of each table, so that a table takes a group entirely or not at all.
    """
    stands = {one.has_read(bronze, one.made()) for one in tables}
    waiting: list[Addition] = []
    # If bronze lacks its first versions, only empty tables can take it as a whole, so both tables must be empty.
    is_new = stands == {-1}
    for one in bronze.additions(after=min(stands), upto=latest, is_new=is_new):
        waiting.append(one)
        rows = sum(each.rows for each in waiting)
        if rows >= rows_max or one.version in stands or one.version == latest:
            yield one.version, [path for each in waiting for path in each.paths], rows
            waiting = []
