"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers requests, batched.

A request whose reply is lost is repeated, so a marker may be written twice. In version 2 of transactions the second
one is refused. In version 1 it does no harm unless the producer's next transaction has begun. That is not the case:
the coordinator waits for the reply, and earlier requests are lost with their connections (`drivers/tcp_peers.py`). A
request that the network delays for longer would end the next transaction, as with Kafka (KIP-890).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from respool.broker.peer_link import PeerLink
from respool.broker.peer_request_queue import PeerRequestQueue, Spawn
from respool.coordination.transactions.transaction_requests import TransactionVersion
from respool.model.cluster import ClusterImage
from respool.model.error_codes import error_for
from respool.model.errors import RequestError, RequestTimedOut
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import API_TABLE, Api

VERSION = API_TABLE[Api.WRITE_TXN_MARKERS].version_max
# These requests wait for disks, so nothing else shares their channel; `replica_fetcher.py` uses other channels.
CHANNEL = 3
# Keeps a request well below the frame size limit.
MARKERS_PER_REQUEST = 1_000


class Ending(Protocol):
    """The end of a transaction, whose markers are being written."""

    marker: EndTransactionMarker
    needs_newer_epoch: bool

    @property
    def is_wanted(self) -> bool: ...

    def on_answered(self, name: TopicPartition, error: RequestError | None) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    ending: Ending
    name: TopicPartition

    @property
    def key(self) -> tuple[int, str, int]:
        """Identifies the marker in the reply."""
        return (self.ending.marker.producer_id, *self.name)


class RemoteMarkers:
    def __init__(
        self, link: PeerLink, *, me: BrokerId, image: Callable[[], ClusterImage], spawn: Spawn
    ) -> None:
        self._link = link
        self.me = me
        self._image = image
        self._queue: PeerRequestQueue[_Sent] = PeerRequestQueue(
            self._ask, spawn=spawn, at_once_max=MARKERS_PER_REQUEST
        )

    def leader_of(self, name: TopicPartition) -> BrokerId | None:
        """The partition's leader as this broker knows it; None: no leader is registered."""
        image = self._image()
        taker = image.taker(name)
        if taker is None:
            return None
        leader = image.topics[taker.topic].partitions[taker.partition].leader
        return leader if leader in image.brokers else None

    def has_partition(self, name: TopicPartition) -> bool:
        return self._image().taker(name) is not None

    def send(self, broker: BrokerId, ending: Ending, name: TopicPartition) -> None:
        """Send the marker to the broker. `ending` gets the result, unless it is no longer wanted."""
        self._queue.put(broker, _Sent(ending, name))

    def stop(self) -> None:
        self._queue.clear()

    async def _ask(self, broker: BrokerId, waiting: list[_Sent]) -> Iterable[_Sent]:
        asked: dict[tuple[int, str, int], _Sent] = {}
        left: list[_Sent] = []
        for one in waiting:
            if not one.ending.is_wanted:
                continue
            if asked.setdefault(one.key, one) is not one:
                left.append(one)
        if asked:
            for one, error in await self._answers(broker, asked):
                one.ending.on_answered(one.name, error)
        return left

    async def _answers(
        self, broker: BrokerId, asked: dict[tuple[int, str, int], _Sent]
    ) -> list[tuple[_Sent, RequestError | None]]:
        try:
            reply = await self._link.ask(
                broker,
                Api.WRITE_TXN_MARKERS,
                VERSION,
                channel=CHANNEL,
                markers=_markers(asked.values()),
            )
        except PeerUnreachable as error:
            unknown = RequestTimedOut(str(error))
            return [(one, unknown) for one in asked.values()]
        codes = {
            (each.producer_id, topic.name, one.partition_index): one.error_code
            for each in reply.markers
            for topic in each.topics
            for one in topic.partitions
        }
        silent = RequestTimedOut(f"broker {broker} did not say what became of it")
        return [
            (one, error_for(codes[key], by=broker) if key in codes else silent)
            for key, one in asked.items()
        ]


def _markers(sent: Iterable[_Sent]) -> list[dict[str, Any]]:
    # One entry per transaction, with all its partitions.
    by_ending: dict[Ending, dict[str, list[int]]] = {}
    for one in sent:
        topics = by_ending.setdefault(one.ending, {})
        topics.setdefault(one.name.topic, []).append(one.name.partition)
    return [_marker(ending, topics) for ending, topics in by_ending.items()]


def _marker(ending: Ending, topics: dict[str, list[int]]) -> dict[str, Any]:
    marker = ending.marker
    version = TransactionVersion.V2 if ending.needs_newer_epoch else TransactionVersion.V1
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_result": marker.is_commit,
        "topics": [
            {"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()
        ],
        "transaction_version": int(version),
    }
