"""The door to topics: what a window of time holds, and a broker that is away for a moment."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import trustme

import respool
from pipeline.making import TOPIC
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.security import Login, Security, Tls
from respool.pipeline import topic_frames
from respool.pipeline.job_settings import PipelineSettings
from respool.pipeline.jobs import EventsGone, PipelineError
from respool.pipeline.topic_frames import lost
from respool.testing import Broker
from support.secured_gate import secured_broker, server_side

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

T0 = 1_763_164_800_000
FIRST = {0: 10, 1: 0, 2: 7, 3: 9}
# Read up to 4, nothing yet, as far as the log begins, beyond its start.
KNOWN = {0: 4, 1: None, 2: 7, 3: 12}


def test_spark_redacts_the_options_that_have_a_password(
    spark: "SparkSession", tmp_path: "Path"
) -> None:
    password = "four strings"
    for protocol, tls in (("SASL_PLAINTEXT", None), ("SASL_SSL", Tls())):
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            login = Login(mechanism=mechanism, username="app", password=password)
            told = PipelineSettings(
                data=tmp_path, bootstrap="kafka-1:9093", security=Security(tls=tls, login=login)
            )
            options = topic_frames.connection_options(told)
            assert options["kafka.security.protocol"] == protocol
            assert any(password in value for value in options.values())
            shown = redacted(spark, options)
            assert "kafka-1:9093" in shown
            assert password not in shown


def redacted(spark: "SparkSession", options: "Mapping[str, str]") -> str:
    """What Spark shows of a source's or a sink's options, in plans and in its UI."""
    assert spark._jvm is not None
    scala = spark._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(dict(options))
    return str(spark._jsparkSession.sessionState().conf().redactOptions(scala))


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


def test_a_topic_behind_tls_and_a_login_is_created_read_and_written(
    spark: "SparkSession", tmp_path: "Path", capsys: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    password = "four strings"
    with secured_broker(tls=server_side(authority), users={"app": password}) as gate:
        told = PipelineSettings(
            data=tmp_path,
            bootstrap=gate.address,
            security=Security(
                tls=Tls(authorities=str(file)),
                login=Login(mechanism="SCRAM-SHA-512", username="app", password=password),
            ),
            client={"client_id": "night-job", "connect_timeout_ms": 7_000, "retry_ms": 20_000},
        )
        topic_frames.ensure(told, "scores", like=TOPIC)
        # A second time there is nothing to do.
        topic_frames.ensure(told, "scores", like=TOPIC)
        assert len(topic_frames.readers(told, "scores")) == 3
        table = pa.table({"value": pa.array([b"1", b"2"], pa.binary())})
        respool.write_table(table, TOPIC, bootstrap=told.bootstrap, security=told.security)
        first, last = topic_frames.ends(told, TOPIC)
        frame = topic_frames.read_between(spark, told, TOPIC, start=first, end=last)
        assert sorted(bytes(row["value"]) for row in frame.collect()) == [b"1", b"2"]
        frame.explain(mode="extended")
        assert password not in capsys.readouterr().out
        stream = topic_frames.read_stream(spark, told, TOPIC, group="copy").select("key", "value")
        query = (
            topic_frames.write_stream(stream, told, "scores")
            # The gate does not announce transactions of version 2.
            .option("exactlyOnce", "false")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        written = respool.read_table("scores", bootstrap=told.bootstrap, security=told.security)
        assert sorted(written["value"].to_pylist()) == [b"1", b"2"]


def test_a_topic_that_may_not_be_created_is_an_error_with_the_brokers_words(
    broker: Broker, tmp_path: "Path"
) -> None:
    broker.create_topic(TOPIC, partitions=1)
    told = PipelineSettings(data=tmp_path, bootstrap=broker.bootstrap)
    with pytest.raises(PipelineError, match=r"'a b' cannot be made: .*INVALID_TOPIC_EXCEPTION"):
        topic_frames.ensure(told, "a b", like=TOPIC)


def test_events_deleted_before_they_were_read_end_the_job_with_their_offsets() -> None:
    with pytest.raises(EventsGone, match=r"partition 0: offsets 4 to 9\).*--accept-loss"):
        lost("rides", FIRST, KNOWN, is_accepted=False, table="bronze")


def test_a_loss_that_is_accepted_is_counted() -> None:
    assert lost("rides", FIRST, KNOWN, is_accepted=True, table="bronze") == {0: 6}


def test_a_table_that_has_read_nothing_yet_has_lost_nothing() -> None:
    assert lost("rides", FIRST, dict.fromkeys(FIRST), is_accepted=False, table="bronze") == {}
