"""One sync of a partition's log: begins and finishes on the event loop, runs in another thread (`flusher.py`)."""

from typing import TYPE_CHECKING, Protocol

from respool.log.partition_log import PendingSync
from respool.model.errors import HandlesExhausted, StorageError

if TYPE_CHECKING:
    from respool.broker.partitions.partition import Partition

# How long a sync that is not urgent may wait to share a disk flush with another one.
NOT_URGENT_MS = 50
# The delay before retrying a sync that failed to start because of too many open files.
RETRY_MS = 500


class SyncRequests(Protocol):
    """Accepts a partition's requests for a sync of its log: `Flusher`."""

    def request_sync(self, partition: "Partition") -> None: ...

    def request_sync_within(self, partition: "Partition", delay_ms: int) -> None: ...

    async def drain_partition(self, partition: "Partition") -> None: ...


class PartitionSync:
    """A sync in flight: its partition, the range of the log that it covers, and the number of bytes."""

    __slots__ = ("bytes_appended", "partition", "pending")

    def __init__(self, partition: "Partition", pending: PendingSync, bytes_appended: int) -> None:
        self.partition = partition
        self.pending = pending
        self.bytes_appended = bytes_appended

    @classmethod
    def begin(cls, partition: "Partition") -> "PartitionSync | None":
        """Return what to sync now; None if everything is on disk."""
        if not partition.is_online:
            return None
        if partition.changing.locked():
            # Another thread may be truncating the log.
            partition.syncs.request_sync_within(partition, NOT_URGENT_MS)
            return None
        try:
            pending = partition.log.begin_sync()
        except StorageError as error:
            partition.go_offline(error)
            return None
        if pending is None:
            # The log may have synced itself, as retention does before it removes files.
            partition.on_synced(partition.log.synced_end, partition.bytes_appended)
            return None
        return cls(partition, pending, partition.bytes_appended)

    def finish(self, error: StorageError | None) -> None:
        """The work in the other thread is done, or failed with `error`."""
        partition = self.partition
        if not partition.has_log:
            # The partition was deleted, closed or taken offline since, so no request is waiting.
            return
        if isinstance(error, HandlesExhausted):
            # Nothing was lost, so waiting requests continue to wait.
            partition.on_storage_error(error)
            partition.syncs.request_sync_within(partition, RETRY_MS)
            return
        if error is not None:
            # The kernel may have dropped the pages: a second sync would succeed and prove nothing.
            partition.go_offline(error)
            return
        if not partition.is_online:
            return
        log = partition.log
        log.finish_sync(self.pending)
        partition.on_synced(log.synced_end, self.bytes_appended)
