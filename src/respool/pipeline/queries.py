"""Streaming queries that build tables: how they are triggered, and their ids."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def started(
    writer: "DataStreamWriter", name: str, checkpoint: Path, *, every_ms: int | None
) -> "StreamingQuery":
    """Start the query: it runs to the present end of its source, or, with `every_ms`, until stopped."""
    ready = writer.queryName(name).option("checkpointLocation", str(checkpoint))
    if every_ms is None:
        return ready.trigger(availableNow=True).start()
    return ready.trigger(processingTime=f"{every_ms} milliseconds").start()


def query_id(checkpoint: Path) -> str:
    """Return the id of a running query. With a new checkpoint it gets a new id, and its batch numbers begin at 0."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found
