"""What tests with Spark have: see the module."""

from support.spark_fixtures import pytest_itemcollected, spark

__all__ = ["pytest_itemcollected", "spark"]
