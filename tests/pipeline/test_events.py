"""Events that no generator makes: what is done with each, without a table or a broker."""

import json
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.making import frame, settings
from respool.pipeline.events import judged, quarantined, sound
from respool.pipeline.features import FEATURES, finished_rides, usual_prices, with_features
from respool.pipeline.model import prices_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = datetime(2026, 11, 12, 8, 1, 2, tzinfo=UTC)
EVENT: dict[str, Any] = {
    "event_id": "0123456789abcdef",
    "ride_id": "ride-0123456789abcdef",
    "event_type": "finished",
    "event_time": "2026-11-12T08:01:00Z",
    "city": "Köln",
    "rider_id": "rider-1",
    "driver_id": "driver-1",
    "fare": 12.5,
    "distance_km": 4.2,
    "duration_s": 600,
    "surge": 1.0,
    "schema_version": "1",
}


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "topic": "rides",
            "partition": 0,
            "offset": offset,
            "timestamp": MOMENT,
            "timestampType": 0,
            "key": None,
            "value": json.dumps({**EVENT, **changed}).encode(),
            "headers": None,
        }
        for offset, changed in enumerate(changes)
    ]


def test_a_number_too_large_for_its_column_goes_into_quarantine_and_stops_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    too_large = {
        "fare": 1e30,
        "distance_km": 1e9,
        "duration_s": 99_999_999_999,
        "lat": 10**400,
    }
    changes = [{}, *({name: number} for name, number in too_large.items())]
    found = judged(frame(spark, rows(*changes)), settings(tmp_path))
    aside = quarantined(found).orderBy("offset").collect()
    assert [(row["reason"], row["detail"]) for row in aside] == [
        ("wrong_type", name) for name in too_large
    ]
    assert [row["offset"] for row in sound(found).collect()] == [0]


def test_a_ride_without_surge_or_distance_has_features_and_so_a_score(
    spark: "SparkSession", tmp_path: Path
) -> None:
    changes: list[dict[str, Any]] = [
        {"surge": 0},
        {"surge": None},
        {"distance_km": None},
        {"fare": 0},
    ]
    found = finished_rides(sound(judged(frame(spark, rows(*changes)), settings(tmp_path))))
    # In a city where half of the rides are free, the usual price is nothing.
    for prices in (prices_frame(spark, {"Köln": 0.0}), usual_prices(found.where("fare = 0"))):
        seen = with_features(found, prices).select(*FEATURES).collect()
        assert len(seen) == len(changes)
        assert all(isfinite(number) for row in seen for number in row)
