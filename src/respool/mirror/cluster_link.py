"""An asyncio client of one of the two clusters: topic metadata that two brokers agree on, and requests to leaders."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import code_name
from respool.client.kafka.configs import ConfigResource
from respool.client.kafka.errors import ClientError
from respool.client.kafka.metadata import Place, TopicMetadata, metadata_fields, topic_metadata_of
from respool.client.kafka.pipelined import PipelinedRequests
from respool.client.kafka.transactions import OpenTransaction, open_in_reply
from respool.client.kafka.versions import FETCH_BY_NAME, TRANSACTIONS_V1, VersionRange
from respool.wire.api_table import Api

LATEST, EARLIEST = -1, -2
MIRROR_CONFIG = "respool.mirror"
ACTIVE_CONFIG = "respool.mirror.active.partitions"
ALL_IN_SYNC = -1
REQUEST_MS = 30_000
# With later versions, a transactional batch adds its partition to a transaction of the target's coordinator (KIP-890).
PRODUCE_VERSIONS = TRANSACTIONS_V1.produce
# Fetches, which wait at the broker, use their own connection.
MAIN_CHANNEL, FETCH_CHANNEL = 0, 1


class LinkError(Exception):
    """A request failed: no reply came, the partition has no leader, or the leader returned an error.

    Without a reply it is unknown whether the broker carried out the request.
    """


class ClusterLink:
    def __init__(self, name: str, cluster: Cluster) -> None:
        """`name`: "the source" or "the target", for messages. Closing the link also closes the cluster."""
        self.name = name
        # The blocking client that sends the requests; also used for administration and groups.
        self.cluster = cluster
        self._requests = PipelinedRequests(self.cluster)
        # Without internal topics.
        self.topics: dict[str, TopicMetadata] = {}
        # The refresh in progress, which concurrent callers share.
        self._refreshing: asyncio.Task[None] | None = None
        self._turn = -1

    async def close(self) -> None:
        await self._requests.close()

    async def request(
        self,
        broker: int,
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        channel: int = MAIN_CHANNEL,
        wait_ms: int = 0,
    ) -> Any:
        """
        Raises:
            LinkError: no reply came.
        """
        try:
            return await self._requests.request(
                broker, api, fields, versions=versions, channel=channel, wait_ms=wait_ms
            )
        except ClientError as error:
            raise LinkError(f"{self.name}: {error}") from error

    def leader_of(self, place: Place) -> int | None:
        topic = self.topics.get(place[0])
        leader = None if topic is None else topic.leaders.get(place[1])
        return None if leader is None else leader.broker

    async def refresh(self) -> None:
        """Refresh the metadata of all topics. Concurrent calls share one refresh.

        Raises:
            LinkError: no broker answers.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._on_refreshed)
        await asyncio.shield(self._refreshing)

    def _on_refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled():
            # Retrieved, so that asyncio does not report it if no caller waits any longer.
            task.exception()

    async def _refresh(self) -> None:
        if not self._brokers():
            await self._find_brokers()
        try:
            await self._refresh_from(self._brokers())
        except LinkError:
            # All known brokers may have been replaced: the bootstrap addresses know the present ones.
            await self._find_brokers()
            await self._refresh_from(self._brokers())

    async def _refresh_from(self, brokers: list[int]) -> None:
        """Use one broker's metadata; if it lacks known topics or partitions, use what two brokers agree on.

        A broker that is isolated from its cluster has only old metadata. A mirror stops a topic for good when it is
        deleted or recreated, so the answer of one broker is not enough.
        """
        failure: LinkError | None = None
        known = self.topics
        first: dict[str, TopicMetadata] | None = None
        for broker in brokers:
            try:
                reply = await self.request(broker, Api.METADATA, metadata_fields(None))
            except LinkError as error:
                failure = error
                continue
            if first is not None:
                self.topics = _agreed(first, _topics_of(reply), known)
                return
            self._learn_brokers(reply)
            first = _topics_of(reply)
            if len(reply.brokers) == 1 or not _doubtful(first, known):
                self.topics = first
                return
        if first is None:
            raise failure or LinkError(f"{self.name}: the metadata names no broker")
        # No second broker answers: keep the known metadata of doubtful topics.
        self.topics = first | {name: known[name] for name in _doubtful(first, known)}

    def _brokers(self) -> list[int]:
        """The brokers, a different one first each time, because one may be isolated and know only old leaders."""
        brokers = sorted(self.cluster.brokers)
        self._turn += 1
        first = self._turn % len(brokers) if brokers else 0
        return [*brokers[first:], *brokers[:first]]

    async def _find_brokers(self) -> None:
        try:
            await asyncio.to_thread(self.cluster.refresh_brokers)
        except ClientError as error:
            raise LinkError(f"{self.name}: {error}") from error

    def _learn_brokers(self, reply: Any) -> None:
        self.cluster.learn_brokers(reply)

    # -- requests to partitions' leaders ----------------------------------------------------------------

    def by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        """Leader -> its partitions; those without a leader are left out."""
        found: dict[int, list[Place]] = defaultdict(list)
        for place in places:
            leader = self.leader_of(place)
            if leader is not None:
                found[leader].append(place)
        return found

    async def offsets(self, places: Iterable[Place], at: int) -> dict[Place, int]:
        """The LATEST or EARLIEST offsets of the partitions whose leaders answer; LATEST is the high watermark."""
        found: dict[Place, int] = {}
        for leader, led in self.by_leader(places).items():
            partitions = [(place, {"partition_index": place[1], "timestamp": at}) for place in led]
            fields = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": by_topic(partitions, topic="name"),
            }
            try:
                reply = await self.request(leader, Api.LIST_OFFSETS, fields)
            except LinkError:
                continue
            for topic in reply.topics:
                for one in topic.partitions:
                    if not one.error_code and one.offset >= 0:
                        found[topic.name, one.partition_index] = one.offset
        return found

    async def first_batch(self, place: Place, offset: int) -> bytes:
        """The batch that contains the offset, or the first one after it; empty if there is none.

        Raises:
            LinkError: the partition has no leader, or the leader returns an error.
        """
        leader = self.leader_of(place)
        if leader is None:
            raise LinkError(f"{self.name}: {place[0]}/{place[1]} has no leader")
        fields = fetch_fields([(place, offset, -1)], bytes_max=1, wait_ms=0)
        reply = await self.request(leader, Api.FETCH, fields, versions=FETCH_BY_NAME)
        (answer,) = (one for topic in reply.responses for one in topic.partitions)
        if answer.error_code:
            raise LinkError(
                f"{self.name}: {place[0]}/{place[1]} cannot be read at {offset}: {code_name(answer.error_code)}"
            )
        return answer.records or b""

    async def open_transactions(self, place: Place) -> list[OpenTransaction]:
        """The transactions that are open in the partition, by their first offsets.

        Raises:
            LinkError: the partition has no leader, or the leader returns an error.
        """
        leader = self.leader_of(place)
        if leader is None:
            raise LinkError(f"{self.name}: {place[0]}/{place[1]} has no leader")
        fields = {"topics": [{"name": place[0], "partition_indexes": [place[1]]}]}
        reply = await self.request(leader, Api.DESCRIBE_PRODUCERS, fields)
        (answer,) = (one for topic in reply.topics for one in topic.partitions)
        if answer.error_code:
            raise LinkError(
                f"{self.name}: {place[0]}/{place[1]} does not list open transactions: {code_name(answer.error_code)}"
            )
        found = open_in_reply(place[0], answer)
        return sorted(found, key=lambda one: one.start_offset)

    async def is_mirror(self, topic: str) -> bool | None:
        """True if every broker says that the topic is a mirror; None if they differ or one does not answer."""
        found: set[bool | None] = set()
        for broker in self.cluster.brokers:
            try:
                reply = await self.request(
                    broker, Api.DESCRIBE_CONFIGS, mirror_config_fields(topic)
                )
            except LinkError:
                return None
            found.add(is_mirror_in(reply))
        return found.pop() if len(found) == 1 else None


def mirror_config_fields(topic: str) -> dict[str, Any]:
    """A DescribeConfigs request for `respool.mirror` of a topic."""
    resource = {
        "resource_type": int(ConfigResource.TOPIC),
        "resource_name": topic,
        "configuration_keys": [MIRROR_CONFIG],
    }
    return {"resources": [resource], "include_synonyms": False, "include_documentation": False}


def is_mirror_in(reply: Any) -> bool | None:
    """True if the reply says that the topic is a mirror; None on an error."""
    (result,) = reply.results
    if result.error_code:
        return None
    return any(one.value == "true" for one in result.configs)


def by_topic(
    partitions: Iterable[tuple[Place, dict[str, Any]]], *, topic: str, inside: str = "partitions"
) -> list[dict[str, Any]]:
    """Fields of partitions, grouped by topic, in the given order."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for (name, _), fields in partitions:
        grouped.setdefault(name, []).append(fields)
    return [{topic: name, inside: fields} for name, fields in grouped.items()]


def fetch_fields(
    wanted: Iterable[tuple[Place, int, int]],
    *,
    bytes_max: int,
    wait_ms: int,
    partition_bytes_max: int | None = None,
) -> dict[str, Any]:
    """A fetch of partitions, each with an offset and the leader epoch of the batch before it (-1: unknown)."""
    partitions = [
        (
            place,
            {
                "partition": place[1],
                "fetch_offset": offset,
                "last_fetched_epoch": epoch,
                "partition_max_bytes": partition_bytes_max or bytes_max,
            },
        )
        for place, offset, epoch in wanted
    ]
    return {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "topics": by_topic(partitions, topic="topic"),
        "forgotten_topics_data": [],
    }


def produce_fields(pieces: Iterable[tuple[Place, bytes]]) -> dict[str, Any]:
    partitions = [(place, {"index": place[1], "records": data}) for place, data in pieces]
    return {
        "transactional_id": None,
        "acks": ALL_IN_SYNC,
        "timeout": REQUEST_MS,
        "topic_data": by_topic(partitions, topic="name", inside="partition_data"),
    }


def answers_of(reply: Any) -> list[tuple[Place, Any]]:
    return [
        ((topic.name, one.index), one)
        for topic in reply.responses
        for one in topic.partition_responses
    ]


def _doubtful(seen: Mapping[str, TopicMetadata], known: Mapping[str, TopicMetadata]) -> set[str]:
    """Known topics that are missing in `seen`, have another id there, or fewer partitions."""
    return {
        name
        for name, topic in known.items()
        if name not in seen or seen[name].id != topic.id or seen[name].partitions < topic.partitions
    }


def _agreed(
    first: Mapping[str, TopicMetadata],
    second: Mapping[str, TopicMetadata],
    known: Mapping[str, TopicMetadata],
) -> dict[str, TopicMetadata]:
    """The first broker's topics; doubtful ones if both agree, else the second's unless doubtful there too."""
    agreed = dict(first)
    doubtful_in_second = _doubtful(second, known)
    for name in _doubtful(first, known):
        if _identity(first.get(name)) == _identity(second.get(name)):
            continue
        agreed[name] = known[name] if name in doubtful_in_second else second[name]
    return agreed


def _identity(topic: TopicMetadata | None) -> tuple[UUID | None, int] | None:
    """The topic's id and partition count, which a change of leaders does not affect."""
    return None if topic is None else (topic.id, topic.partitions)


def _topics_of(reply: Any) -> dict[str, TopicMetadata]:
    """The topics of a Metadata reply, without internal ones."""
    return {
        topic.name: topic_metadata_of(topic.name, topic)
        for topic in reply.topics
        if not topic.error_code and not topic.is_internal
    }
