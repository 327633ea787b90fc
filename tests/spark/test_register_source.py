"""`format("respool")` where Spark searches a Python without Respool: the environment is not active."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from respool.client.arrow.writing.write_table import write_table
from respool.spark.register_source import is_of_this_environment
from respool.testing import Broker

_A_SESSION_OF_ONES_OWN = """
import sys
from pyspark.sql import SparkSession
from respool.spark import session

own = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
python = own.sparkContext.pythonExec

def rides():
    return own.read.format("respool").option("bootstrap", sys.argv[1]).option("subscribe", "rides").load()

try:
    rides()
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" if "[DATA_SOURCE_NOT_FOUND]" in str(error) else error)
assert session() is own  # It calls `register`.
print(rides().count())
assert own.sparkContext.pythonExec == python
"""


@pytest.mark.spark
def test_a_session_without_the_active_environment_finds_the_source_when_told(
    broker: Broker, tmp_path: Path
) -> None:
    rows = pa.table({"value": ["requested", "assigned"]})
    broker.create_topic("rides")
    write_table(rows, "rides", bootstrap=broker.bootstrap)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=60)
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    # Its `python3` is the one that Spark finds first.
    environment["PATH"] = f"{bare / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", _A_SESSION_OF_ONES_OWN, broker.bootstrap],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["DATA_SOURCE_NOT_FOUND", "2"]


def test_a_python_of_another_environment_is_told_from_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All environments' Pythons may be links to the same file."""
    (tmp_path / "python3").symlink_to(sys.executable)
    assert is_of_this_environment(sys.executable)
    assert is_of_this_environment(str(Path(sys.executable).with_name("python3")))
    assert not is_of_this_environment(str(tmp_path / "python3"))
    assert not is_of_this_environment("no-such-python")
    # It is in the environment, and cannot run Spark's workers.
    assert not is_of_this_environment(str(Path(sys.executable).with_name("pytest")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_of_this_environment("python3")
