"""What a follower asks its leader in Kafka's protocol, and what it makes of the answer."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.replica_bench import ME, TWO, Bench, play
from respool.broker.partitions.partition import Partition
from respool.broker.peer_link import PeerLink
from respool.broker.replication.follower_local_reads import FollowerLocalReads
from respool.broker.replication.replica_requests import (
    EARLIEST,
    EPOCH_MAX,
    ReplicaRequests,
    ReplicaSession,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.ports.peers import PeerUnreachable
from respool.replication.follower import Fetched, FetchFrom
from respool.sim.disk.simulated_disk import SimDisk, SimLocalReader
from respool.wire.api_table import Api
from respool.wire.fetch_reply import FetchedPart, FetchReplyView

RIDES = cast("Partition", "rides-0")
FARES = cast("Partition", "fares-0")


class Link:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self.leads_on_this_host = False

    def is_on_this_host(self, broker: int, *, channel: int) -> bool:
        del channel
        assert broker == TWO
        return self.leads_on_this_host

    async def fetch(self, broker: int, version: int, **fields: Any) -> Any:
        return await self.ask(broker, Api.FETCH, version, **fields)

    async def ask(self, broker: int, key: int, version: int, **fields: Any) -> Any:
        del version
        assert broker == TWO
        self.asked.append({"key": key, **fields})
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def fetch_reply(
    partition: Partition, *, session_id: int = 77, error: int = 0, **more: Any
) -> FetchReplyView:
    part = FetchedPart(
        topic=partition.topic_id,
        partition=partition.name.partition,
        error_code=0,
        high_watermark=5,
        last_stable_offset=5,
        log_start=2,
        aborted=(),
        records=memoryview(b""),
        diverging=None,
        leader=None,
    )
    return FetchReplyView(error_code=error, session_id=session_id, parts=[replace(part, **more)])


def from_offset(offset: int) -> FetchFrom:
    return FetchFrom(
        leader=TWO,
        leader_epoch=LeaderEpoch(3),
        offset=Offset(offset),
        durable_end=Offset(offset),
        last_fetched_epoch=LeaderEpoch(2),
        log_start=Offset(1),
    )


class World:
    def __init__(self, bench: Bench) -> None:
        self.link = Link()
        self.local_reader = SimLocalReader()
        self.requests = ReplicaRequests(
            cast("PeerLink", self.link),
            me=ME,
            leader=TWO,
            local_reads=FollowerLocalReads(self.local_reader, clock=bench.clock, bytes_max=100),
        )
        self.rides = bench.partition()

    async def fetch(self, offset: int = 5, *, channel: int = 1) -> Any:
        return await self.requests.fetch(
            {self.rides: from_offset(offset)}, broker_epoch=10, wait_ms=20, channel=channel
        )


def test_a_fetch_says_who_asks_and_what_it_has() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [fetch_reply(world.rides, records=memoryview(b"some"))]
        (reply,) = await world.fetch()
        assert (reply.records, reply.fetched.high_watermark, reply.fetched.log_start) == (
            b"some",
            5,
            2,
        )
        (asked,) = world.link.asked
        assert asked["key"] == Api.FETCH
        assert asked["replica_state"] == {"replica_id": ME, "replica_epoch": 10}
        (topic,) = asked["topics"]
        assert topic["topic_id"] == world.rides.topic_id
        (partition,) = topic["partitions"]
        assert partition["fetch_offset"] == 5
        assert partition["last_fetched_epoch"] == 2
        assert partition["current_leader_epoch"] == 3
        assert partition["log_start_offset"] == 1

    play(story)


def test_a_diverging_epoch_is_taken_over_and_none_is_none() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        for diverging in ((4, 3), None):
            world.link.answers = [fetch_reply(world.rides, diverging=diverging)]
            (reply,) = await world.fetch()
            told = reply.fetched.diverging
            assert (None if told is None else (told.epoch, told.end)) == diverging

    play(story)


def test_a_request_that_is_refused_as_a_whole_begins_a_new_session() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [fetch_reply(world.rides), fetch_reply(world.rides, error=70)]
        await world.fetch()
        with pytest.raises(PeerUnreachable, match="70"):
            await world.fetch(6)
        world.link.answers = [fetch_reply(world.rides)]
        await world.fetch(6)
        assert [one["session_id"] for one in world.link.asked] == [0, 77, 0]
        assert [one["session_epoch"] for one in world.link.asked] == [0, 1, 0]

    play(story)


def test_a_request_without_an_answer_begins_a_new_session() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [fetch_reply(world.rides), PeerUnreachable("gone")]
        await world.fetch()
        with pytest.raises(PeerUnreachable):
            await world.fetch()
        world.link.answers = [fetch_reply(world.rides)]
        await world.fetch()
        assert world.link.asked[-1]["session_id"] == 0

    play(story)


def test_lanes_have_sessions_of_their_own() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [fetch_reply(world.rides, session_id=one) for one in (77, 88, 77, 88)]
        for channel in (1, 2, 1, 2):
            await world.fetch(channel=channel)
        assert [one["session_id"] for one in world.link.asked] == [0, 0, 77, 88]

    play(story)


def test_a_leader_nearby_is_told_where_its_follower_is_and_what_it_lends_is_read() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        disk = SimDisk(Random(1), name="two")
        world.local_reader.add("two", lambda: disk)
        log = disk.open_log("rides.log")
        log.append([b"what it has"])
        lent = fetch_reply(world.rides, file_range=log.file_range(5, 6))
        world.link.answers = [fetch_reply(world.rides), lent, lent, fetch_reply(world.rides)]
        await world.fetch()
        world.link.leads_on_this_host = True
        (reply,) = await world.fetch()
        assert (bytes(reply.records), reply.fetched.has_records) == (b"it has", True)
        # It is gone now: nothing came, and the next fetch has it sent.
        disk.delete("rides.log")
        (reply,) = await world.fetch()
        assert (bytes(reply.records), reply.fetched.has_records) == (b"", False)
        await world.fetch()
        told = [one["reader_host"] for one in world.link.asked]
        assert told == ["", world.local_reader.host, world.local_reader.host, ""]

    play(story)


def test_what_nobody_asked_for_is_left_alone() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [fetch_reply(bench.partition(9))]
        assert await world.fetch() == []

    play(story)


def offset_reply(offset: int, error: int = 0) -> SimpleNamespace:
    told = SimpleNamespace(error_code=error, offset=offset)
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[told])])


def test_where_the_leaders_log_is_takes_two_questions_in_its_epoch() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [offset_reply(50), offset_reply(60)]
        found = await world.requests.log_range(world.rides, LeaderEpoch(3), channel=1)
        assert found == (50, 60)
        first = world.link.asked[0]
        assert first["replica_id"] == ME
        (wanted,) = first["topics"][0]["partitions"]
        assert (wanted["timestamp"], wanted["current_leader_epoch"]) == (EARLIEST, 3)

    play(story)


@pytest.mark.parametrize(
    "answer", [offset_reply(-1, error=6), SimpleNamespace(topics=[]), PeerUnreachable("gone")]
)
def test_a_leader_that_does_not_say_where_its_log_is_has_not_answered(answer: Any) -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.link.answers = [offset_reply(50), answer]
        with pytest.raises(PeerUnreachable):
            await world.requests.log_range(world.rides, LeaderEpoch(3), channel=1)

    play(story)


def fetch(offset: int) -> FetchFrom:
    return FetchFrom(
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(3),
        offset=Offset(offset),
        durable_end=Offset(offset),
        last_fetched_epoch=LeaderEpoch(3),
        log_start=Offset(0),
    )


def told(high_watermark: int, *, error: int = 0, has_records: bool = False) -> Fetched:
    return Fetched(
        error=error,
        has_records=has_records,
        high_watermark=Offset(high_watermark),
        log_start=Offset(0),
    )


@pytest.fixture
def begun() -> ReplicaSession:
    """A session over both partitions, both fetched from 5, that the leader calls 77."""
    session = ReplicaSession()
    first = session.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert (first.session_id, first.epoch) == (0, 0)
    assert set(first.changed) == {RIDES, FARES}
    session.on_reply(77, {RIDES: told(5), FARES: told(4)})
    return session


def test_only_what_has_changed_is_sent_again(begun: ReplicaSession) -> None:
    request = begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (77, 1)
    assert dict(request.changed) == {RIDES: fetch(9)}
    assert request.forgotten == ()


def test_what_is_not_in_the_reply_is_as_it_was_told_last(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    answers = begun.on_reply(77, {RIDES: told(9, has_records=True)})
    assert answers == {RIDES: told(9, has_records=True), FARES: told(4)}


def test_what_is_not_asked_for_is_taken_out_of_the_session(begun: ReplicaSession) -> None:
    """The leader would take it for word that it is still there, while its log may be being cut off."""
    request = begun.next_request({RIDES: fetch(5)})
    assert request.forgotten == (FARES,)
    assert begun.on_reply(77, {}) == {RIDES: told(5)}
    back = begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert dict(back.changed) == {FARES: fetch(5)}


def test_what_had_an_error_is_sent_again_though_it_is_the_same(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    answers = begun.on_reply(77, {RIDES: told(-1, error=6)})
    assert answers[RIDES].error == 6
    assert dict(begun.next_request({RIDES: fetch(5), FARES: fetch(5)}).changed) == {RIDES: fetch(5)}


def test_what_had_an_error_and_is_not_asked_for_is_forgotten(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    begun.on_reply(77, {RIDES: told(-1, error=6)})
    assert begun.next_request({FARES: fetch(5)}).forgotten == (RIDES,)


@pytest.mark.parametrize("session_id", [0, 78])
def test_a_leader_that_keeps_no_session_is_asked_for_all_each_time(
    begun: ReplicaSession, session_id: int
) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert begun.on_reply(session_id, {RIDES: told(5)}) == {RIDES: told(5)}
    request = begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (0, 0)
    assert set(request.changed) == {RIDES, FARES}


def test_after_a_lost_request_a_new_session_begins(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    begun.reset()
    request = begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (0, 0)
    assert set(request.changed) == {RIDES, FARES}


def test_the_epoch_goes_on_at_one_after_the_largest(begun: ReplicaSession) -> None:
    begun._epoch = EPOCH_MAX
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    begun.on_reply(77, {})
    assert begun.next_request({RIDES: fetch(5), FARES: fetch(5)}).epoch == 1
