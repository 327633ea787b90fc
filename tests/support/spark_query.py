"""A streaming query from topic to topic as a process of its own, which can be killed at any moment, wholly or in part.

The test's side is `SparkQuery`. The process's side (`main`) runs the query, starts it again from its checkpoint when it
fails, and writes one line for each batch: how many rows that had. Asked to finish, it ends when it has come to the end.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

MADE = b"made of "
BATCH_SECONDS_MAX = 400.0
# Where tasks run in executors: whatever is a little slower than others is begun a second time.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
# Whoever dies takes a moment; what lives on shows itself by then.
_PAUSE_SECONDS = 0.05


class SparkQuery:
    def __init__(
        self,
        address: str,
        *,
        source: str,
        target: str,
        checkpoint: Path,
        rows: int,
        master: str = "local[2,4]",
        is_last: bool = False,
    ) -> None:
        wish = {
            "address": address,
            "source": source,
            "target": target,
            "checkpoint": str(checkpoint),
            "rows": rows,
            "master": master,
            "is_last": is_last,
        }
        self.log = checkpoint.parent / "query.log"
        # A file, not a pipe: its Python workers live on for a while, and would hold the other end.
        handle, path = tempfile.mkstemp(prefix="batches-", dir=checkpoint.parent)
        self._batches = Path(path)
        with self.log.open("ab") as log, open(handle, "wb") as batches:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.spark_query", json.dumps(wish)],
                stdout=batches,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            )

    @property
    def batches(self) -> list[int]:
        """The rows of each batch that it has told of."""
        return [int(line) for line in self._batches.read_bytes().split(b"\n")[:-1]]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def wait_for_batches(self, count: int) -> None:
        """So many more than there are."""
        wanted = len(self.batches) + count
        wait_until(
            lambda: len(self.batches) >= wanted or not self.is_running,
            f"{count} batches; {self.tail}",
            seconds=BATCH_SECONDS_MAX,
        )

    def wait_for_end(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def kill_driver(self) -> None:
        """The Python that started the query and Spark's JVM. Python workers live on until they notice."""
        self._kill([psutil.Process(self._process.pid), *self._javas()])
        self._process.wait()

    def kill_all(self) -> None:
        """As when the machine goes."""
        with suppress(psutil.NoSuchProcess):
            self._kill([psutil.Process(self._process.pid), *self._children()])
        self._process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        """One of Spark's Python processes: a task's, a daemon, the one that commits."""
        return self._kill_one(rng, [one for one in self._children() if "python" in _name(one)])

    def kill_executor(self, rng: random.Random) -> bool:
        """A JVM that runs tasks, where there are such."""
        return self._kill_one(
            rng, [one for one in self._javas() if "ExecutorBackend" in _line(one)]
        )

    def _kill_one(self, rng: random.Random, choices: list[psutil.Process]) -> bool:
        if not choices:
            return False
        self._kill([rng.choice(choices)])
        return True

    def _children(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    def _javas(self) -> list[psutil.Process]:
        return [one for one in self._children() if "java" in _name(one)]

    def _kill(self, processes: list[psutil.Process]) -> None:
        for one in processes:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        time.sleep(_PAUSE_SECONDS)


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _line(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    wish = json.loads(sys.argv[1])
    from respool.spark import session

    spark = session(
        "torture",
        master=wish["master"],
        settings={
            "spark.executor.memory": "512m",
            "spark.driver.memory": "768m",
            "spark.sql.streaming.minBatchesToRetain": "20",
            "spark.task.maxFailures": "4",
            "spark.python.worker.faulthandler.enabled": "false",
            **SPECULATION,
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    brokers = {"kafka.bootstrap.servers": wish["address"]}
    frame = (
        spark.readStream.format("respool")
        .options(**brokers, subscribe=wish["source"], startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(wish["rows"]))
        .load()
        .selectExpr("key", "concat('made of ', cast(value as string)) as value")
    )
    while True:
        query = _start(frame, wish, brokers)
        if _follow(query) and wish["is_last"]:
            break
    os._exit(0)


def _start(frame: "DataFrame", wish: dict[str, Any], brokers: dict[str, str]) -> "StreamingQuery":
    writer = frame.writeStream.format("respool").options(
        **brokers, topic=wish["target"], checkpointLocation=wish["checkpoint"]
    )
    if wish["is_last"]:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def _follow(query: "StreamingQuery") -> bool:
    """Tell of its batches; whether it ended well."""
    told = -1
    while True:
        try:
            is_over = query.awaitTermination(0.05)  # type: ignore[arg-type]
        except Exception as error:
            sys.stderr.write(f"{time.strftime('%X')} starts again after: {str(error)[:3000]}\n")
            sys.stderr.flush()
            return False
        for progress in query.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                sys.stdout.write(f"{progress['numInputRows']}\n")
                sys.stdout.flush()
        if is_over:
            return True


if __name__ == "__main__":
    main()
