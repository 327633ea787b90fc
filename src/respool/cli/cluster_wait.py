"""Watching the cluster do what it was asked for, until nothing of it is left."""

import asyncio
from collections.abc import Callable

from respool.cli import output
from respool.cli.cluster_store import ClusterStore
from respool.cli.copied_bytes import ask_brokers
from respool.cluster.view import ClusterView

POLL_S = 0.3
# What takes a second is looked at ten times: else most of the wait could be for the next look.
POLL_S_MIN = 0.03
POLL_SHARE = 0.1
# One large partition takes long, and no count goes down meanwhile.
COPIED_EVERY_S = 1.0
# What seems stuck may be waiting for a dead broker's lease to run out, and for others to take over.
STUCK_S = 20.0


async def wait_until_none_left(
    cluster: ClusterStore,
    count_left: Callable[[ClusterView], int],
    count_stuck: Callable[[ClusterView], int] = lambda _: 0,
    *,
    doing: str,
    unit: str,
) -> ClusterView:
    """Show how much is left, until it is nothing, or only what is stuck, and return the cluster as it is then.

    The work is the controller's: whoever stops waiting stops nothing.
    """
    sight = await cluster.look()
    left = count_left(sight.view)
    loop = asyncio.get_running_loop()
    began = loop.time()
    copied, copied_at, moved_at = "", began, began
    with output.progress(doing, total=left, unit=unit) as progress:
        while left:
            if progress.is_shown and loop.time() >= copied_at:
                copied, copied_at = await _copied(sight.view), loop.time() + COPIED_EVERY_S
            nobody = "; nobody is the controller now, so it stands still"
            trouble = nobody if sight.controller is None else ""
            progress.describe(f"{doing}, {left:,} left{copied}{trouble}")
            waited_s = loop.time() - began
            await asyncio.sleep(min(POLL_S, max(POLL_S_MIN, POLL_SHARE * waited_s)))
            sight = await cluster.look()
            before, left = left, count_left(sight.view)
            progress.advance(before - left)
            if left > count_stuck(sight.view):
                moved_at = loop.time()
            elif loop.time() - moved_at >= STUCK_S:
                break
    return sight.view


async def _copied(view: ClusterView) -> str:
    """Of all that is under way in the cluster, whoever asked for it: copies share disks and networks."""
    moves = (await ask_brokers(view)).values()
    total = sum(one.total_bytes for one in moves)
    if not total:
        return ""
    return f", {output.part_of_bytes(sum(one.copied_bytes for one in moves), total)} copied"
