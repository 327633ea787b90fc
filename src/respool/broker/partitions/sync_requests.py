"""Requests for a sync of a partition's log, which `flusher.py` answers."""

from typing import Protocol, TypeVar

P_contra = TypeVar("P_contra", contravariant=True)

# How long a sync that is not urgent may wait to share a disk flush with another one.
NOT_URGENT_MS = 50


class SyncRequests(Protocol[P_contra]):
    """Accepts a partition's requests for a sync of its log: `Flusher`."""

    def request_sync(self, partition: P_contra) -> None: ...

    def request_sync_within(self, partition: P_contra, delay_ms: int) -> None: ...

    async def drain_partition(self, partition: P_contra) -> None: ...
