"""Spark reading a topic, and the same rows from memory: run in a process of its own, figures as JSON on stdout."""

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "rides"
TASKS = 4
SPAN = timedelta(days=3)
WARM_ROWS = 200_000
MIB = 1024 * 1024


def main() -> None:
    bootstrap, rows, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    from bench.spark_memory import MemorySource
    from respool.spark import session

    write(bootstrap, rows)
    spark = session("bench", master="local[2]", settings={"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemorySource)
    found: dict[str, dict[str, float]] = {}
    pairs: dict[str, Callable[[DataFrame], object]] = {"count": _count, "aggregation": _aggregate}
    sources: dict[str, Callable[[int], DataFrame]] = {
        "memory": lambda count: _from_memory(spark, count),
        "topic": lambda count: _from_topic(spark, bootstrap, count, rows),
    }
    for source in sources.values():
        for action in pairs.values():
            action(source(WARM_ROWS))
    for what, action in pairs.items():
        for name, source in sources.items():
            frame = source(rows)
            found[f"{what}, {name}"] = _best(repeats, rows, partial(action, frame))
    if sys.argv[4:] != ["pairs"]:
        found |= _narrowed(spark, bootstrap, rows, repeats)
        found["stream"] = _best(repeats, rows, lambda: _stream(spark, bootstrap, rows))
    spark.stop()
    print(json.dumps(found))


def write(bootstrap: str, rows: int) -> None:
    """Rows whose times are spread over the last three days, in four partitions."""
    import numpy as np
    import pyarrow as pa

    from respool import ArrowProducer

    piece = 500_000
    now_ms = int(time.time() * 1000)
    step_ms = SPAN / timedelta(milliseconds=1) / rows
    with ArrowProducer(bootstrap) as producer:
        for begin in range(0, rows, piece):
            numbers = np.arange(begin, min(rows, begin + piece))
            values = np.char.zfill(numbers.astype("S"), 100)
            keys = np.char.zfill((numbers % 1000).astype("S"), 8)
            times = now_ms - int(SPAN / timedelta(milliseconds=1)) + (numbers * step_ms)
            table = pa.table(
                {
                    "key": pa.array(keys),
                    "value": pa.array(values),
                    "timestamp": pa.array(times.astype(np.int64)),
                    "to": pa.array((numbers % TASKS).astype(np.int32)),
                }
            )
            producer.write(table, TOPIC, partition="to")
        producer.flush()


def _options(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}


def _from_memory(spark: "SparkSession", rows: int) -> "DataFrame":
    options = {"rows": str(rows), "tasks": str(TASKS)}
    return spark.read.format("bench-memory").options(**options).load()


def _from_topic(spark: "SparkSession", bootstrap: str, rows: int, all_rows: int) -> "DataFrame":
    reader = spark.read.format("respool").options(**_options(bootstrap))
    if rows < all_rows:
        ends = {str(number): rows // TASKS for number in range(TASKS)}
        reader = reader.option("endingOffsets", json.dumps({TOPIC: ends}))
    return reader.option("maxRecordsPerPartition", str(all_rows)).load()


def _count(frame: "DataFrame") -> object:
    return frame.count()


def _aggregate(frame: "DataFrame") -> object:
    asked = ["count(*)", "sum(length(value))", "max(timestamp)", "min(offset)"]
    return frame.groupBy("partition").agg(*_expressions(asked)).collect()


def _expressions(asked: list[str]) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(one) for one in asked]


def _narrowed(
    spark: "SparkSession", bootstrap: str, rows: int, repeats: int
) -> dict[str, dict[str, float]]:
    """A tenth of the log, found by time; columns and keys left out."""
    end_ms = int((time.time() - SPAN.total_seconds() * 0.4) * 1000)
    start_ms = end_ms - int(SPAN.total_seconds() * 100)
    reader = spark.read.format("respool").options(**_options(bootstrap))
    between = reader.options(startingTimestamp=start_ms, endingTimestamp=end_ms).load()
    whole = spark.read.format("respool").options(**_options(bootstrap)).load()
    since = whole.where(f"timestamp >= timestamp_millis({end_ms + 0})")
    of_key = whole.where("key = X'3030303030303037'")
    columns = spark.read.format("respool").schema("offset long, timestamp timestamp")
    pruned = columns.options(**_options(bootstrap)).load()
    return {
        "replay of a tenth, by time": _best(repeats, rows // 10, between.count),
        "where timestamp >= (two fifths left)": _best(repeats, int(rows * 0.4), since.count),
        "where key = one of 1,000": _best(repeats, rows, of_key.count),
        "two columns of all": _best(repeats, rows, pruned.count),
    }


def _stream(spark: "SparkSession", bootstrap: str, rows: int) -> None:
    reader = spark.readStream.format("respool").options(**_options(bootstrap))
    frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=rows // 4).load()
    folder = tempfile.mkdtemp(prefix="respool-bench-")
    try:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- measuring ---------------------------------------------------------------------------------------------------------


def _best(repeats: int, rows: int, action: Callable[[], object]) -> dict[str, float]:
    """The one with the least CPU: others work on the machine too."""
    return min((_measure(rows, action) for _ in range(repeats)), key=lambda one: one["cpu_s"])


def _measure(rows: int, action: Callable[[], object]) -> dict[str, float]:
    watch = Watch()
    began = time.perf_counter()
    with watch:
        action()
        seconds = time.perf_counter() - began
    return {
        "rows": rows,
        "seconds": seconds,
        "cpu_s": watch.cpu_s,
        "worker_bytes": watch.worker_bytes,
    }


class Watch:
    """What Spark and its Python processes take meanwhile: CPU, and the most memory that one of the latter had."""

    def __init__(self) -> None:
        self.worker_bytes = 0
        # By process; those that end keep what was seen last.
        self._cpu_before: dict[int, float] = {}
        self._cpu: dict[int, float] = {}
        self._done = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._look()
        self._cpu_before = dict(self._cpu)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    @property
    def cpu_s(self) -> float:
        return sum(spent - self._cpu_before.get(one, 0.0) for one, spent in self._cpu.items())

    def _run(self) -> None:
        while not self._done.wait(0.1):
            self._look()

    def _look(self) -> None:
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                times = one.cpu_times()
                self._cpu[one.pid] = times.user + times.system
                # Not Java, nor what it becomes for a moment when it starts another.
                if one.name().startswith("python"):
                    self.worker_bytes = max(self.worker_bytes, one.memory_info().rss)


if __name__ == "__main__":
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    main()
