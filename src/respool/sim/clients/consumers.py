"""Simulated consumers with assigned partitions, and a client that watches offsets committed by transactions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.build import NewRecord
from respool.records.markers import read_marker
from respool.records.record import read_records
from respool.records.validate import check_stored, walk_batches
from respool.sim.clients.sim_client import NOT_LEADER, OFFSET_OUT_OF_RANGE, OK, RETRIABLE, SimClient
from respool.wire.api_table import Api

LATEST = -1
_UNPACKED_MAX = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The result of one fetch for one partition."""

    code: int
    high_watermark: int = -1
    stable_offset: int = -1
    log_start: int = -1
    # Records for the application, and the offset to fetch from next.
    records: Sequence[tuple[int, NewRecord]] = ()
    next_offset: int = -1
    batches: Sequence[RecordBatch] = ()


class SimConsumer(SimClient):
    """Reads partitions and checks each reply against earlier ones."""

    def __init__(
        self,
        name: str,
        *,
        names: Sequence[TopicPartition],
        is_committed: bool,
        rack: str = "",
        **client: Any,
    ) -> None:
        """`rack`: the client's rack; the leader may refer it to a replica there (KIP-392)."""
        super().__init__(name, **client)
        self.names = tuple(names)
        self.is_committed = is_committed
        self._rack = rack
        # Preferred read replicas named by leaders.
        self._closer: dict[TopicPartition, BrokerId] = {}
        # The highest ends seen in replies, by partition: (high watermark, last stable offset).
        self._ends: dict[TopicPartition, tuple[int, int]] = {}

    async def poll(
        self, name: TopicPartition, position: int, *, wait_ms: int = 0, bytes_max: int = 1 << 20
    ) -> Polled:
        """Fetch once.

        Raises:
            PeerUnreachable: there was no reply.
        """
        asked = {
            "partition": name.partition,
            "fetch_offset": position,
            "partition_max_bytes": bytes_max,
        }
        closer = self._closer.get(name)
        if self.is_cluster:
            # Sent to followers too, as real clients do. A follower that knows a newer leader refuses the request.
            # Otherwise the client could get a newer high watermark there, and then an older one from the former leader
            # (seed 1000046).
            await self.leader_of(name)
            asked["current_leader_epoch"] = self.epoch_of(name)
        fields = {
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(self.is_committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": name.topic, "partitions": [asked]}],
            "forgotten_topics_data": [],
            "rack_id": self._rack,
        }
        if closer is None:
            reply = await self.ask_leader(name, Api.FETCH, 12, **fields)
        else:
            reply = await self._ask_closer(name, closer, fields)
        code = int(reply.error_code)
        if code:
            return Polled(code=code)
        (answer,) = reply.responses[0].partitions
        code = int(answer.error_code)
        if code and closer is not None:
            # Whatever the error is, even an offset that the follower does not have yet: ask the current leader.
            del self._closer[name]
            self.on_code(code, leader=name)
            return Polled(code=NOT_LEADER)
        self.on_code(code, leader=name)
        if code:
            return Polled(code=code)
        if answer.preferred_read_replica >= 0:
            self._closer[name] = BrokerId(answer.preferred_read_replica)
            self.history.counts["sent to closer replicas"] += 1
        self._check_fetched_ends(name, answer.high_watermark, answer.last_stable_offset)
        if answer.log_start_offset > answer.high_watermark:
            self._violate("A21", name, f"log start {answer.log_start_offset} is beyond the end")
        return self._take(name, position, answer)

    async def _ask_closer(
        self, name: TopicPartition, broker: BrokerId, fields: dict[str, Any]
    ) -> Any:
        try:
            return await self.ask(broker, Api.FETCH, 12, **fields)
        except PeerUnreachable:
            del self._closer[name]
            raise

    async def end_of(self, name: TopicPartition) -> int | None:
        """The end of the partition according to ListOffsets, for this isolation level."""
        asked = {"partition_index": name.partition, "current_leader_epoch": -1, "timestamp": LATEST}
        if self.is_cluster:
            await self.leader_of(name)
            asked["current_leader_epoch"] = self.epoch_of(name)
        reply = await self.ask_leader(
            name,
            Api.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=int(self.is_committed),
            topics=[{"name": name.topic, "partitions": [asked]}],
        )
        (answer,) = reply.topics[0].partitions
        code = int(answer.error_code)
        self.on_code(code, leader=name)
        if code:
            return None
        if not self.is_cluster:
            # With several brokers, this is the epoch of the last record, which may be old.
            self.on_epoch(name, answer.leader_epoch)
        if self.is_committed:
            self._check_ends(name, -1, answer.offset)
        else:
            self._check_ends(name, answer.offset, -1)
        return int(answer.offset)

    # -- checks of replies -------------------------------------------------------------------------------------------

    def _check_fetched_ends(
        self, name: TopicPartition, high_watermark: int, stable_offset: int
    ) -> None:
        """A new leader or a follower may reply with an old high watermark to a fetch. ListOffsets may not."""
        if self.is_cluster:
            before = self._ends.get(name, (-1, -1))
            high_watermark = max(before[0], high_watermark)
            stable_offset = max(before[1], stable_offset)
        self._check_ends(name, high_watermark, stable_offset)

    def _check_ends(self, name: TopicPartition, high_watermark: int, stable_offset: int) -> None:
        before = self._ends.get(name, (-1, -1))
        for kind, now, then in zip(
            ("high watermark", "stable offset"),
            (high_watermark, stable_offset),
            before,
            strict=True,
        ):
            if -1 < now < then:
                self._violate("A16", name, f"the {kind} went from {then} to {now}")
        self._ends[name] = (max(before[0], high_watermark), max(before[1], stable_offset))

    def _take(self, name: TopicPartition, position: int, answer: Any) -> Polled:
        limit = answer.last_stable_offset if self.is_committed else answer.high_watermark
        batches: list[RecordBatch] = []
        expected = position
        epoch = -1
        for batch in batches_of(answer.records or b""):
            header = batch.header
            if not check_stored(header, batch.data):
                self._violate("A5", name, f"the batch at {header.base_offset} fails its checksum")
                break
            self.check_place(name, header, expected, is_first=not batches)
            if header.last_offset >= limit:
                self.on_beyond_end(name, batch, limit)
            if header.leader_epoch < epoch:
                self._violate("A18", name, f"epoch {header.leader_epoch} comes after {epoch}")
            epoch = header.leader_epoch
            expected = header.last_offset + 1
            batches.append(batch)
        return Polled(
            code=OK,
            high_watermark=answer.high_watermark,
            stable_offset=answer.last_stable_offset,
            log_start=answer.log_start_offset,
            records=list(self._records_of(batches, position, answer.aborted_transactions)),
            next_offset=expected,
            batches=batches,
        )

    def check_place(
        self, name: TopicPartition, header: BatchHeader, expected: int, *, is_first: bool
    ) -> None:
        """The first batch may begin before the position; the others follow without a gap, as nothing is compacted."""
        if header.base_offset > expected or (not is_first and header.base_offset != expected):
            self._violate("A15", name, f"{header.base_offset} comes where {expected} should be")

    def on_beyond_end(self, name: TopicPartition, batch: RecordBatch, limit: int) -> None:
        self._violate("A17", name, f"{batch.header.last_offset} was read, the end is {limit}")

    def _records_of(
        self, batches: Sequence[RecordBatch], position: int, aborted: Any
    ) -> Iterator[tuple[int, NewRecord]]:
        """Skip aborted records, as clients do: from a transaction's first offset to its marker."""
        coming = sorted((one.first_offset, one.producer_id) for one in aborted or ())
        ignored: set[int] = set()
        for batch in batches:
            header = batch.header
            while coming and coming[0][0] <= header.last_offset:
                ignored.add(coming.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    ignored.discard(marker.producer_id)
                continue
            if header.is_transactional and header.producer_id in ignored:
                continue
            for record in read_records(batch, limit=_UNPACKED_MAX):
                if record.offset >= position:
                    yield (
                        record.offset,
                        NewRecord(
                            key=record.key,
                            value=record.value,
                            timestamp_ms=record.timestamp,
                            headers=record.headers,
                        ),
                    )

    def _violate(self, rule: str, name: TopicPartition, text: str) -> None:
        self.history.violate(rule, f"{self.name}: {name}: {text}")


class AssignedConsumer(SimConsumer):
    """Reads its partitions from the beginning; sometimes it seeks back and reads again."""

    async def work(self) -> None:
        positions = dict.fromkeys(self.names, 0)
        while not self.is_winding_down:
            name = self.rng.choice(self.names)
            try:
                await self._read_on(name, positions)
                if self.rng.random() < 0.15:
                    await self.end_of(name)
            except PeerUnreachable:
                await self.pause()
            if self.rng.random() < 0.03:
                positions[name] = self.rng.randint(0, positions[name])
            await self.pause(150)

    async def _read_on(self, name: TopicPartition, positions: dict[TopicPartition, int]) -> None:
        polled = await self.poll(
            name,
            positions[name],
            wait_ms=self.rng.choice((0, 100, 500)),
            bytes_max=self.rng.choice((200, 2_000, 1 << 20)),
        )
        if polled.code == OFFSET_OUT_OF_RANGE:
            self._violate("A16", name, f"there is nothing at {positions[name]} any more")
            positions[name] = 0
        elif polled.code and polled.code not in RETRIABLE:
            self.unexpected(f"a fetch of {name}", polled.code)
        if polled.code:
            await self.pause()
            return
        self.history.counts["polls"] += 1
        for offset, record in polled.records:
            self.on_record(name, offset, record)
        positions[name] = polled.next_offset

    def on_record(self, name: TopicPartition, offset: int, record: NewRecord) -> None:
        self.history.on_read(name, offset, record, is_committed=self.is_committed)


class OffsetWatcher(SimClient):
    """Watches the offsets that transactional producers commit, to check B9, and B3 for these offsets."""

    def __init__(
        self, name: str, *, groups: dict[str, str], position_of: TopicPartition, **client: Any
    ) -> None:
        """`groups`: for each group, the name of the producer that commits its offsets."""
        super().__init__(name, **client)
        self._groups = groups
        self._name = position_of
        self._highest: dict[str, int] = {}

    async def work(self) -> None:
        while not self.is_winding_down:
            for group in self._groups:
                try:
                    await self.look(group, is_stable=self.rng.random() < 0.5)
                except PeerUnreachable:
                    await self.pause()
            await self.pause(400)

    async def look(self, group: str, *, is_stable: bool) -> int | None:
        code, offset = await fetch_offset(self, group, self._name, is_stable=is_stable)
        if code:
            if code not in RETRIABLE:
                self.unexpected("OffsetFetch", code)
            self.on_code(code, coordinator=("group", group))
            return None
        self.history.counts["offset fetches"] += 1
        if offset < self._highest.get(group, -1):
            self.history.violate("B3", f"{group} went from {self._highest[group]} to {offset}")
        self._highest[group] = offset
        producer = self._groups[group]
        invoked = {
            one.group_offset
            for one in self.history.transactions
            if one.producer == producer and one.is_commit_invoked
        }
        if offset != -1 and offset not in invoked:
            self.history.violate("B9", f"{group} shows {offset}, whose commit was not asked for")
        return offset


async def fetch_offset(
    client: SimClient, group: str, name: TopicPartition, *, is_stable: bool
) -> tuple[int, int]:
    """Return the error code, and the group's committed offset of the partition; -1 if there is none."""
    topics = [{"name": name.topic, "partition_indexes": [name.partition]}]
    reply = await client.ask_coordinator(
        "group",
        group,
        Api.OFFSET_FETCH,
        9,
        groups=[{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}],
        require_stable=is_stable,
    )
    (answer,) = reply.groups
    if int(answer.error_code):
        return int(answer.error_code), -1
    (one,) = answer.topics[0].partitions
    return int(one.error_code), int(one.committed_offset)


def batches_of(data: bytes) -> list[RecordBatch]:
    view = memoryview(data)
    return [
        RecordBatch(header, view[position : position + header.size])
        for position, header in walk_batches(data)
    ]
