"""Spark writing to a topic, beside a sink that drops everything: in a process of its own, figures as JSON on stdout."""

import json
import statistics
import sys
import tempfile
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.spark_source_load import TASKS, TOPIC, _best, _from_memory, _from_topic, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET = "written"
FLOOR_BATCHES = 25
# The first ones start processes and compile kernels.
FLOOR_WARM = 5
FLOOR_ROWS = 100
WARM_ROWS = 200_000


def main() -> None:
    bootstrap, rows, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    from bench.spark_memory import MemorySource
    from respool.spark import session

    write(bootstrap, max(rows, WARM_ROWS))
    spark = session("bench", master="local[2]", settings={"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemorySource)
    sinks = {
        "dropped": {"format": "noop"},
        "exactly once": _options(bootstrap),
        "at least once": _options(bootstrap) | {"exactlyOnce": "false"},
    }
    for sink in sinks.values():
        _save(_from_memory(spark, WARM_ROWS), sink)
    _from_topic(spark, bootstrap, WARM_ROWS, rows).count()
    found: dict[str, dict[str, float]] = {}
    source = _from_topic(spark, bootstrap, rows, rows)
    found["read into a count"] = _best(repeats, rows, source.count)
    kept = _kept(spark, rows)
    for origin, frame in (
        ("from a Python source", _from_memory(spark, rows)),
        ("kept by Spark", kept),
    ):
        for name, sink in sinks.items():
            found[f"{origin}, {name}"] = _best(repeats, rows, partial(_save, frame, sink))
    kept.unpersist()
    found["topic to topic, exactly once"] = _best(
        repeats, rows, lambda: _save(source, sinks["exactly once"])
    )
    for name, sink in sinks.items():
        found[f"floor, {name}"] = _floor(spark, bootstrap, sink)
    spark.stop()
    print(json.dumps(found))


def _kept(spark: "SparkSession", rows: int) -> "DataFrame":
    """Rows that Spark has in memory already: what then takes time is the sink."""
    frame = _from_memory(spark, rows).select("key", "value").cache()
    frame.count()
    return frame


def _options(bootstrap: str) -> dict[str, str]:
    return {"format": "respool", "kafka.bootstrap.servers": bootstrap, "topic": TARGET}


def _save(frame: "DataFrame", sink: dict[str, str]) -> None:
    options = {name: value for name, value in sink.items() if name != "format"}
    wanted = frame.select("key", "value") if options else frame
    wanted.write.format(sink["format"]).options(**options).mode("append").save()


def _floor(spark: "SparkSession", bootstrap: str, sink: dict[str, str]) -> dict[str, float]:
    """Small batches as fast as they go: how long one takes, and what of it Spark calls writing."""
    source = (
        spark.readStream.format("respool")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC})
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(FLOOR_ROWS))
        .load()
        .select("key", "value")
    )
    options = {name: value for name, value in sink.items() if name != "format"}
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            source.writeStream.format(sink["format"])
            .options(**options, checkpointLocation=checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        progress: list[Any] = []
        while len(progress) < FLOOR_BATCHES and query.isActive:
            query.awaitTermination(1)
            progress = [one for one in query.recentProgress if one["numInputRows"]]
        query.stop()
    taken = [one["durationMs"] for one in progress[FLOOR_WARM:]]
    return {
        "batch_ms": statistics.median(one["triggerExecution"] for one in taken),
        "writing_ms": statistics.median(one["addBatch"] for one in taken),
        "tasks": TASKS,
    }


if __name__ == "__main__":
    main()
