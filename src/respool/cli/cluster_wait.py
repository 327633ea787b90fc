"""Watching the cluster do what it was asked for, until nothing of it is left."""

import asyncio
from collections.abc import Callable

from respool.cli import output
from respool.cli.cluster_store import ClusterStore
from respool.cluster.view import ClusterView

POLL_S = 0.3


async def wait_until_none_left(
    cluster: ClusterStore, count_left: Callable[[ClusterView], int], *, doing: str, unit: str
) -> None:
    """Show how much is left, until it is nothing. The work is the controller's: whoever stops waiting stops nothing."""
    sight = await cluster.look()
    left = count_left(sight.view)
    with output.progress(doing, total=left, unit=unit) as progress:
        while left:
            nobody = "; nobody is the controller now, so it stands still"
            progress.describe(f"{doing}, {left:,} left{nobody if sight.controller is None else ''}")
            await asyncio.sleep(POLL_S)
            sight = await cluster.look()
            before, left = left, count_left(sight.view)
            progress.advance(before - left)
