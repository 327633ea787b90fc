"""Compares the scores of two models for the same rides, with each other and, if it is known, with the truth. Pure."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from respool.pipeline.comparison_result import BINS, Comparison, Quality

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def compared(live: "DataFrame", new: "DataFrame", frauds: "DataFrame | None" = None) -> Comparison:
    """`live`, `new`: `ride_id`, `score` and `is_fraud`, one row per ride; `frauds`: `ride_id` and `pattern`."""
    joined = (
        live.select("ride_id", f.col("score").alias("live"), f.col("is_fraud").alias("live_says"))
        .join(
            new.select("ride_id", f.col("score").alias("new"), f.col("is_fraud").alias("new_says")),
            "ride_id",
            "full",
        )
        .withColumn("both", f.col("live").isNotNull() & f.col("new").isNotNull())
    )
    if frauds is None:
        known = joined.withColumn("pattern", f.lit(None).cast("string"))
    else:
        known = joined.join(frauds.dropDuplicates(["ride_id"]), "ride_id", "left")
    rows = known.persist()
    try:
        counted = _counted(rows)
        live_histogram, new_histogram = _histograms(rows)
        return Comparison(
            both=counted["both"],
            only_live=counted["only_live"],
            only_new=counted["only_new"],
            fraud_to_both=counted["fraud_to_both"],
            fraud_to_live=counted["fraud_to_live"],
            fraud_to_new=counted["fraud_to_new"],
            difference_mean=counted["difference_mean"] or 0.0,
            live_histogram=live_histogram,
            new_histogram=new_histogram,
            live_quality=None if frauds is None else _quality(counted, "live"),
            new_quality=None if frauds is None else _quality(counted, "new"),
            patterns=() if frauds is None else _patterns(rows),
            differing=_differing(rows),
        )
    finally:
        rows.unpersist()


def _counted(rows: "DataFrame") -> dict[str, int]:
    """Compute all counts in one pass."""
    conditions = {
        "both": "both",
        "only_live": "new is null",
        "only_new": "live is null",
        "fraud_to_both": "both and live_says and new_says",
    }
    # Both models are measured by the rides that both scored.
    for who in ("live", "new"):
        conditions |= {
            f"fraud_to_{who}": f"both and {who}_says",
            f"right_{who}": f"both and {who}_says and pattern is not null",
            f"wrong_{who}": f"both and {who}_says and pattern is null",
            f"missed_{who}": f"both and not {who}_says and pattern is not null",
        }
    found = rows.agg(
        *(f.count_if(f.expr(condition)).alias(name) for name, condition in conditions.items()),
        f.avg(f.abs(f.col("live") - f.col("new"))).alias("difference_mean"),
    ).collect()[0]
    return dict(found.asDict())


def _quality(counted: dict[str, int], who: str) -> Quality:
    return Quality(
        right=counted[f"right_{who}"],
        wrong=counted[f"wrong_{who}"],
        missed=counted[f"missed_{who}"],
    )


def _histograms(rows: "DataFrame") -> tuple[tuple[int, ...], tuple[int, ...]]:
    def step(who: str) -> "Column":
        # Given a null and a number, `least` returns the number.
        found = f.least(f.floor(f.col(who) * BINS), f.lit(BINS - 1)).cast("int")
        return f.when(f.col(who).isNotNull(), found).alias(who)

    live, new = [0] * BINS, [0] * BINS
    for row in rows.groupBy(step("live"), step("new")).count().collect():
        if row["live"] is not None:
            live[row["live"]] += row["count"]
        if row["new"] is not None:
            new[row["new"]] += row["count"]
    return tuple(live), tuple(new)


def _patterns(rows: "DataFrame") -> tuple[tuple[str, int, int, int], ...]:
    found = (
        rows.where("both and pattern is not null")
        .groupBy("pattern")
        .agg(
            f.count("*").alias("rides"),
            f.count(f.when(f.col("live_says"), 1)).alias("live"),
            f.count(f.when(f.col("new_says"), 1)).alias("new"),
        )
        .orderBy("pattern")
        .collect()
    )
    return tuple((one["pattern"], one["rides"], one["live"], one["new"]) for one in found)


def _differing(rows: "DataFrame", count: int = 10) -> tuple[tuple[str, float, float, str], ...]:
    found = (
        rows.where("both and live_says != new_says")
        .orderBy(f.abs(f.col("live") - f.col("new")).desc(), "ride_id")
        .limit(count)
        .collect()
    )
    return tuple(
        (one["ride_id"], one["live"], one["new"], one["pattern"] or "not known as fraud")
        for one in found
    )
