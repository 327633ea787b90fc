"""The source inside Spark: what only the two together can show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import respool
from respool.testing import Broker
from support.spark_story import Story

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

T0 = 1_700_000_000_000
MANY = 60_000


def frame(spark: "SparkSession", broker: Broker, **given: Any) -> "DataFrame":
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "rides"} | given
    return spark.read.format("respool").options(**options).load()


@pytest.fixture
def rides(story: Story) -> Story:
    """Many messages in two partitions, a millisecond apart."""
    story.topics.create("rides", partitions=2, retention_ms=-1)
    table = pa.table(
        {
            "key": [f"k{number % 100}" for number in range(MANY)],
            "value": [f"{number:0100}" for number in range(MANY)],
            "timestamp": [T0 + number for number in range(MANY)],
            "to": [number % 2 for number in range(MANY)],
        }
    )
    respool.write_table(table, "rides", bootstrap=story.broker.bootstrap, partition="to")
    return story


def test_a_topic_is_a_frame(spark: "SparkSession", rides: Story) -> None:
    df = frame(spark, rides.broker, minPartitions="3")
    total = df.selectExpr("sum(cast(cast(value as string) as bigint)) as total", "count(*) as n")
    assert total.collect()[0].asDict() == {"total": sum(range(MANY)), "n": MANY}
    assert df.rdd.getNumPartitions() == 3
    (row,) = df.where("partition = 1 and offset = 0").collect()
    assert (row.key, row.topic, row.timestampType) == (b"k1", "rides", 0)
    assert row.timestamp.timestamp() * 1000 == pytest.approx(T0 + 1)


def test_workers_that_have_read_collect_no_more_than_tasks_make(
    spark: "SparkSession", rides: Story
) -> None:
    from respool.spark.data_source import RespoolDataSource
    from respool.spark.source.batch_reader import BatchReader

    class Reader(BatchReader):
        def read(self, partition: "InputPartition") -> Iterator[pa.RecordBatch]:
            import gc

            *_, last = super().read(partition)
            at = last.schema.get_field_index("offset")
            frozen = pa.array([gc.get_freeze_count()])
            yield last.slice(0, 1).set_column(at, last.schema.field(at), frozen)

    class Probe(RespoolDataSource):
        """A source like ours, whose offsets are how many objects the garbage collector passes over."""

        @classmethod
        def name(cls) -> str:
            return "probe"

        def reader(self, schema: "StructType") -> "DataSourceReader":
            return Reader(self.options, schema)

    spark.dataSource.register(Probe)
    options = {"kafka.bootstrap.servers": rides.broker.bootstrap, "subscribe": "rides"}
    rows = spark.read.format("probe").options(**options).load().collect()
    assert [row.offset > 50_000 for row in rows] == [True, True], rows


def test_filters_reach_the_plan_so_that_less_is_read(spark: "SparkSession", rides: Story) -> None:
    df = frame(spark, rides.broker)
    (at,) = spark.sql(f"select timestamp_millis({T0 + MANY - 100}) as at").collect()
    late = df.where(df.timestamp >= at["at"])
    plan = late._jdf.queryExecution().executedPlan().toString()
    # Spark has nothing left to filter by time.
    assert "Filter (" not in plan
    assert late.count() == 100
    of_key = df.where("key = X'6B37' and partition = 1 and offset < 100")
    assert {row.key for row in of_key.collect()} == {b"k7"}
    assert of_key.count() == 2


def test_without_sparks_setting_filters_are_sparks_own_work(
    spark: "SparkSession", rides: Story
) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        df = frame(spark, rides.broker)
        assert df.where("partition = 1 and offset < 100").count() == 100
    finally:
        spark.conf.set(setting, "true")


def test_headers_and_chosen_columns_come_as_asked_for(spark: "SparkSession", story: Story) -> None:
    story.topics.create("rides")
    headers = [[("trace", b"1"), ("empty", None)], []]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "value": ["with", "without"],
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in one] for one in headers], kind
            ),
        }
    )
    respool.write_table(table, "rides", bootstrap=story.broker.bootstrap)
    options = {"kafka.bootstrap.servers": story.broker.bootstrap, "subscribe": "rides"}
    reader = spark.read.format("respool").options(**options)
    rows = reader.option("includeHeaders", "true").load().orderBy("offset").collect()
    assert [(one.key, one.value) for one in rows[0].headers] == [("trace", b"1"), ("empty", None)]
    assert rows[1].headers is None
    chosen = spark.read.format("respool").schema("offset long, value binary").options(**options)
    assert [tuple(row) for row in chosen.load().collect()] == [(0, b"with"), (1, b"without")]


def test_tags_select_rows_of_frames_and_streams(spark: "SparkSession", story: Story) -> None:
    story.topics.create("rides", partitions=2)
    for partition in (0, 1):
        story.write(
            "rides",
            range(10),
            to=partition,
            key=[f"k{number % 2}" for number in range(10)],
            tag=["paid" if number % 5 == 0 else "open" for number in range(10)],
        )
    df = frame(spark, story.broker, tags='{"tag": "paid"}', includeHeaders="true")
    assert df.count() == 4
    assert {(row.headers[0].value, row.value) for row in df.collect()} == {
        (b"paid", b"0"),
        (b"paid", b"5"),
    }
    assert df.where("key = X'6B31' and partition = 1").count() == 1
    # Spark has no form of filter for elements of an array: it applies this one itself.
    tagged = frame(spark, story.broker, includeHeaders="true").where(
        "exists(headers, one -> one.key = 'tag' and one.value = X'70616964')"
    )
    assert "Filter exists(" in tagged._jdf.queryExecution().executedPlan().toString()
    assert tagged.count() == 4
    stream = (
        spark.readStream.format("respool")
        .options(**{"kafka.bootstrap.servers": story.broker.bootstrap})
        .options(subscribe="rides", startingOffsets="earliest", tags="tag = 'paid'")
        .load()
    )
    query = stream.writeStream.format("memory").queryName("paid").trigger(availableNow=True)
    running = query.start()
    assert running.awaitTermination(120)
    assert spark.table("paid").count() == 4
    assert running.lastProgress is not None
    ended = json.loads(running.lastProgress.sources[0].endOffset)
    assert ended["rides"]["offsets"] == {"0": 10, "1": 10}


def test_mistakes_are_sparks_errors_that_name_the_option(
    spark: "SparkSession", story: Story
) -> None:
    from pyspark.errors import AnalysisException

    story.topics.create("rides")
    with pytest.raises(AnalysisException, match="no option 'subscribee'; did you mean 'subscribe'"):
        frame(spark, story.broker, subscribee="x")
    with pytest.raises(AnalysisException, match="lacks"):
        frame(spark, story.broker, startingOffsets='{"rides": {"1": 1}}').collect()


class Query:
    """A stream into a list, with a checkpoint."""

    def __init__(self, spark: "SparkSession", broker: Broker, folder: Path, **given: Any) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": "rides",
            "startingOffsets": "earliest",
        } | given

    def run(self) -> list[list[str]]:
        """All that is there now, batch by batch."""
        batches: list[list[str]] = []

        def take(df: "DataFrame", number: int) -> None:
            batches.append(sorted(row.value.decode() for row in df.select("value").collect()))

        frame = self._spark.readStream.format("respool").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(take)
        query = (
            writer.trigger(availableNow=True)
            .option("checkpointLocation", str(self._folder))
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive
        return batches


def test_a_query_restarts_from_its_checkpoint_and_sees_what_became_of_its_topic(
    spark: "SparkSession", story: Story, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    story.topics.create("rides")
    story.write("rides", range(10, 20), to=0)
    query = Query(spark, story.broker, tmp_path, maxOffsetsPerTrigger="6")
    assert [len(batch) for batch in query.run()] == [6, 4]
    # Where it has come is to be seen from outside, also of its last batch.
    assert story.committed("spark-respool-rides") == {0: 10}
    story.write("rides", [20], to=0)
    story.topics.grow("rides", partitions=2)
    story.write("rides", [21], to=1)
    assert query.run() == [["20", "21"]]
    story.topics.delete("rides")
    story.topics.create("rides", partitions=2)
    story.write("rides", range(30, 35), to=0)
    with pytest.raises(StreamingQueryException, match=r"made again.*failOnDataLoss"):
        query.run()
    lenient = Query(spark, story.broker, tmp_path, failOnDataLoss="false")
    assert lenient.run() == [["30", "31", "32", "33", "34"]]
