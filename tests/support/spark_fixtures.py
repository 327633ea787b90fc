"""Tests with Spark share a session, in one process: most of the pipeline's one, and all others one. For their conftest.

One for all would be used longer than the whole run takes. Each test has a broker of its own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from respool.testing import Broker
from support.spark import the_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of the pipeline's tests, so that both groups take about as long: see `.durations/files.tsv`.
WITH_ALL_OTHERS = ("test_pipeline_page.py", "test_continuous.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    # As soon as it is known: xdist looks for groups when all are, maybe before the hooks of this folder.
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group(group_of(item.nodeid)))
        # PySpark's own, and what its sockets leave to the collector.
        item.add_marker(pytest.mark.filterwarnings("ignore"))


def group_of(nodeid: str) -> str:
    # By the names of the tests alone: a checkout's folder may be called anything.
    path = nodeid.partition("::")[0]
    if path.endswith(WITH_ALL_OTHERS) or "pipeline" not in path:
        return "spark"
    return "spark-pipeline"


@pytest.fixture
def spark() -> "SparkSession":
    return the_session()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
