"""Progress of reassignments: the number of bytes copied, and waiting until an operation is complete.

Brokers report the sizes of their replicas (DescribeLogDirs); the metadata store only knows which replicas are in sync.
A broker that does not answer within the timeout is left out.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple, Protocol

from respool.client.kafka.client_config import with_limits
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import ClientError, Untrusted
from respool.client.kafka.replicas import describe_log_dirs
from respool.cluster.partition_requests import reassignments
from respool.cluster.view import ClusterView
from respool.model.addresses import format_address
from respool.model.ids import BrokerId, TopicPartition
from respool.model.quantities import part_of_bytes
from respool.operate.cluster_store import ClusterAddress, ClusterStore

CONNECT_MS_MAX = 1_000
REQUEST_MS_MAX = 2_000

_log = logging.getLogger(__name__)

# The sizes of one broker's replicas.
Sizes = Mapping[TopicPartition, int]


# To end short waits early, poll after a tenth of the time waited so far.
POLL_S = 0.3
POLL_S_MIN = 0.03
POLL_SHARE = 0.1
# A large partition takes long to copy, and the number of remaining partitions does not change meanwhile.
COPIED_EVERY_S = 1.0
# Before that, a dead broker's lease may still have to expire and its partitions to fail over.
STUCK_S = 20.0


class MoveProgress(NamedTuple):
    copied_bytes: int
    # The size of the leader's replica, once for each replica being added.
    total_bytes: int


class ProgressDisplay(Protocol):
    # False: nothing is displayed, so details need not be fetched.
    is_shown: bool

    def advance(self, amount: int) -> None: ...

    def describe(self, text: str) -> None: ...


# Opens the display for this number of work units.
OpenDisplay = Callable[[int], AbstractContextManager[ProgressDisplay]]


async def wait_until_none_left(
    cluster: ClusterStore,
    count_left: Callable[[ClusterView], int],
    count_stuck: Callable[[ClusterView], int] = lambda _: 0,
    *,
    doing: str,
    display: OpenDisplay,
) -> ClusterView:
    """Wait until no work is left, or only stuck work; return the view of that moment.

    The controller does the work: it continues if the wait is interrupted.
    """
    snapshot = await cluster.read()
    left = count_left(snapshot.view)
    loop = asyncio.get_running_loop()
    began = loop.time()
    copied, copied_at, moved_at = "", began, began
    with display(left) as progress:
        while left:
            if progress.is_shown and loop.time() >= copied_at:
                copied = await _copied(snapshot.view, cluster.address)
                copied_at = loop.time() + COPIED_EVERY_S
            no_controller = "; there is no controller, so nothing moves"
            warning = no_controller if snapshot.controller is None else ""
            progress.describe(f"{doing}, {left:,} left{copied}{warning}")
            waited_s = loop.time() - began
            await asyncio.sleep(min(POLL_S, max(POLL_S_MIN, POLL_SHARE * waited_s)))
            snapshot = await cluster.read()
            before, left = left, count_left(snapshot.view)
            progress.advance(before - left)
            if left > count_stuck(snapshot.view):
                moved_at = loop.time()
            elif loop.time() - moved_at >= STUCK_S:
                break
    return snapshot.view


async def _copied(view: ClusterView, address: ClusterAddress) -> str:
    """Progress of all reassignments in the cluster, including other operators': copies share disks and networks."""
    moves = (await read_copy_progress(view, address)).values()
    total = sum(one.total_bytes for one in moves)
    if not total:
        return ""
    return f", {part_of_bytes(sum(one.copied_bytes for one in moves), total)} copied"


async def read_copy_progress(
    view: ClusterView, access: ClusterAddress
) -> dict[TopicPartition, MoveProgress]:
    """The progress of each reassigned partition, as far as brokers answer. `access` says how to connect to them."""
    wanted = _replicas_to_measure(view)
    if not wanted:
        return {}
    addresses = {one: (endpoint.host, endpoint.port) for one, endpoint in view.brokers.items()}
    limits = {"connect_timeout_ms": CONNECT_MS_MAX, "request_timeout_ms": REQUEST_MS_MAX}
    cluster = Cluster(
        ",".join(format_address(*address) for address in addresses.values()),
        security=access.security,
        **with_limits({"client_id": "respool", **access.client}, limits),
    )
    for one, address in addresses.items():
        cluster.learn_broker(one, address)
    try:
        sizes = await asyncio.gather(
            *(asyncio.to_thread(_sizes_on, cluster, one, of) for one, of in wanted.items())
        )
    finally:
        cluster.close()
    return copy_progress_of(view, dict(zip(wanted, sizes, strict=True)))


def copy_progress_of(
    view: ClusterView, sizes: Mapping[BrokerId, Sizes]
) -> dict[TopicPartition, MoveProgress]:
    """The progress computed from these sizes; partitions with a missing size are left out."""
    found = {}
    for of, image in reassignments(view).items():
        whole = None if image.leader is None else sizes.get(image.leader, {}).get(of)
        parts = [sizes.get(one, {}).get(of) for one in image.adding]
        if whole is None or not parts or None in parts:
            continue
        # A replica compacted at another time may be larger than the leader's.
        copied = sum(min(part, whole) for part in parts if part is not None)
        found[of] = MoveProgress(copied, whole * len(parts))
    return found


def _sizes_on(cluster: Cluster, broker: BrokerId, wanted: Collection[TopicPartition]) -> Sizes:
    """The sizes of these partitions on a broker; partitions that it does not report are left out."""
    try:
        folders = describe_log_dirs(cluster, broker, wanted)
    except Untrusted as error:
        _report_untrusted(f"broker {broker} was not asked how far copies are: {error}")
        return {}
    except ClientError:
        return {}
    return {
        TopicPartition(*place): replica.bytes
        for folder in folders
        for place, replica in folder.replicas.items()
    }


# Once: a command that waits asks every second.
@cache
def _report_untrusted(message: str) -> None:
    _log.error(message)


def _replicas_to_measure(view: ClusterView) -> dict[BrokerId, list[TopicPartition]]:
    """By broker: the leaders of reassigned partitions, and the replicas being added."""
    wanted = defaultdict(list)
    for of, image in reassignments(view).items():
        if image.adding and image.leader is not None:
            for one in (image.leader, *image.adding):
                wanted[one].append(of)
    return {one: partitions for one, partitions in wanted.items() if view.is_live(one)}
