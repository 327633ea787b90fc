"""Optimistic writes to the metadata store: decide, compare and swap, and decide again after a conflict."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from respool.broker.metadata.catalog import Catalog
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.errors import RequestTimedOut
from respool.ports.metadata_store import GuardFailed

# The cluster changes rarely: this many conflicts have another cause.
TRIES_MAX = 10

Decide: TypeAlias = Callable[[ClusterView], list[GuardedWrite]]
Write: TypeAlias = Callable[[Sequence[GuardedWrite]], Awaitable[None]]


async def retry_on_conflict(catalog: Catalog, decide: Decide, write: Write) -> None:
    """
    Raises:
        RequestTimedOut: every attempt conflicted with another write.
        StoreUnavailable: it is unknown whether the change was written.
    """
    for _ in range(TRIES_MAX):
        # The view may be outdated: "nothing to do" must be decided on the store's current content.
        writes = decide(await catalog.sure_view()) or decide(await catalog.read_view())
        try:
            return await write(writes)
        except GuardFailed:
            await catalog.read_view()
    raise RequestTimedOut(f"others have changed the cluster {TRIES_MAX} times meanwhile")
