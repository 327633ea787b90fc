"""What tests with Spark have: see the module."""

from support.spark_fixtures import pytest_collection_modifyitems, spark

__all__ = ["pytest_collection_modifyitems", "spark"]
