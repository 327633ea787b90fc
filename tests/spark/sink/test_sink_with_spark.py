"""The sink inside Spark: what only the two together can show."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, WriterCommitMessage

import respool
from respool.spark.data_source import RespoolDataSource
from respool.testing import Broker
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

EVENTS = 900


def values(broker: Broker, topic: str) -> list[str]:
    table = respool.read_table(topic, bootstrap=broker.bootstrap, columns=["value"])
    return sorted(one.decode() for one in table.column("value").to_pylist())


def save(frame: "DataFrame", broker: Broker, mode: str = "append", **options: str) -> None:
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("respool").options(**brokers, **options).mode(mode).save()


def test_a_frame_becomes_messages_in_the_topics_it_names(
    spark: "SparkSession", broker: Broker
) -> None:
    broker.create_topic("even", 2)
    broker.create_topic("odd", 2)
    frame = spark.range(10).selectExpr(
        "if(id % 2 = 0, 'even', 'odd') as topic",
        "cast(id as string) as key",
        "cast(concat('v', id) as binary) as value",
        "if(id < 5, 1, null) as partition",
        "array(struct('id' as key, cast(cast(id as string) as binary) as value)) as headers",
        "current_timestamp() as ignored",
    )
    save(frame, broker)
    wait_until(lambda: len(values(broker, "odd")) == 5, "the rows to be seen")
    assert values(broker, "even") == ["v0", "v2", "v4", "v6", "v8"]
    table = respool.read_table("odd", bootstrap=broker.bootstrap)
    found = {row["key"]: row for row in table.to_pylist()}
    assert {found[b"1"]["partition"], found[b"3"]["partition"]} == {1}
    assert found[b"7"]["headers"] == [{"key": "id", "value": b"7"}]


@pytest.mark.parametrize(
    ("columns", "options", "mode", "told"),
    [
        (["cast(id as string) as body"], {"topic": "out"}, "append", "no column 'value'"),
        (["id as value"], {"topic": "out"}, "append", "'value' is bigint"),
        (["cast(id as string) as value"], {}, "append", "set the option 'topic'"),
        (["cast(id as string) as value"], {"topci": "out"}, "append", "did you mean 'topic'"),
        (["cast(id as string) as value"], {"topic": "out"}, "overwrite", "a log only grows"),
        (["cast(id as string) as value"], {"topic": "none"}, "append", "no topic 'none'"),
        (["cast(null as string) as topic", "'v' as value"], {}, "append", "have no topic"),
    ],
)
def test_what_cannot_be_written_is_told_and_nothing_is(  # noqa: PLR0917
    spark: "SparkSession",
    broker: Broker,
    columns: list[str],
    options: dict[str, str],
    mode: str,
    told: str,
) -> None:
    broker.create_topic("out")
    with pytest.raises(Exception, match=told):
        save(spark.range(3).selectExpr(*columns), broker, mode, **options)
    assert values(broker, "out") == []


def test_a_frame_whose_task_fails_leaves_nothing(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("out")
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 99, raise_error('broken row'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="broken row"):
        save(rows, broker, topic="out")
    assert values(broker, "out") == []
    # Nothing was left open that would hold readers back.
    save(spark.range(3).selectExpr("cast(id as string) as value"), broker, topic="out")
    wait_until(lambda: values(broker, "out") == ["0", "1", "2"], "the next frame to be seen")


def test_a_named_write_that_is_repeated_adds_nothing(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("out")
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    for version in ("7", "7", "8"):
        save(frame, broker, topic="out", txnAppId="nightly", txnVersion=version)
    wait_until(lambda: len(values(broker, "out")) >= 6, "both to be seen")
    assert values(broker, "out") == ["0", "0", "1", "1", "2", "2"]


def dying_source(marker: Path) -> type[DataSource]:
    """The sink, whose driver dies once: after it has decided batch 1, before it commits it."""
    # Made in here, so that Spark sends the class itself, and not the name of this module.
    from respool.spark.sink.stream_writer import StreamWriter

    class DyingWriter(StreamWriter):
        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            from respool.spark.sink import executing

            def die(*_: object, **__: object) -> None:
                marker.touch()
                raise RuntimeError("the driver died")

            if batchId == 1 and not marker.exists():
                real, executing.end_all = executing.end_all, die  # type: ignore[assignment]
                try:
                    super().commit(messages, batchId)
                finally:
                    executing.end_all = real
            super().commit(messages, batchId)

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            """Dead drivers do not."""

    class DyingSource(RespoolDataSource):
        @classmethod
        def name(cls) -> str:
            return "respool-dying"

        def streamWriter(  # noqa: N802
            self, schema: "StructType", overwrite: bool
        ) -> "DataSourceStreamWriter":
            return DyingWriter(self.options, schema, overwrite=overwrite)

    return DyingSource


def test_a_query_that_dies_between_decision_and_commit_goes_on_with_each_event_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("in", 2)
    broker.create_topic("out", 2)
    numbers = [f"{number:04}" for number in range(EVENTS)]
    respool.write_table(pa.table({"value": numbers}), "in", bootstrap=broker.bootstrap)
    spark.dataSource.register(dying_source(tmp_path / "died"))
    brokers: dict[str, Any] = {"kafka.bootstrap.servers": broker.bootstrap}
    # Computed anew, every row is another.
    frame = (
        spark.readStream.format("respool")
        .options(**brokers, subscribe="in", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(EVENTS // 3))
        .load()
        .selectExpr("concat(cast(value as string), ' ', uuid()) as value")
    )

    def run() -> None:
        query = (
            frame.writeStream.format("respool-dying")
            .options(**brokers, topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="the driver died"):
        run()
    run()
    wait_until(lambda: len(values(broker, "out")) >= EVENTS, "all events to be seen")
    assert [one.partition(" ")[0] for one in values(broker, "out")] == numbers
