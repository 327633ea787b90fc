"""Features, models and comparisons, held against plain Python."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.making import UNTIL_MS, Rides, rides, settings, sound_events
from respool.pipeline import live_scores
from respool.pipeline.compare import compared
from respool.pipeline.events import judged, sound, without_repeats
from respool.pipeline.features import finished_rides, with_features
from respool.pipeline.jobs import ModelMissing, NothingToLearn
from respool.pipeline.model import found_or_trained, frauds_of, load, prices_frame, train
from respool.pipeline.table_schemas import schema_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import PipelineSettings

MOMENT = datetime(2026, 11, 12, 8, 1, 2, 345_000, tzinfo=UTC)


@pytest.fixture(scope="module")
def made() -> Rides:
    return rides(count=4_000, days=3, fraud_share=0.15)


def events_of(spark: "SparkSession", told: "PipelineSettings", made: Rides) -> "DataFrame":
    return without_repeats(sound(judged(made.frame(spark), told)))


def ended(made: Rides, told: "PipelineSettings") -> list[dict[str, Any]]:
    events, _ = sound_events(made.rows, lateness_ms=told.lateness_ms)
    return [one for one in events.values() if one["event_type"] == "finished"]


def at(event: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(event["event_time"]).timestamp())


def test_features_are_what_a_plain_loop_over_the_past_counts(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    prices = prices_frame(spark, {"Köln": 2.0})
    found = with_features(finished_rides(events_of(spark, told, made)), prices).collect()
    past = ended(made, told)
    assert len(found) == len(past)
    by_id = {one["event_id"]: one for one in past}
    for row in found:
        one = by_id[row["event_id"]]
        now = at(one)
        before = [each for each in past if now - 7 * 86_400 <= at(each) <= now]
        of_rider = [each for each in before if each["rider_id"] == one["rider_id"]]
        of_pair = [each for each in of_rider if each["driver_id"] == one["driver_id"]]
        assert row["speed_kmh"] == pytest.approx(one["distance_km"] / one["duration_s"] * 3600)
        assert row["pair_rides_day"] == sum(now - at(each) <= 86_400 for each in of_pair)
        assert row["pair_short_rides_week"] == sum(each["distance_km"] < 1.5 for each in of_pair)
        assert row["rider_rides_day"] == sum(now - at(each) <= 86_400 for each in of_rider)
        assert row["rider_long_card_rides_6h"] == sum(
            now - at(each) <= 6 * 3600
            and each["distance_km"] >= 8
            and each["payment_method"] == "card"
            for each in of_rider
        )
        first = min(at(each) for each in of_rider)
        assert row["rider_known_hours"] == pytest.approx((now - first) / 3600)
        listed = 2.5 + 1.15 * one["distance_km"] + 0.28 * one["duration_s"] / 60
        usual = 2.0 if one["city"] == "Köln" else 1.0
        assert row["price_ratio"] == pytest.approx(one["fare"] / one["surge"] / listed / usual)


def test_a_model_finds_fraud_it_was_not_trained_on_and_is_the_same_when_loaded(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path, truth=made.truth_file(tmp_path))
    events = events_of(spark, told, made).persist()
    # Half of the three days.
    until_ms = UNTIL_MS - 36 * 3_600_000
    model = found_or_trained(told.model, told, events, until_ms=until_ms)
    later = f"event_time >= timestamp_millis({until_ms})"
    scored = model.score(finished_rides(events), told.threshold).where(later).persist()
    frauds = {row["ride_id"] for row in made.truth.to_pylist() if row["kind"] == "fraud"}
    called = {row["ride_id"] for row in scored.where("is_fraud").collect()}
    there = {row["ride_id"] for row in scored.collect()} & frauds
    assert len(called & there) > 0.6 * len(there) > 10
    assert len(called & there) > 0.6 * len(called)
    again = load(told.model_path("v1"))
    assert again.about == model.about
    rescored = again.score(finished_rides(events), told.threshold).where(later)
    assert rescored.exceptAll(scored).count() == 0


def test_without_a_model_or_a_truth_one_is_told_what_to_give(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    told = settings(tmp_path)
    events = spark.createDataFrame([], schema_of("silver"))
    with pytest.raises(ModelMissing, match="--truth FILE"):
        found_or_trained(told.model, told, events, until_ms=0)
    frauds = frauds_of(spark, made.truth_file(tmp_path))
    with pytest.raises(NothingToLearn, match="of 0 finished rides"):
        train(events, frauds, name="v1", recipe="forest", until_ms=0)


def test_scores_are_added_once_and_in_steps_as_in_one(
    spark: "SparkSession", made: Rides, tmp_path: Path
) -> None:
    truth = made.truth_file(tmp_path)
    told = settings(tmp_path, truth=truth)
    events = events_of(spark, told, made).persist()
    model = found_or_trained(told.model, told, events, until_ms=UNTIL_MS)
    silver, scores = table(told, "silver"), table(told, "fraud_scores")
    half = f"event_time < timestamp_millis({UNTIL_MS - 36 * 3_600_000})"
    added = 0
    for part in (events.where(half), events.where(f"not ({half})")):
        silver.append(part.coalesce(2), positions={})
        added += live_scores.score_new(spark, silver, scores, model, told.threshold)
        assert live_scores.score_new(spark, silver, scores, model, told.threshold) == 0
    at_once = model.score(finished_rides(events), told.threshold)
    stored = {row["ride_id"]: row["score"] for row in scores.read(spark).collect()}
    assert stored == {row["ride_id"]: row["score"] for row in at_once.collect()}
    assert added == len(stored) == len(ended(made, told))


def test_scores_survive_the_way_through_a_message(spark: "SparkSession") -> None:
    row = ("ride-1", "e1", MOMENT, "Köln", "rider-1", "driver-1")
    scores = spark.createDataFrame(
        [(*row, "v1", 0.123457, False, MOMENT.date())], schema_of("fraud_scores")
    )
    sent = live_scores.messages(scores)
    assert bytes(sent.collect()[0]["key"]) == b"ride-1"
    back = live_scores.scores_of(sent.selectExpr("*", "0 as partition", "0L as offset"))
    names = [name for name in scores.columns if name != "date"]
    assert back.select(*names).collect() == scores.select(*names).collect()


def test_a_comparison_counts_what_plain_sets_count(spark: "SparkSession") -> None:
    live = {"a": 0.9, "b": 0.8, "c": 0.1, "d": 0.2, "only": 0.7}
    new = {"a": 0.95, "b": 0.3, "c": 0.6, "d": 0.0, "fresh": 1.0}
    truth = {"a": "fake_gps", "c": "collusion", "d": "collusion"}

    def said(scores: dict[str, float]) -> "DataFrame":
        rows = [(ride, score, score >= 0.5) for ride, score in scores.items()]
        return spark.createDataFrame(rows, "ride_id string, score double, is_fraud boolean")

    frauds = spark.createDataFrame(list(truth.items()), "ride_id string, pattern string")
    found = compared(said(live), said(new), frauds)
    assert (found.both, found.only_live, found.only_new) == (4, 1, 1)
    assert (found.fraud_to_both, found.fraud_to_live, found.fraud_to_new) == (1, 2, 2)
    assert found.agreement == 0.5
    assert found.difference_mean == pytest.approx((0.05 + 0.5 + 0.5 + 0.2) / 4)
    assert found.live_quality is not None
    assert found.new_quality is not None
    assert (found.live_quality.right, found.live_quality.wrong, found.live_quality.missed) == (
        1,
        1,
        2,
    )
    assert found.live_quality.precision == 0.5
    assert found.new_quality.precision == 1
    assert found.new_quality.recall == pytest.approx(2 / 3)
    assert found.patterns == (("collusion", 2, 0, 1), ("fake_gps", 1, 1, 1))
    assert [one[0] for one in found.differing] == ["b", "c"]
    assert found.new_histogram[-1] == 2
