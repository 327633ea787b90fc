"""Watching the cluster do what it was asked for, until nothing of it is left."""

import asyncio
from collections.abc import Callable

from respool.cli import output
from respool.cli.cluster_store import ClusterStore
from respool.cluster.view import ClusterView

POLL_S = 0.3
# What takes a second is looked at ten times: else most of the wait could be for the next look.
POLL_S_MIN = 0.03
POLL_SHARE = 0.1


async def wait_until_none_left(
    cluster: ClusterStore, count_left: Callable[[ClusterView], int], *, doing: str, unit: str
) -> None:
    """Show how much is left, until it is nothing. The work is the controller's: whoever stops waiting stops nothing."""
    sight = await cluster.look()
    left = count_left(sight.view)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with output.progress(doing, total=left, unit=unit) as progress:
        while left:
            nobody = "; nobody is the controller now, so it stands still"
            progress.describe(f"{doing}, {left:,} left{nobody if sight.controller is None else ''}")
            waited_s = loop.time() - began
            await asyncio.sleep(min(POLL_S, max(POLL_S_MIN, POLL_SHARE * waited_s)))
            sight = await cluster.look()
            before, left = left, count_left(sight.view)
            progress.advance(before - left)
