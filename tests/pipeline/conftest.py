"""What tests with Spark have: see the module."""

from support.spark_fixtures import broker, pytest_itemcollected, spark

__all__ = ["broker", "pytest_itemcollected", "spark"]
