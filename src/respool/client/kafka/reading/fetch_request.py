"""The fields of a Fetch request for some partitions of one topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from respool.client.kafka.list_offsets import Isolation, isolation_level
from respool.client.kafka.reading.cursor import Cursor
from respool.wire.fetch_condition import CONDITION_FETCH_VERSION
from respool.wire.fetch_reply import TOPIC_IDS_FROM
from respool.wire.local_read import LOCAL_READ_FETCH_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    isolation: Isolation
    fetch_bytes: int
    retry_ms: int
    # How long a broker may wait for messages.
    wait_ms: int = 500
    # Whether to wait for new messages at the end of the log.
    follow: bool = False
    # The reader's rack; leaders name an in-sync replica in that rack, if there is one.
    rack: str = ""
    # Whether to read from the files of brokers on this host.
    reads_files: bool = True
    # Brokers may leave out batches without a record for which this condition holds; empty: none.
    condition: str = ""


def fetch_fields(
    version: int,
    topic: str,
    topic_id: UUID | None,
    cursors: Sequence[tuple[Cursor, int]],
    *,
    settings: FetchSettings,
    may_name_replica: bool,
    reader_host: str,
) -> dict[str, Any]:
    """`cursors` come with their leaders' epochs. With `reader_host`, the broker may name ranges of its files."""
    partitions = [
        {
            "partition": cursor.partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": cursor.position,
            "last_fetched_epoch": cursor.last_epoch,
            "partition_max_bytes": cursor.bytes_wanted(settings.fetch_bytes),
        }
        for cursor, leader_epoch in cursors
    ]
    name = {"topic_id": topic_id} if version >= TOPIC_IDS_FROM else {"topic": topic}
    ours = {}
    if version == LOCAL_READ_FETCH_VERSION:
        ours["reader_host"] = reader_host
    if version == CONDITION_FETCH_VERSION:
        ours["condition"] = settings.condition
    return {
        **ours,
        "max_wait": settings.wait_ms,
        "min_bytes": 1,
        "max_bytes": settings.fetch_bytes,
        "isolation_level": isolation_level(settings.isolation),
        "topics": [{**name, "partitions": partitions}],
        "forgotten_topics_data": [],
        "rack_id": settings.rack if may_name_replica else "",
    }
