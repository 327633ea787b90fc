"""How much of what is on the move has been copied: brokers are asked how large their replicas are (DescribeLogDirs).

Nobody else knows: the metadata store has only who has everything. Brokers that do not answer soon are done without.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from respool.broker.peer_link import PeerLink
from respool.cluster.reassignment_requests import reassignments
from respool.cluster.view import ClusterView
from respool.drivers.tcp_peers import TcpPeers
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api

DESCRIBE_LOG_DIRS_VERSION = 4
CONNECT_MS_MAX = 1_000
REQUEST_MS_MAX = 2_000

# Of one broker's replicas.
Sizes = Mapping[TopicPartition, int]


class Copied(NamedTuple):
    copied_bytes: int
    # As much as the leader has, once for each that copies it.
    total_bytes: int


async def ask_brokers(view: ClusterView) -> dict[TopicPartition, Copied]:
    """How far each partition is that is copied to somebody, as far as brokers tell."""
    wanted = _wanted(view)
    if not wanted:
        return {}
    peers = TcpPeers(
        {one: (endpoint.host, endpoint.port) for one, endpoint in view.brokers.items()},
        connect_timeout_ms=CONNECT_MS_MAX,
        request_timeout_ms=REQUEST_MS_MAX,
    )
    link = PeerLink(peers, client_id="respool")
    try:
        told = await asyncio.gather(*(_sizes_on(one, of, link) for one, of in wanted.items()))
    finally:
        await peers.close()
    return copied_by(view, dict(zip(wanted, told, strict=True)))


def copied_by(view: ClusterView, sizes: Mapping[BrokerId, Sizes]) -> dict[TopicPartition, Copied]:
    """What these sizes say of the moves under way; nothing of one where some of them are missing."""
    found = {}
    for of, image in reassignments(view).items():
        whole = None if image.leader is None else sizes.get(image.leader, {}).get(of)
        parts = [sizes.get(one, {}).get(of) for one in image.adding]
        if whole is None or not parts or None in parts:
            continue
        # A log that is cleaned at another time may be larger than its leader's.
        copied = sum(min(part, whole) for part in parts if part is not None)
        found[of] = Copied(copied, whole * len(parts))
    return found


async def _sizes_on(broker: BrokerId, wanted: Collection[TopicPartition], link: PeerLink) -> Sizes:
    """How many bytes a broker has of these; without those that it does not have, or does not tell of."""
    topics = defaultdict(list)
    for of in wanted:
        topics[of.topic].append(of.partition)
    asked = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    try:
        reply = await link.ask(
            broker, Api.DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION, topics=asked
        )
    except PeerUnreachable:
        return {}
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for folder in reply.results
        for topic in folder.topics
        for partition in topic.partitions
    }


def _wanted(view: ClusterView) -> dict[BrokerId, list[TopicPartition]]:
    """What is asked of whom: of leaders, and of those who copy from them."""
    wanted = defaultdict(list)
    for of, image in reassignments(view).items():
        if image.adding and image.leader is not None:
            for one in (image.leader, *image.adding):
                wanted[one].append(of)
    return {one: partitions for one, partitions in wanted.items() if view.is_live(one)}
