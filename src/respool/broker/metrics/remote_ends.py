"""Log starts and high watermarks of partitions that other brokers lead, and record timestamps, by ListOffsets.

The request has a tagged field that Kafka does not have, `time_at`. Along with the end offset the leader returns the
timestamp of the first record at or after that offset, in a field that is unused in such a reply
(`wire/schema_extensions.py`). A leader that does not know the field returns only the end offset.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from respool.broker.peer_link import PeerLink
from respool.model.ids import BrokerId, Offset, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api
from respool.wire.schema_extensions import TIME_AT_VERSION

logger = logging.getLogger(__name__)

# A channel of its own, so that nothing else waits for these requests.
CHANNEL = 5
PARTITIONS_PER_REQUEST = 200
READ_UNCOMMITTED = 0
NO_REPLICA = -1
LATEST = -1
EARLIEST = -2
# No timestamp is asked for.
NO_OFFSET = Offset(-1)


class RemoteEnd(NamedTuple):
    log_start: Offset
    high_watermark: Offset
    # Timestamps of the first records at or after the requested offsets, as far as they are known.
    times: Mapping[Offset, int]


class RemoteEnds:
    def __init__(self, link: PeerLink) -> None:
        self._link = link

    async def ask(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, Iterable[Offset]]
    ) -> dict[TopicPartition, RemoteEnd]:
        """Ask a leader about its partitions, with offsets whose timestamps are wanted; omit failed partitions."""
        # A request names a partition once, with one offset. Most partitions are read by one group.
        rounds = _rounds(wanted)
        ends: dict[TopicPartition, Offset] = {}
        times: dict[TopicPartition, dict[Offset, int]] = {}
        starts: dict[TopicPartition, Offset] = {}
        try:
            for asked in rounds:
                for name, end, time in await self._list(broker, LATEST, asked):
                    ends[name] = end
                    if time >= 0:
                        times.setdefault(name, {})[asked[name]] = time
            listed = await self._list(broker, EARLIEST, rounds[0] if rounds else {})
            starts = {name: start for name, start, _ in listed}
        except PeerUnreachable as error:
            logger.debug("the ends that broker %d leads: %s", broker, error)
        return {
            name: RemoteEnd(starts[name], end, times.get(name, {}))
            for name, end in ends.items()
            if name in starts
        }

    async def _list(
        self, broker: BrokerId, timestamp: int, asked: Mapping[TopicPartition, Offset]
    ) -> list[tuple[TopicPartition, Offset, int]]:
        answers: list[tuple[TopicPartition, Offset, int]] = []
        left = iter(asked.items())
        while part := dict(islice(left, PARTITIONS_PER_REQUEST)):
            reply = await self._link.ask(
                broker,
                Api.LIST_OFFSETS,
                TIME_AT_VERSION,
                channel=CHANNEL,
                replica_id=NO_REPLICA,
                isolation_level=READ_UNCOMMITTED,
                topics=_topics(part, timestamp),
            )
            answers += [
                (
                    TopicPartition(topic.name, one.partition_index),
                    Offset(one.offset),
                    one.timestamp,
                )
                for topic in reply.topics
                for one in topic.partitions
                if one.error_code == 0
            ]
        return answers


def _rounds(
    wanted: Mapping[TopicPartition, Iterable[Offset]],
) -> list[dict[TopicPartition, Offset]]:
    rounds: list[dict[TopicPartition, Offset]] = []
    for name, offsets in wanted.items():
        for number, offset in enumerate(sorted(set(offsets)) or [NO_OFFSET]):
            if number == len(rounds):
                rounds.append({})
            rounds[number][name] = offset
    return rounds


def _topics(asked: Mapping[TopicPartition, Offset], timestamp: int) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), offset in asked.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "current_leader_epoch": -1,
                "timestamp": timestamp,
                "time_at": offset if timestamp == LATEST else NO_OFFSET,
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
