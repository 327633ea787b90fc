"""Streaming queries that a table is made by: how often they look, and who they are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def started(
    writer: "DataStreamWriter", name: str, checkpoint: Path, *, every_ms: int | None
) -> "StreamingQuery":
    """Up to the end of what there is now; or, with `every_ms`, for as long as it is let."""
    ready = writer.queryName(name).option("checkpointLocation", str(checkpoint))
    if every_ms is None:
        return ready.trigger(availableNow=True).start()
    return ready.trigger(processingTime=f"{every_ms} milliseconds").start()


def query_id(checkpoint: Path) -> str:
    """Of a query that runs. With a new checkpoint it has a new id, and batches are numbered from 0 again."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found
