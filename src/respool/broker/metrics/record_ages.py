"""Maps offsets to the timestamps of their records, looked up off the event loop and cached.

A record's timestamp never changes, so each offset is looked up once, through the indexes and one batch header, and kept
while some group is at that offset. A scrape only reads the cache.
"""

import logging
from collections.abc import Iterable
from itertools import islice

from respool.broker.metrics.turns import in_turns
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.log.partition_log import PartitionLog
from respool.model.errors import RequestError, StorageError
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.ports.offload import Offload

logger = logging.getLogger(__name__)

# Lookups per call to another thread: less than a millisecond. A thread that is busy for longer holds the GIL, and
# blocks the event loop, for 5 ms at a time.
LOOKUPS_PER_TRIP = 16
# Partitions handled per turn of the event loop: less than a millisecond.
PARTITIONS_PER_TURN = 250


class RecordAges:
    def __init__(self, *, partitions: Partitions, offload: Offload) -> None:
        self._partitions = partitions
        self._offload = offload
        # The log start of each partition that is led here, and the timestamp of its first record.
        self._oldest: dict[Partition, tuple[Offset, int | None]] = {}

    def oldest(self, partition: Partition) -> int | None:
        """Return the timestamp of the partition's first record; None if there is none or it was not looked up yet."""
        log_start, timestamp = self._oldest.get(partition, (Offset(-1), None))
        is_current = log_start == partition.log_start and log_start < partition.high_watermark
        return timestamp if is_current else None

    async def refresh(self) -> None:
        """Look up the first records of partitions led here."""
        oldest: dict[Partition, tuple[Offset, int | None]] = {}
        async for turn in in_turns(self._partitions, PARTITIONS_PER_TURN):
            wanted: dict[Partition, Offset] = {}
            for one in turn:
                if not one.is_leading or not one.is_online or one.log_start >= one.high_watermark:
                    continue
                known = self._oldest.get(one)
                if known is not None and known[0] == one.log_start:
                    oldest[one] = known
                else:
                    wanted[one] = one.log_start
            found = await self.look_up(wanted.items())
            oldest |= {one: (at, found.get((one, at))) for one, at in wanted.items()}
        self._oldest = oldest

    async def look_up(
        self, wanted: Iterable[tuple[Partition, Offset]]
    ) -> dict[tuple[Partition, Offset], int]:
        """Return the timestamp of the first record at or after each offset; omit offsets without one."""
        found: dict[tuple[Partition, Offset], int] = {}
        left = iter(wanted)
        while trip := list(islice(left, LOOKUPS_PER_TRIP)):
            logs: dict[tuple[Partition, Offset], PartitionLog] = {}
            for partition, offset in trip:
                if partition.is_online:
                    logs[partition, offset] = partition.log
            times = await self._offload.run(
                lambda logs=logs: {key: _time_at(log, key[1]) for key, log in logs.items()}  # type: ignore[misc]
            )
            found |= {
                key: time for key, time in times.items() if time is not None and time > NO_TIMESTAMP
            }
        return found


def _time_at(log: PartitionLog, offset: Offset) -> int | None:
    try:
        return log.time_at(offset)
    except (RequestError, StorageError) as error:
        # The partition was deleted or truncated since. A failing disk is noticed by other readers.
        logger.debug("no time for offset %d: %s", offset, error)
        return None
