"""The copying itself, between two sides in memory that fail in every way they can, by a seed."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from types import SimpleNamespace as Reply
from typing import Any

import pytest

from respool.broker.partitions.mirror_validation import check_continues, check_same
from respool.client.kafka.metadata import Place
from respool.mirror import copier
from respool.mirror.cluster_link import EARLIEST, ClusterLink, LinkError
from respool.mirror.copier import DIFFERENT_TRIES_MAX, PartitionCopier
from respool.mirror.partition_copy import CopyState, PartitionCopy
from respool.model.errors import InvalidRecord, NotLeader, OffsetOutOfRange, RequestError
from respool.model.ids import Offset, TopicPartition
from respool.pacing.backoff import Backoff
from respool.records.batch import BatchHeader
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker
from respool.records.mirrored_batches import read_mirrored
from respool.records.validate import walk_batches
from respool.wire.api_table import Api

SEEDS = range(200) if os.environ.get("RESPOOL_FUZZ") == "long" else range(25)
PLACES = [("rides", 0), ("rides", 1), ("fares", 0)]
NO_DIVERGENCE = Reply(epoch=-1, end_offset=-1)
LEADER_EPOCH = slice(12, 16)


class Log:
    """Batches one behind the other, and where they begin."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.batches: list[tuple[BatchHeader, bytes]] = []

    def append(self, data: bytes) -> None:
        for position, header in walk_batches(data):
            self.batches.append((header, data[position : position + header.size]))
            self.end = header.next_offset

    def cut_to(self, count: int) -> None:
        """A power cut took what was not synced."""
        del self.batches[count:]
        self.end = self.batches[-1][0].next_offset if self.batches else 0
        if self.end < self.start:
            # What was deleted, was so for good: it goes on where it was told to start.
            self.batches.clear()
            self.end = self.start

    def read(self, offset: int, bytes_max: int) -> bytes:
        found = b"".join(data for header, data in self.batches if header.last_offset >= offset)
        whole = next((h.size for h, _ in self.batches if h.last_offset >= offset), 0)
        return found[: max(bytes_max, whole)]

    def open_transactions(self) -> dict[int, int]:
        """Producer -> where its transaction begins; deleting what it wrote does not end it."""
        found: dict[int, int] = {}
        for header, _ in self.batches:
            if header.is_control:
                found.pop(header.producer_id, None)
            elif header.is_transactional:
                found.setdefault(header.producer_id, header.base_offset)
        return found

    def records(self) -> list[tuple[int, bytes]]:
        """All that holds records, but for the leader epochs."""
        found = []
        for header, data in self.batches:
            if header.record_count and not header.is_control and header.last_offset >= self.start:
                plain = bytearray(data)
                plain[LEADER_EPOCH] = b"    "
                found.append((int(header.base_offset), bytes(plain)))
        return found


class Side(ClusterLink):
    """One broker that leads everything, and fails as often as it is told to."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name = name
        self.rng = rng
        self.troubles = 0.0
        self.logs = {place: Log() for place in PLACES}
        self.late: list[Mapping[str, Any]] = []
        self.refused = 0
        self.came_late = 0

    async def refresh(self) -> None:
        self._maybe_fail()

    def leader_of(self, place: Place) -> int | None:
        return None if self.rng.random() < self.troubles / 10 else 1

    async def offsets(self, places: Any, at: int) -> dict[Place, int]:
        if self._is_unlucky():
            return {}
        return {
            place: self.logs[place].start if at == EARLIEST else self.logs[place].end
            for place in places
        }

    async def first_batch(self, place: Place, offset: int) -> bytes:
        self._maybe_fail()
        return self.logs[place].read(offset, 1)

    async def request(
        self,
        broker: int,
        api: Api,
        fields: Mapping[str, Any],
        **_: Any,
    ) -> Any:
        await asyncio.sleep(0)
        self._maybe_fail()
        answer = {
            Api.FETCH: self._fetch,
            Api.PRODUCE: self._produce,
            Api.DELETE_RECORDS: self._delete,
            Api.DESCRIBE_PRODUCERS: self._describe,
        }[api](fields)
        await asyncio.sleep(0)
        # It is done, and nobody hears of it.
        self._maybe_fail()
        return answer

    def _fetch(self, fields: Mapping[str, Any]) -> Any:
        return Reply(
            error_code=0,
            responses=[
                Reply(
                    topic=topic["topic"],
                    partitions=[self._fetched(topic["topic"], one) for one in topic["partitions"]],
                )
                for topic in fields["topics"]
            ],
        )

    def _fetched(self, topic: str, asked: Mapping[str, Any]) -> Any:
        log = self.logs[topic, asked["partition"]]
        code = NotLeader.code if self._is_unlucky() else 0
        if not log.start <= asked["fetch_offset"] <= log.end:
            code = OffsetOutOfRange.code
        return Reply(
            partition_index=asked["partition"],
            error_code=code,
            diverging_epoch=NO_DIVERGENCE,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=b"" if code else log.read(asked["fetch_offset"], self.rng.randint(0, 600)),
        )

    def _produce(self, fields: Mapping[str, Any]) -> Any:
        if self._is_unlucky():
            # It lies somewhere in between, and arrives when it is not expected any more.
            self.late.append(fields)
            raise LinkError("delayed")
        if self.late and self.rng.random() < 0.5:
            self.came_late += 1
            self._produce(self.late.pop(self.rng.randrange(len(self.late))))
        return Reply(
            responses=[
                Reply(
                    name=topic["name"],
                    partition_responses=[
                        Reply(
                            index=one["index"],
                            error_code=self._append(topic["name"], one),
                            error_message=None,
                        )
                        for one in topic["partition_data"]
                    ],
                )
                for topic in fields["topic_data"]
            ]
        )

    def _append(self, topic: str, one: Mapping[str, Any]) -> int:
        """As the broker does."""
        log = self.logs[topic, one["index"]]
        if self._is_unlucky():
            self.refused += 1
            return NotLeader.code
        sent = read_mirrored(one["records"])
        assert sent is not None
        try:
            name = TopicPartition(topic, one["index"])
            is_new = check_continues(sent, Offset(log.end), name, is_empty=not log.batches)
            here = Offset(min(sent.end, log.end))
            if here > max(sent.base_offset, log.start):
                check_same(sent, here, log.read(here - 1, 1), name)
            if is_new:
                skipped = next(
                    position for position, h in walk_batches(sent.data) if h.last_offset >= log.end
                )
                log.append(sent.data[skipped:])
        except RequestError as error:
            self.refused += 1
            return error.code
        return 0

    def _describe(self, fields: Mapping[str, Any]) -> Any:
        ((topic, number),) = (
            (one["name"], number) for one in fields["topics"] for number in one["partition_indexes"]
        )
        producers = [
            Reply(
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=-1,
                last_timestamp=1,
                current_txn_start_offset=start,
            )
            for producer, start in self.logs[topic, number].open_transactions().items()
        ]
        idle = Reply(
            producer_id=9, producer_epoch=0, coordinator_epoch=-1, current_txn_start_offset=-1
        )
        partition = Reply(partition_index=number, error_code=0, active_producers=[idle, *producers])
        return Reply(topics=[Reply(partitions=[partition])])

    def _delete(self, fields: Mapping[str, Any]) -> Any:
        return Reply(
            topics=[
                Reply(
                    name=topic["name"],
                    partitions=[self._deleted(topic["name"], one) for one in topic["partitions"]],
                )
                for topic in fields["topics"]
            ]
        )

    def _deleted(self, topic: str, asked: Mapping[str, Any]) -> Any:
        log = self.logs[topic, asked["partition_index"]]
        if asked["offset"] > log.end:
            code = OffsetOutOfRange.code
        else:
            code, log.start = 0, max(log.start, asked["offset"])
        return Reply(
            partition_index=asked["partition_index"], error_code=code, low_watermark=log.start
        )

    def _is_unlucky(self) -> bool:
        return self.rng.random() < self.troubles

    def _maybe_fail(self) -> None:
        if self._is_unlucky():
            raise LinkError(f"{self.name} is away")

    def by_leader(self, places: Any) -> dict[int, list[Place]]:
        return {1: list(places)}


def batch(base: int, *values: bytes, producer: int | None = None) -> bytes:
    """With a producer, of a transaction."""
    records = [NewRecord(value=value, timestamp_ms=1) for value in values]
    if producer is None:
        return build_batch(records, base_offset=base, leader_epoch=0)
    return build_batch(
        records,
        base_offset=base,
        leader_epoch=0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def end_of(producer: int, base: int) -> bytes:
    marker = EndTransactionMarker(
        producer_id=producer, producer_epoch=0, coordinator_epoch=0, is_commit=True
    )
    return base.to_bytes(8) + bytes(build_marker(marker, timestamp_ms=1).data)[8:]


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = Side("the source", self.rng)
        self.target = Side("the target", self.rng)
        self.stopped: dict[str, str] = {}
        self.copy = PartitionCopier(
            self.source,
            self.target,
            on_stopped=lambda topic, cause, why: self.stopped.update({topic: why}),
            on_loss=lambda copy, count, *, aborted, left_open: None,
        )
        self.copy.add(PLACES)

    def write(self) -> None:
        """A batch at the source's end, maybe behind a gap that compaction left."""
        log = self.source.logs[self.rng.choice(PLACES)]
        base = log.end + (self.rng.randint(1, 5) if self.rng.random() < 0.2 else 0)
        producer = self.rng.randint(0, 3)
        if producer in log.open_transactions() and self.rng.random() < 0.5:
            log.append(end_of(producer, base))
            return
        count = self.rng.randint(1, 4)
        values = [self.rng.randbytes(20)] * count
        log.append(batch(base, *values, producer=producer or None))

    def happen(self) -> None:
        what = self.rng.random()
        if what < 0.9:
            self.write()
        elif what < 0.95:
            log = self.source.logs[self.rng.choice(PLACES)]
            log.start = self.rng.randint(log.start, log.end)
        else:
            log = self.target.logs[self.rng.choice(PLACES)]
            log.cut_to(self.rng.randint(len(log.batches) // 2, len(log.batches)))

    def is_same(self) -> bool:
        return all(
            (self.source.logs[place].end, self.source.logs[place].start)
            == (self.target.logs[place].end, self.target.logs[place].start)
            for place in PLACES
        )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(copier, "LOG_STARTS_SECONDS", 0.002)
    quick = Backoff(first=0.001, longest=0.01)
    monkeypatch.setattr("respool.mirror.partition_copy.RETRY", quick)


async def play(world: World) -> None:
    world.source.troubles = world.target.troubles = 0.1
    running = asyncio.ensure_future(world.copy.run())
    for _ in range(300):
        world.happen()
        await asyncio.sleep(0 if world.rng.random() < 0.5 else 0.001)
    world.source.troubles = world.target.troubles = 0.0
    async with asyncio.timeout(20):
        while not world.is_same() and not world.stopped and not running.done():
            await asyncio.sleep(0.002)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_the_copy_becomes_what_the_source_is(seed: int) -> None:
    world = World(seed)
    asyncio.run(play(world))
    assert world.stopped == {}
    for place in PLACES:
        source, target = world.source.logs[place], world.target.logs[place]
        assert target.records() == source.records(), place
        assert target.open_transactions().keys() <= source.open_transactions().keys(), place
        kept = [header for header, _ in target.batches if header.base_offset >= target.start]
        following = [header.base_offset for header in kept[1:]] + [target.end]
        assert [header.next_offset for header in kept] == following[: len(kept)]


def test_the_failures_do_happen() -> None:
    worlds = [World(seed) for seed in range(5)]
    for world in worlds:
        asyncio.run(play(world))
    assert sum(world.target.refused for world in worlds) > 0
    assert sum(world.target.came_late for world in worlds) > 0
    assert sum(copy.run for world in worlds for copy in world.copy.partitions.values()) > 0


async def run_until(world: World, holds: Any) -> None:
    running = asyncio.ensure_future(world.copy.run())
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_a_source_that_says_it_lost_messages_stops_its_topic_and_no_other() -> None:
    world = World(1)
    for _ in range(30):
        world.write()
    lost = Reply(epoch=0, end_offset=1)
    fetched = world.source._fetched

    def diverged(topic: str, asked: Mapping[str, Any]) -> Any:
        answer = fetched(topic, asked)
        if topic == "rides" and asked["last_fetched_epoch"] >= 0:
            answer.diverging_epoch = lost
        return answer

    world.source._fetched = diverged  # type: ignore[method-assign]
    fares = ("fares", 0)
    asyncio.run(
        run_until(
            world,
            lambda: world.stopped and world.target.logs[fares].end == world.source.logs[fares].end,
        )
    )
    assert "the source lost messages from offset 1 on" in world.stopped["rides"]
    assert "fares" not in world.stopped
    states = {place: copy.state for place, copy in world.copy.partitions.items()}
    assert states == {
        ("rides", 0): CopyState.STOPPED,
        ("rides", 1): CopyState.STOPPED,
        ("fares", 0): CopyState.COPYING,
    }


def test_what_was_deleted_before_it_was_copied_is_told_and_left_empty() -> None:
    world = World(2)
    told = losses(world)
    source, target = (side.logs["rides", 0] for side in (world.source, world.target))
    # Copied before, by a mirror that was away since.
    target.append(batch(0, b"v"))
    for base in range(8):
        source.append(batch(base, b"v"))
    source.start = 6
    asyncio.run(run_until(world, world.is_same))
    assert told == [("rides/0", 5, 0, 0)]
    assert [offset for offset, _ in target.records()] == [6, 7]


def losses(world: World) -> list[tuple[str, int, int, int]]:
    """Where, how many offsets, and how many transactions were ended there and were not; filled as it is told."""
    told: list[tuple[str, int, int, int]] = []

    def on_loss(copy: PartitionCopy, count: int, *, aborted: int, left_open: int) -> None:
        told.append((copy.name, count, aborted, left_open))

    world.copy._seek._on_loss = on_loss
    return told


def test_a_transaction_whose_end_the_source_deleted_does_not_stay_open_in_the_copy() -> None:
    """Readers of committed messages read nothing more of the copy; and the producer's next one was mixed with it."""
    world = World(2)
    told = losses(world)
    source, target = (side.logs["rides", 0] for side in (world.source, world.target))
    # Two are open where the mirror stopped. One ends where the source deletes, and one later.
    written = [batch(number, b"v", producer=number + 1) for number in range(2)]
    for one in written:
        target.append(one)
    for one in (*written, end_of(1, 2), batch(3, b"v", b"w"), end_of(2, 5)):
        source.append(one)
    source.append(batch(6, b"v", producer=1))
    source.start = 5
    asyncio.run(run_until(world, world.is_same))
    assert told == [("rides/0", 3, 2, 0)]
    assert target.open_transactions() == source.open_transactions() == {1: 6}
    assert [(header.base_offset, header.is_control) for header, _ in target.batches[2:]] == [
        (2, False),
        (3, True),
        (4, True),
        (5, True),
        (6, False),
    ]


@pytest.mark.parametrize("is_asked", [True, False])
def test_more_transactions_are_open_than_offsets_were_deleted(is_asked: bool) -> None:
    """The one that ended there is ended; the other is known to go on at the source, if that can be asked."""
    world = World(2)
    told = losses(world)
    source, target = (side.logs["rides", 0] for side in (world.source, world.target))
    written = [batch(number, b"v", producer=number + 1) for number in range(2)]
    for one in written:
        target.append(one)
    for one in (*written, end_of(2, 2), batch(3, b"v", producer=1)):
        source.append(one)
    source.start = 3

    def hang_up(_: Any) -> Any:
        raise LinkError("a Kafka before 3.0")

    if not is_asked:
        world.source._describe = hang_up  # type: ignore[method-assign,assignment]
    asyncio.run(run_until(world, world.is_same))
    assert told == [("rides/0", 1, 1, 1)]
    assert target.open_transactions() == ({1: 0} if is_asked else {2: 1, 1: 3})


def test_a_gap_that_grew_over_an_uncommitted_end_is_no_difference() -> None:
    """The target ended later than it said, which is how far it was committed; the topic was stopped for good."""
    world = World(2)
    source, target = (side.logs["rides", 0] for side in (world.source, world.target))
    for base in range(4):
        target.append(batch(base, b"v"))
    # Compaction took 1 to 5 away.
    for base in (0, 6):
        source.append(batch(base, b"v"))
    said = world.target.offsets
    looks = 0

    async def committed(places: Any, at: int) -> dict[Place, int]:
        nonlocal looks
        looks += at != EARLIEST
        found = await said(places, at)
        return {**found, ("rides", 0): 1} if at != EARLIEST and looks < 3 else found

    async def is_mirror(_: str) -> bool:
        return True

    world.target.offsets = committed  # type: ignore[method-assign]
    world.target.is_mirror = is_mirror  # type: ignore[method-assign,assignment]
    asyncio.run(run_until(world, lambda: world.is_same() or world.stopped))
    assert world.stopped == {}
    assert [offset for offset, _ in target.records()] == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("is_mirror", [True, False, None])
def test_what_the_target_refuses_for_good_stops_the_topic_once_that_is_sure(
    is_mirror: bool | None,
) -> None:
    """While a broker of the target did not answer, the topic was said to be promoted."""
    world = World(2)
    world.source.logs["rides", 0].append(batch(0, b"v"))
    refusals = 0

    def refuse(topic: str, _: Any) -> int:
        nonlocal refusals
        refusals += 1
        return InvalidRecord.code

    async def said(_: str) -> bool | None:
        # One that does not answer, does so in the end.
        return False if is_mirror is None and refusals > 20 else is_mirror

    world.target._append = refuse  # type: ignore[method-assign,assignment]
    world.target.is_mirror = said  # type: ignore[method-assign,assignment]
    asyncio.run(run_until(world, lambda: world.stopped))
    assert ("is no longer a mirror" in world.stopped["rides"]) is not is_mirror
    assert refusals == {True: DIFFERENT_TRIES_MAX + 1, False: 1, None: 21}[is_mirror]
