"""A follower's requests to its leader: Fetch for records, ListOffsets for the leader's log range."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from respool.broker.partitions.partition import Partition
from respool.broker.peer_link import PeerLink
from respool.broker.replication.follower_local_reads import FollowerLocalReads
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.ports.peers import PeerUnreachable
from respool.replication.divergence import EndOfEpoch
from respool.replication.follower import Fetched, FetchFrom
from respool.wire.api_table import Api
from respool.wire.fetch_reply import FetchedPart
from respool.wire.schema_extensions import REPLICA_FETCH_VERSION

LIST_OFFSETS_VERSION = 8
READ_UNCOMMITTED = 0
LATEST, EARLIEST = -1, -2
# The limit per partition in a reply: large enough that round trips do not slow down catching up.
PARTITION_BYTES_MAX = 4 * 1024 * 1024
REPLY_BYTES_MAX = 16 * 1024 * 1024
NO_RECORDS = memoryview(b"")
NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReply:
    """A leader's answer for one partition."""

    partition: Partition
    asked: FetchFrom
    fetched: Fetched
    records: memoryview


class ReplicaRequests:
    """Sends requests to one leader."""

    def __init__(
        self, link: PeerLink, *, me: BrokerId, leader: BrokerId, local_reads: FollowerLocalReads
    ) -> None:
        self._link = link
        self._local_reads = local_reads
        self._me = me
        self._leader = leader
        # One per channel: the requests of a session must arrive in order.
        self._sessions: dict[int, ReplicaSession] = {}

    async def fetch(
        self,
        asked: Mapping[Partition, FetchFrom],
        *,
        broker_epoch: int,
        wait_ms: int,
        channel: int,
    ) -> list[FetchReply]:
        """Raises:
        PeerUnreachable: the leader did not answer, or refused the request as a whole.
        """
        by_place: dict[tuple[object, int], Partition] = {
            (one.topic_id, one.name.partition): one for one in asked
        }

        def epoch_of(part: FetchedPart) -> int:
            partition = by_place.get((part.topic, part.partition))
            return -1 if partition is None else asked[partition].leader_epoch

        session = self._sessions.setdefault(channel, ReplicaSession())
        local_read = self._local_reads.ask(
            is_on_this_host=self._link.is_on_this_host(self._leader, channel=channel)
        )
        request = session.next_request(asked)
        try:
            reply = await self._link.fetch(
                self._leader,
                REPLICA_FETCH_VERSION,
                channel=channel,
                cluster_id=None,
                replica_state={"replica_id": self._me, "replica_epoch": broker_epoch},
                max_wait=wait_ms,
                min_bytes=1,
                max_bytes=REPLY_BYTES_MAX,
                isolation_level=READ_UNCOMMITTED,
                session_id=request.session_id,
                session_epoch=request.epoch,
                topics=_topics(request.changed),
                forgotten_topics_data=_forgotten(request.forgotten),
                rack_id="",
                reader_host=local_read.host,
            )
            parts = await self._local_reads.filled(reply.parts, asked=local_read, epoch_of=epoch_of)
        except BaseException:
            session.reset()
            raise
        if reply.error_code:
            session.reset()
            raise PeerUnreachable(f"broker {self._leader} refused a fetch: {reply.error_code}")
        told: dict[Partition, Fetched] = {}
        records: dict[Partition, memoryview] = {}
        for part in parts:
            partition = by_place.get((part.topic, part.partition))
            if partition is not None:
                told[partition] = _fetched(part)
                records[partition] = part.records
        return [
            FetchReply(
                partition=partition,
                asked=asked[partition],
                fetched=fetched,
                records=records.get(partition, NO_RECORDS),
            )
            for partition, fetched in session.on_reply(reply.session_id, told).items()
        ]

    async def log_range(
        self, partition: Partition, leader_epoch: LeaderEpoch, *, channel: int
    ) -> tuple[Offset, Offset]:
        """Return the leader's log start and log end.

        Raises:
            PeerUnreachable: the leader did not answer.
        """
        start = await self._offset(partition, leader_epoch, EARLIEST, channel)
        return start, await self._offset(partition, leader_epoch, LATEST, channel)

    async def _offset(
        self, partition: Partition, leader_epoch: LeaderEpoch, timestamp: int, channel: int
    ) -> Offset:
        topic, number = partition.name
        wanted = {
            "partition_index": number,
            "current_leader_epoch": leader_epoch,
            "timestamp": timestamp,
        }
        reply = await self._link.ask(
            self._leader,
            Api.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            channel=channel,
            replica_id=self._me,
            isolation_level=READ_UNCOMMITTED,
            topics=[{"name": topic, "partitions": [wanted]}],
        )
        for told in (one for found in reply.topics for one in found.partitions):
            if told.error_code == 0:
                return Offset(told.offset)
            raise PeerUnreachable(f"broker {self._leader}, {partition.name}: {told.error_code}")
        raise PeerUnreachable(f"broker {self._leader} says nothing of {partition.name}")


def _topics(asked: Mapping[Partition, FetchFrom]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for partition, fetch in asked.items():
        topics.setdefault(partition.topic_id, []).append(
            {
                "partition": partition.name.partition,
                "current_leader_epoch": fetch.leader_epoch,
                "fetch_offset": fetch.offset,
                "last_fetched_epoch": fetch.last_fetched_epoch,
                "log_start_offset": fetch.log_start,
                "durable_end": fetch.durable_end,
                "partition_max_bytes": PARTITION_BYTES_MAX,
            }
        )
    return [{"topic_id": one, "partitions": partitions} for one, partitions in topics.items()]


def _forgotten(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic_id, []).append(partition.name.partition)
    return [{"topic_id": one, "partitions": numbers} for one, numbers in topics.items()]


def _fetched(part: FetchedPart) -> Fetched:
    diverging = None
    if part.diverging is not None:
        epoch, end = part.diverging
        diverging = EndOfEpoch(epoch=LeaderEpoch(epoch), end=Offset(end))
    return Fetched(
        error=part.error_code,
        has_records=len(part.records) > 0,
        diverging=diverging,
        high_watermark=Offset(part.high_watermark),
        log_start=Offset(part.log_start),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The session's part of a fetch request."""

    session_id: int
    epoch: int
    changed: Mapping[Partition, FetchFrom]
    forgotten: tuple[Partition, ...]


class ReplicaSession:
    """The follower's side of a fetch session (KIP-227): requests name only changes, replies only partitions with news.

    The session covers exactly the partitions that are fetched now; others are removed with the next request. For each
    partition in the session the leader takes every fetch as confirmation of the follower's last fetch offset.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # The fetches that the leader has in the session; None for one that must be sent again in any case.
        self._sent: dict[Partition, FetchFrom | None] = {}
        # The high watermark and log start that the leader last reported.
        self._told: dict[Partition, tuple[Offset, Offset]] = {}

    def next_request(self, asked: Mapping[Partition, FetchFrom]) -> SessionRequest:
        forgotten = tuple(one for one in self._sent if one not in asked)
        for partition in forgotten:
            del self._sent[partition]
            self._told.pop(partition, None)
        changed = {one: fetch for one, fetch in asked.items() if self._sent.get(one) != fetch}
        self._sent.update(changed)
        return SessionRequest(
            session_id=self._id, epoch=self._epoch, changed=changed, forgotten=forgotten
        )

    def on_reply(
        self, session_id: int, told: Mapping[Partition, Fetched]
    ) -> dict[Partition, Fetched]:
        """Return the results for all requested partitions: those that are not in the reply are unchanged."""
        answers = dict(told)
        if session_id == NO_SESSION or self._id not in (NO_SESSION, session_id):
            # The leader has no session for us.
            self.reset()
            return answers
        self._id = session_id
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        for partition in self._sent:
            fetched = told.get(partition)
            if fetched is None:
                if partition in self._told:
                    high_watermark, log_start = self._told[partition]
                    answers[partition] = Fetched(high_watermark=high_watermark, log_start=log_start)
            elif fetched.error:
                self._sent[partition] = None
                self._told.pop(partition, None)
            else:
                self._told[partition] = (fetched.high_watermark, fetched.log_start)
        return answers

    def reset(self) -> None:
        """The leader's session state is unknown: begin a new session."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._sent.clear()
        self._told.clear()
