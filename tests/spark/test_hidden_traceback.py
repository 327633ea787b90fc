"""Errors of the source and the sink as users see them in Spark: our sentence in the first line, without a traceback."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.model.errors import RespoolError
from respool.spark.hidden_traceback import hidden_traceback
from respool.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Action = Callable[["SparkSession", Broker, Path], None]


def read(spark: "SparkSession", broker: Broker, _folder: Path) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "nope"}
    spark.read.format("respool").options(**options).load().collect()


def write(spark: "SparkSession", broker: Broker, _folder: Path) -> None:
    broker.create_topic("out")
    rows = spark.range(1).selectExpr("repeat('x', 2000000) as value")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "out"}
    rows.write.format("respool").options(**options).mode("append").save()


def write_a_stream(spark: "SparkSession", broker: Broker, folder: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format("respool")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "nope"}
    writer = writer.options(**options, checkpointLocation=str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (read, "BadOption: subscribe names the topic 'nope', which is not there: create it"),
        (write, "RecordTooLarge: row 0 needs 2000"),
        (write_a_stream, "UnknownTopic: there is no topic 'nope': create it"),
    ],
    ids=["source", "sink", "stream"],
)
def test_sparks_error_begins_with_our_sentence(
    spark: "SparkSession", broker: Broker, tmp_path: Path, action: "Action", words: str
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one class for each place
        action(spark, broker, tmp_path)
    told = str(raised.value)
    assert words in "".join(told.splitlines()[:2])
    assert "Traceback" not in told
    assert raised.value.__cause__ is None


def test_users_functions_keep_their_traceback(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """The process of our error has ended, so that nobody else inherits what it set."""
    from pyspark.sql.functions import udf

    with pytest.raises(Exception, match="row 0"):
        write(spark, broker, tmp_path)
    with pytest.raises(Exception, match=r"Traceback[\s\S]*ZeroDivisionError"):
        spark.range(2).select(udf(lambda number: 1 // number)("id")).collect()


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(RespoolError), hidden_traceback():
        raise RespoolError("x")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
