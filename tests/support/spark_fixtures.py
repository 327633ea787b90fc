"""Tests with Spark share one session, in one process; each has a broker of its own. For their conftest."""

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
            item.add_marker(pytest.mark.xdist_group("spark"))
            # PySpark's own, and what its sockets leave to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def spark() -> "SparkSession":
    return the_session()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
