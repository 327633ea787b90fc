"""One side of a mirror: a cluster's brokers, who leads which partition, and requests to them, many at once."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from respool.cli.open_writes import OpenWrite, open_writes
from respool.drivers.tcp_peers import TcpPeers
from respool.model.addresses import parse_address
from respool.model.errors import SettingsError
from respool.model.ids import BrokerId
from respool.model.operator_errors import UsageError
from respool.ports.peers import PeerUnreachable
from respool.records.mirrored import MIRROR_CLIENT_ID
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request
from respool.wire.errors import ProtocolViolation

Place = tuple[str, int]

# All of them are there from Kafka 2.8 on, and in 4.x.
METADATA_VERSION = 10
LIST_OFFSETS_VERSION = 5
FETCH_VERSION = 12
PRODUCE_VERSION = 9
DELETE_RECORDS_VERSION = 2
DESCRIBE_CONFIGS_VERSION = 1
# From 3.0 on; the source is asked it only where it would be good to know.
DESCRIBE_PRODUCERS_VERSION = 0

LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE = 2
ALL_IN_SYNC = -1
REQUEST_MS = 30_000
# One connection is for fetches that wait, and one for all else.
LANE, FETCH_LANE = 0, 1
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMap:
    """A topic as metadata shows it."""

    id: UUID | None
    # Partition number -> its leader; None while nobody leads it.
    leaders: Mapping[int, int | None]

    @property
    def shape(self) -> tuple[UUID | None, int]:
        """What stays the same whoever leads."""
        return self.id, len(self.leaders)


class Unreachable(Exception):
    """No reply came; what became of the request is unknown."""


class MirrorLink:
    def __init__(self, name: str, bootstrap: str) -> None:
        """`name` is what it is called in messages: the source, the target."""
        self.name = name
        self.bootstrap = bootstrap
        self._first = {
            # Numbers that no broker has: who they are is not known yet.
            BrokerId(-1 - number): _address(text)
            for number, text in enumerate(bootstrap.split(","))
        }
        self._addresses = dict(self._first)
        self._peers = TcpPeers(self._addresses, request_timeout_ms=REQUEST_MS + 10_000)
        self._correlation_id = 0
        self.topics: dict[str, TopicMap] = {}
        # Set while somebody asks for the metadata, so that all who want them anew ask once.
        self._refreshing: asyncio.Task[None] | None = None
        self._turn = -1

    async def close(self) -> None:
        await self._peers.close()

    async def ask(
        self, broker: int, api: Api, version: int, fields: Mapping[str, Any], *, lane: int = LANE
    ) -> Any:
        """
        Raises:
            Unreachable: no reply came.
        """
        self._correlation_id = (self._correlation_id + 1) % 2**31
        frame = encode_request(
            api,
            version,
            fields,
            correlation_id=self._correlation_id,
            client_id=MIRROR_CLIENT_ID,
        )
        try:
            reply = await self._peers.request(BrokerId(broker), frame[_SIZE_BYTES:], lane=lane)
            return decode_reply(api, version, reply)
        except (PeerUnreachable, ProtocolViolation) as error:
            raise Unreachable(f"{self.name}: {error}") from error

    def leader_of(self, place: Place) -> int | None:
        topic = self.topics.get(place[0])
        return None if topic is None else topic.leaders.get(place[1])

    async def refresh(self) -> None:
        """Learn who leads what. Several who ask at once share one request.

        Raises:
            Unreachable: no broker answers.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._on_refreshed)
        await asyncio.shield(self._refreshing)

    def _on_refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled():
            # Whoever waited has heard of it; maybe nobody waits any more.
            task.exception()

    async def _refresh(self) -> None:
        fields = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        failure: Unreachable | None = None
        known = self.topics
        told: dict[str, TopicMap] | None = None
        for broker in self._next_order():
            if told is not None and broker < 0:
                # An address that was given at the start: it may be the same one's.
                break
            try:
                reply = await self.ask(broker, Api.METADATA, METADATA_VERSION, fields)
            except Unreachable as error:
                failure = error
                continue
            if told is not None:
                self.topics = _agreed(told, _topics_of(reply), known)
                return
            told = self._take(reply)
            if len(reply.brokers) == 1 or not _doubted(told, known):
                self.topics = told
                return
            # Topics are gone, or were made anew; or it is cut off, and knows what was. One more is asked.
        if told is None:
            assert failure is not None
            raise failure
        # Nobody else answers: they are as they were until somebody else says that they are not.
        self.topics = told | {name: known[name] for name in _doubted(told, known)}

    def _next_order(self) -> list[BrokerId]:
        """Whom to ask first, next and so on: another one each time, for one that is cut off knows old leaders only.

        The addresses that were given at the start come last: who is there is not known.
        """
        self._turn += 1
        given = sorted(self._first, reverse=True)
        brokers = sorted(self._addresses.keys() - self._first.keys(), reverse=True)
        first = self._turn % len(brokers) if brokers else 0
        return [*brokers[first:], *brokers[:first], *given]

    def _take(self, reply: Any) -> dict[str, TopicMap]:
        if reply.brokers:
            brokers = {BrokerId(one.node_id): (str(one.host), one.port) for one in reply.brokers}
            self._addresses = brokers | self._first
            self._peers.move_to(self._addresses)
        return _topics_of(reply)

    # -- requests about places, each sent to its leader ----------------------------------------------------------------

    def by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        """Those that somebody leads."""
        found: dict[int, list[Place]] = defaultdict(list)
        for place in places:
            leader = self.leader_of(place)
            if leader is not None:
                found[leader].append(place)
        return found

    async def offsets(self, places: Iterable[Place], at: int) -> dict[Place, int]:
        """LATEST or EARLIEST of those that answer; the end is that of all that is committed to the log."""
        found: dict[Place, int] = {}
        for leader, led in self.by_leader(places).items():
            partitions = [(place, {"partition_index": place[1], "timestamp": at}) for place in led]
            fields = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": by_topic(partitions, topic="name"),
            }
            try:
                reply = await self.ask(leader, Api.LIST_OFFSETS, LIST_OFFSETS_VERSION, fields)
            except Unreachable:
                continue
            for topic in reply.topics:
                for one in topic.partitions:
                    if not one.error_code and one.offset >= 0:
                        found[topic.name, one.partition_index] = one.offset
        return found

    async def first_batch(self, place: Place, offset: int) -> bytes:
        """The batch that holds the offset, or the first one after it; empty when there is none.

        Raises:
            Unreachable: nobody leads it, or its leader refuses.
        """
        leader = self.leader_of(place)
        if leader is None:
            raise Unreachable(f"{self.name}: nobody leads {place[0]}/{place[1]}")
        fields = fetch_fields([(place, offset, -1)], bytes_max=1, wait_ms=0)
        reply = await self.ask(leader, Api.FETCH, FETCH_VERSION, fields)
        (answer,) = (one for topic in reply.responses for one in topic.partitions)
        if answer.error_code:
            raise Unreachable(
                f"{self.name}: {place[0]}/{place[1]} cannot be read at {offset}: {words(answer.error_code)}"
            )
        return answer.records or b""

    async def open_transactions(self, place: Place) -> list[OpenWrite]:
        """Those that have not ended in the partition, in the order they were begun.

        Raises:
            Unreachable: nobody leads it, or its leader refuses.
        """
        leader = self.leader_of(place)
        if leader is None:
            raise Unreachable(f"{self.name}: nobody leads {place[0]}/{place[1]}")
        fields = {"topics": [{"name": place[0], "partition_indexes": [place[1]]}]}
        reply = await self.ask(leader, Api.DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION, fields)
        (answer,) = (one for topic in reply.topics for one in topic.partitions)
        if answer.error_code:
            raise Unreachable(
                f"{self.name}: {place[0]}/{place[1]} does not say what is open in it: {words(answer.error_code)}"
            )
        found = open_writes(place[0], answer)
        return sorted(found, key=lambda one: one.start_offset)

    async def is_mirror(self, topic: str) -> bool | None:
        """Whether the topic is a mirror, by the word of each broker; None while they differ or do not answer."""
        found: set[bool] = set()
        for broker in self._addresses.keys() - self._first.keys():
            fields = {
                "resources": [
                    {
                        "resource_type": TOPIC_RESOURCE,
                        "resource_name": topic,
                        "configuration_keys": ["respool.mirror"],
                    }
                ],
                "include_synonyms": False,
            }
            try:
                reply = await self.ask(
                    broker, Api.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, fields
                )
            except Unreachable:
                return None
            (result,) = reply.results
            if result.error_code:
                return None
            found.add(any(one.value == "true" for one in result.configs))
        return found.pop() if len(found) == 1 else None


def by_topic(
    partitions: Iterable[tuple[Place, dict[str, Any]]], *, topic: str, inside: str = "partitions"
) -> list[dict[str, Any]]:
    """Fields of partitions, under their topics, in the order they come."""
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
    """A fetch of places, each with an offset and the leader epoch of what lies before it (-1: not known)."""
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


def words(code: Any) -> str:
    """Kafka's name of an error, as words."""
    return str(getattr(code, "name", code)).replace("_", " ")


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_address("the address", text.strip())
    except SettingsError as error:
        raise UsageError(str(error)) from None


def _doubted(told: Mapping[str, TopicMap], known: Mapping[str, TopicMap]) -> set[str]:
    """Topics that were known, and are told to be gone, another one of that name, or smaller: none of it is undone."""
    return {
        name
        for name, topic in known.items()
        if name not in told
        or told[name].id != topic.id
        or len(told[name].leaders) < len(topic.leaders)
    }


def _agreed(
    first: Mapping[str, TopicMap], second: Mapping[str, TopicMap], known: Mapping[str, TopicMap]
) -> dict[str, TopicMap]:
    """What the first said; of topics where that is doubted, what both said, or what the second says without a doubt."""
    agreed = dict(first)
    doubted = _doubted(first, known)
    doubted_too = _doubted(second, known)
    for name in doubted:
        one, other = first.get(name), second.get(name)
        if (one and one.shape) == (other and other.shape):
            continue
        agreed[name] = known[name] if name in doubted_too else second[name]
    return agreed


def _topics_of(reply: Any) -> dict[str, TopicMap]:
    """What Metadata says of topics that are not the brokers' own."""
    return {
        topic.name: TopicMap(
            id=topic.topic_id,
            leaders={
                one.partition_index: one.leader_id if one.leader_id >= 0 else None
                for one in topic.partitions
            },
        )
        for topic in reply.topics
        if not topic.error_code and not topic.is_internal
    }
