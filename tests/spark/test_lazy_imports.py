"""Spark starts many small Python processes: what they import first must stay small."""

import subprocess
import sys

MODULES = (
    "respool.spark",
    "respool.spark.data_source",
    "respool.spark.sink.batch_writer",
    "respool.spark.sink.stream_writer",
    "respool.spark.source.batch_reader",
    "respool.spark.source.stream_reader",
)
# Imports them in this order, and prints those after which the client was imported too.
PROGRAM = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
    if "respool.client.kafka.cluster" in sys.modules:
        print(name)
"""


def test_readers_and_writers_are_imported_without_the_client_that_talks_to_brokers() -> None:
    """Two modules that use it were merged into a reader and a writer that import it where they need it."""
    found = subprocess.check_output([sys.executable, "-c", PROGRAM, *MODULES], text=True)
    assert found.split() == []
