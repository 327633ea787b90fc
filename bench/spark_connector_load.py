"""Spark's own Kafka connector on the same topic. Run by the Python and Spark that `make interop-spark` fetched for it.

Knows nothing of Respool: arguments are a broker's address, the topic, its rows, repeats, and jars. Figures as JSON.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr


def main() -> None:
    bootstrap, topic, rows, repeats, jars = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = spark.read.format("kafka").options(**options).load()

    def stream() -> None:
        reader = spark.readStream.format("kafka").options(**options)
        limited = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=int(rows) // 4)
        with tempfile.TemporaryDirectory(prefix="respool-bench-") as folder:
            writer = limited.load().writeStream.format("noop")
            query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
            query.awaitTermination()

    actions: dict[str, Callable[[], object]] = {
        "count, connector": frame.count,
        "aggregation, connector": lambda: _aggregate(frame),
        "stream, connector": stream,
    }
    frame.limit(100_000).count()
    found = {
        what: {"rows": int(rows), "seconds": min(_seconds(action) for _ in range(int(repeats)))}
        for what, action in actions.items()
    }
    spark.stop()
    print(json.dumps(found))


def _aggregate(frame: DataFrame) -> object:
    asked = ["count(*)", "sum(length(value))", "max(timestamp)", "min(offset)"]
    return frame.groupBy("partition").agg(*[expr(one) for one in asked]).collect()


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
