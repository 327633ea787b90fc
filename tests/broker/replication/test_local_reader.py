"""Records that a leader lends: read beside the loop, each where it belongs, and sent again where that fails."""

import asyncio
import logging
from random import Random

import pytest

from respool.broker.replication.local_reader import (
    AGAIN_AFTER_MS,
    READ_MS_MAX,
    Asked,
    BorrowedRecords,
)
from respool.model.file_place import PLACE_GOOD_MS, FilePlace
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.neighbours import SimNeighbours
from respool.sim.simulated_clock import SimClock
from respool.sim.simulated_disk import SimDisk
from respool.wire.fetch_reply import FetchedPart
from support.fetched_part import fetched_part

EPOCH = 3


class World:
    def __init__(self) -> None:
        self.neighbours = SimNeighbours()
        self.disk = SimDisk(Random(1), name="two")
        self.neighbours.add("two", lambda: self.disk)
        self.clock = SimClock()
        self.asked = Asked(self.neighbours.host, self.clock.monotonic_ms())
        self.borrowed = BorrowedRecords(self.neighbours, clock=self.clock, bytes_max=1_000)

    def lend(self, name: str, content: bytes) -> FilePlace:
        log = self.disk.open_log(name)
        log.append([content])
        place = log.place(0, len(content))
        assert place is not None
        return place

    def filled(self, *parts: FetchedPart) -> list[tuple[int, bytes]]:
        found = asyncio.run(self.borrowed.filled(parts, asked=self.asked, epoch_of=lambda _: EPOCH))
        assert all(one.place is None for one in found)
        return [(one.partition, bytes(one.records)) for one in found]


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_lent_and_what_was_sent_stay_with_their_partitions(world: World) -> None:
    first, second = world.lend("a", b"first"), world.lend("b", b"second")
    parts = (
        fetched_part(0, place=first),
        fetched_part(1, records=b"sent"),
        fetched_part(2, place=second),
        fetched_part(3),
    )
    assert world.filled(*parts) == [(0, b"first"), (1, b"sent"), (2, b"second"), (3, b"")]


def test_only_a_leader_nearby_hears_where_we_are(world: World) -> None:
    assert world.borrowed.ask(is_near=True).host == world.neighbours.host
    assert world.borrowed.ask(is_near=False).host == ""


def test_who_is_alone_borrows_nothing() -> None:
    alone = BorrowedRecords(None, clock=SimClock(), bytes_max=1_000)
    assert alone.ask(is_near=True).host == ""
    sent = [fetched_part(0, records=b"sent")]
    asked = alone.ask(is_near=True)
    assert asyncio.run(alone.filled(sent, asked=asked, epoch_of=lambda _: EPOCH)) == sent


@pytest.mark.parametrize(("asked", "size"), [("", 1), ("here", 1_001)])
def test_a_leader_that_lends_unasked_or_too_much_is_not_believed(
    world: World, asked: str, size: int
) -> None:
    """A few bytes of a reply must not make this broker take gigabytes."""
    place = FilePlace("/two/a", 0, 1, 0, size)
    with pytest.raises(PeerUnreachable, match=f"lends {size} bytes, which nobody asked for"):
        asyncio.run(
            world.borrowed.filled(
                [fetched_part(0, place=place)], asked=Asked(asked, 0), epoch_of=lambda _: EPOCH
            )
        )
    assert world.neighbours.failed_reads == 0


def test_all_that_fail_together_are_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    places = [world.lend(name, b"some") for name in "abc"]
    for name in "abc":
        world.disk.delete(name)
    with caplog.at_level(logging.INFO):
        world.filled(*[fetched_part(number, place=place) for number, place in enumerate(places)])
    assert len(caplog.records) == 1


def test_after_a_failure_all_is_sent_for_a_while(world: World) -> None:
    gone, there = world.lend("a", b"first"), world.lend("b", b"second")
    world.disk.delete("a")
    assert world.filled(fetched_part(0, place=gone), fetched_part(1, place=there)) == [
        (0, b""),
        (1, b"second"),
    ]
    assert world.borrowed.ask(is_near=True).host == ""
    world.clock.advance(AGAIN_AFTER_MS - 1)
    assert world.borrowed.ask(is_near=True).host == ""
    world.clock.advance(1)
    assert world.borrowed.ask(is_near=True).host == world.neighbours.host


def test_what_is_read_too_late_is_not_taken(world: World) -> None:
    """A process that stood still, or a disk that did: the file may be another that looks the same."""
    place = world.lend("a", b"first")
    world.clock.advance(PLACE_GOOD_MS)
    assert world.filled(fetched_part(0, place=place)) == [(0, b"first")]
    world.clock.advance(1)
    assert world.filled(fetched_part(0, place=place)) == [(0, b"")]


def test_what_a_later_leader_wrote_is_not_taken_for_what_was_lent(world: World) -> None:
    old, new = (
        build_batch([NewRecord(value=b"v")], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in ((0, EPOCH), (1, EPOCH + 1))
    )
    whole, mixed = world.lend("a", old + old), world.lend("b", old + new)
    found = world.filled(fetched_part(0, place=whole), fetched_part(1, place=mixed))
    assert found == [(0, old + old), (1, b"")]


def test_a_disk_that_hangs_is_waited_for_only_so_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_place: FilePlace) -> memoryview:
        await asyncio.Event().wait()
        raise AssertionError("nobody ever sets it")

    monkeypatch.setattr("respool.broker.replication.local_reader.READ_MS_MAX", READ_MS_MAX / 100)
    monkeypatch.setattr(world.neighbours, "read", hang)
    assert world.filled(fetched_part(0, place=world.lend("a", b"first"))) == [(0, b"")]
    assert world.borrowed.ask(is_near=True).host == ""
