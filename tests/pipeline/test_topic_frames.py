"""The door to topics: what a window of time holds, and a broker that is away for a moment."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import respool
from pipeline.making import TOPIC
from respool.client.kafka.cluster import Cluster
from respool.pipeline import topic_frames
from respool.pipeline.job_settings import PipelineSettings
from respool.testing import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

T0 = 1_763_164_800_000


def test_a_window_has_also_what_came_behind_the_first_later_message(
    spark: "SparkSession", broker: Broker, tmp_path: "Path"
) -> None:
    broker.create_topic(TOPIC, partitions=1, retention_ms=-1)
    told = PipelineSettings(data=tmp_path, bootstrap=broker.bootstrap)
    # The third is later than the window, the fourth is in it again.
    seconds = [0, 10, 30, 15, 40]
    times = [datetime.fromtimestamp(T0 / 1000 + one, UTC) for one in seconds]
    data = pa.table(
        {
            "value": pa.array([str(one).encode() for one in seconds], pa.binary()),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )
    respool.write_table(data, TOPIC, bootstrap=told.bootstrap)
    found = topic_frames.read_times(
        spark, told, TOPIC, since_ms=T0 + 5_000, until_ms=T0 + 20_000
    ).collect()
    assert sorted(bytes(row["value"]) for row in found) == [b"10", b"15"]


def test_a_broker_that_restarts_is_asked_again(
    broker: Broker, tmp_path: "Path", monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, partitions=2)
    told = PipelineSettings(data=tmp_path, bootstrap=broker.bootstrap)
    before = topic_frames.readers(told, TOPIC)
    waited: list[float] = []

    def back_meanwhile(_cluster: Cluster, seconds: float) -> None:
        if not waited:
            broker.start()
        waited.append(seconds)

    monkeypatch.setattr(Cluster, "sleep", back_meanwhile)
    broker.stop()
    assert topic_frames.readers(told, TOPIC) == before
    assert waited
