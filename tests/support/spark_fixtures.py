"""Tests with Spark share a session, in one process: the pipeline's jobs one, and all others one. For their conftest.

One for all would be used longer than the whole run takes. Each test has a broker of its own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from respool.testing import Broker
from support.spark import the_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # Of the tests' names alone: a checkout's folder may be called anything.
            group = "spark-pipeline" if "pipeline" in item.nodeid.partition("::")[0] else "spark"
            item.add_marker(pytest.mark.xdist_group(group))
            # PySpark's own, and what its sockets leave to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def spark() -> "SparkSession":
    return the_session()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
