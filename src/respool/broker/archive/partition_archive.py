"""A broker's knowledge of one partition's archive, as leader or follower."""

import asyncio
from collections import deque

from respool.archive.manifest import Manifest
from respool.archive.object_keys import PartitionKeys, TopicKeys
from respool.archive.upload_machine import UploadMachine
from respool.broker.partitions.partition import Partition
from respool.model.archiving.archive_errors import (
    ArchiveCorrupt,
    ArchiveRefused,
    ArchiveUnavailable,
)
from respool.model.ids import Offset


class PartitionArchive:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.keys: PartitionKeys = TopicKeys(partition.name.topic, partition.topic_id).partition(
            partition.name.partition
        )
        # None until it is needed.
        self.manifest: Manifest | None = None
        # Held while the manifest is read or written: entries are applied in the order of their numbers.
        self.lock = asyncio.Lock()
        # The machine of this broker's leadership.
        self.machine: UploadMachine | None = None
        # The leader's work, of this leadership.
        self.work: object = None
        # Why the last attempt to read or write failed; None: it did not.
        self.failure: ArchiveUnavailable | ArchiveCorrupt | ArchiveRefused | None = None
        # No attempt before this time of the monotonic clock.
        self.retry_at_ms = 0
        self.failures = 0
        # Objects to delete, each with its earliest time.
        self.to_delete: deque[tuple[int, str]] = deque()

    @property
    def archived_end(self) -> Offset:
        """Everything before it is archived for certain: an entry was created or read back. 0: not known."""
        if self.manifest is None or self.is_broken:
            return Offset(0)
        return self.manifest.archived_end or Offset(0)

    @property
    def is_broken(self) -> bool:
        """The log and the archive contradict each other: nothing is uploaded, deleted or removed locally."""
        return isinstance(self.failure, ArchiveCorrupt | ArchiveRefused)

    @property
    def pending_bytes(self) -> int:
        """Local bytes that are not archived."""
        partition = self.partition
        if not partition.is_online:
            return 0
        return partition.log.size_from(max(self.archived_end, partition.log.local_start))
