"""One Spark for all tests that do not kill it: it takes ten seconds to start, and its first jobs are the slowest.

Scripts and commands that make a session of their own can be run in this process with the shared one: see `shared`.
"""

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For every JVM that tests start. Each lives for seconds or minutes: the optimizing compiler and a parallel garbage
# collector take more processor time in it than they save. Without the optimizing compiler, a JVM keeps only 48 MB for
# compiled code: Spark fills them, and the JVM then sweeps and compiles again, a fifth of all the time it takes. Spark
# loads 9,000 classes to start and 30,000 in the end. To verify their bytecode is a sixth of the start, and each time
# their metadata outgrow what was meant for them (21 MB at first), the whole heap is collected.
JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def prepare_jvms() -> None:
    """Let all JVMs that this process and its children start have the options above, unless others are set."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)


@cache
def the_session() -> "SparkSession":
    from respool.spark import session

    on_ctrl_c = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        # It says of pandas 3 that some of its own pandas functions may not work; none is used here.
        warnings.simplefilter("ignore")
        made = session(
            "tests",
            master="local[2]",
            settings={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.stopTimeout": "60s",
                "spark.sql.streaming.pollingDelay": "10ms",
                # Each small job would be planned and compiled in pieces, for seconds, to run for milliseconds. Tests
                # that start a Spark of their own plan and compile as users' do.
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                # For tests that connect to this Spark: any free port.
                "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": "0",
            },
        )
    made.sparkContext.setLogLevel("ERROR")
    # Spark sets one of its own, which tests that run next in this process would meet.
    signal.signal(signal.SIGINT, on_ctrl_c)
    return made


@contextmanager
def shared(spark: "SparkSession", *, folder: Path) -> Iterator[None]:
    """Within it, whoever asks `respool.spark.session` for a session gets this one, and cannot stop it.

    Spark's relative paths begin at `folder`. Settings they make are gone afterwards.
    """
    before = spark.conf.getAll
    with patch.object(spark, "stop"), _paths_begin_at(folder, spark):
        try:
            yield
        finally:
            spark.sparkContext.setLogLevel("ERROR")
            for name, value in spark.conf.getAll.items():
                if name not in before:
                    spark.conf.unset(name)
                elif value != before[name]:
                    spark.conf.set(name, before[name])


@contextmanager
def _paths_begin_at(folder: Path, spark: "SparkSession") -> Iterator[None]:
    """A JVM stays in the folder it was started in; Hadoop's file systems have one of their own, and look at this."""
    jvm = spark._jvm
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())

    def move(path: str) -> str:
        files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(path))
        return str(jvm.System.setProperty("user.dir", path))

    before = move(str(folder))
    try:
        yield
    finally:
        move(before)
