"""Records that a leader lends: read beside the loop, each where it belongs, and sent again where that fails."""

import asyncio
import logging
from random import Random

import pytest

from respool.broker.replication.follower_local_reads import (
    READ_MS_MAX,
    RETRY_AFTER_MS,
    FollowerLocalReads,
    LocalReadRequest,
)
from respool.model.file_range import FILE_RANGE_VALID_MS, FileRange
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.disk.simulated_disk import SimDisk, SimLocalReader
from respool.wire.fetch_reply import FetchedPart
from support.fetched_part import fetched_part
from support.sim_clock import SimClock

EPOCH = 3


class World:
    def __init__(self) -> None:
        self.local_reader = SimLocalReader()
        self.disk = SimDisk(Random(1), name="two")
        self.local_reader.add("two", lambda: self.disk)
        self.clock = SimClock()
        self.asked = LocalReadRequest(self.local_reader.host, self.clock.monotonic_ms())
        self.local_reads = FollowerLocalReads(self.local_reader, clock=self.clock, bytes_max=1_000)

    def lend(self, name: str, content: bytes) -> FileRange:
        log = self.disk.open_log(name)
        log.append([content])
        file_range = log.file_range(0, len(content))
        assert file_range is not None
        return file_range

    def filled(self, *parts: FetchedPart) -> list[tuple[int, bytes]]:
        found = asyncio.run(
            self.local_reads.filled(parts, asked=self.asked, epoch_of=lambda _: EPOCH)
        )
        assert all(one.file_range is None for one in found)
        return [(one.partition, bytes(one.records)) for one in found]


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_lent_and_what_was_sent_stay_with_their_partitions(world: World) -> None:
    first, second = world.lend("a", b"first"), world.lend("b", b"second")
    parts = (
        fetched_part(0, file_range=first),
        fetched_part(1, records=b"sent"),
        fetched_part(2, file_range=second),
        fetched_part(3),
    )
    assert world.filled(*parts) == [(0, b"first"), (1, b"sent"), (2, b"second"), (3, b"")]


def test_only_a_leader_nearby_hears_where_we_are(world: World) -> None:
    assert world.local_reads.ask(is_on_this_host=True).host == world.local_reader.host
    assert world.local_reads.ask(is_on_this_host=False).host == ""


def test_who_is_alone_borrows_nothing() -> None:
    alone = FollowerLocalReads(None, clock=SimClock(), bytes_max=1_000)
    assert alone.ask(is_on_this_host=True).host == ""
    sent = [fetched_part(0, records=b"sent")]
    asked = alone.ask(is_on_this_host=True)
    assert asyncio.run(alone.filled(sent, asked=asked, epoch_of=lambda _: EPOCH)) == sent


@pytest.mark.parametrize(("asked", "size"), [("", 1), ("here", 1_001)])
def test_a_leader_that_lends_unasked_or_too_much_is_not_believed(
    world: World, asked: str, size: int
) -> None:
    """A few bytes of a reply must not make this broker take gigabytes."""
    file_range = FileRange("/two/a", 0, 1, 0, size)
    with pytest.raises(PeerUnreachable, match=f"file ranges of {size} bytes"):
        asyncio.run(
            world.local_reads.filled(
                [fetched_part(0, file_range=file_range)],
                asked=LocalReadRequest(asked, 0),
                epoch_of=lambda _: EPOCH,
            )
        )
    assert world.local_reader.failed_reads == 0


def test_all_that_fail_together_are_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    places = [world.lend(name, b"some") for name in "abc"]
    for name in "abc":
        world.disk.delete(name)
    with caplog.at_level(logging.INFO):
        world.filled(
            *[
                fetched_part(number, file_range=file_range)
                for number, file_range in enumerate(places)
            ]
        )
    assert len(caplog.records) == 1


def test_after_a_failure_all_is_sent_for_a_while(world: World) -> None:
    gone, there = world.lend("a", b"first"), world.lend("b", b"second")
    world.disk.delete("a")
    assert world.filled(fetched_part(0, file_range=gone), fetched_part(1, file_range=there)) == [
        (0, b""),
        (1, b"second"),
    ]
    assert world.local_reads.ask(is_on_this_host=True).host == ""
    world.clock.advance(RETRY_AFTER_MS - 1)
    assert world.local_reads.ask(is_on_this_host=True).host == ""
    world.clock.advance(1)
    assert world.local_reads.ask(is_on_this_host=True).host == world.local_reader.host


def test_what_is_read_too_late_is_not_taken(world: World) -> None:
    """A process that stood still, or a disk that did: the file may be another that looks the same."""
    file_range = world.lend("a", b"first")
    world.clock.advance(FILE_RANGE_VALID_MS)
    assert world.filled(fetched_part(0, file_range=file_range)) == [(0, b"first")]
    world.clock.advance(1)
    assert world.filled(fetched_part(0, file_range=file_range)) == [(0, b"")]


def test_what_a_later_leader_wrote_is_not_taken_for_what_was_lent(world: World) -> None:
    old, new = (
        build_batch([NewRecord(value=b"v")], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in ((0, EPOCH), (1, EPOCH + 1))
    )
    whole, mixed = world.lend("a", old + old), world.lend("b", old + new)
    found = world.filled(fetched_part(0, file_range=whole), fetched_part(1, file_range=mixed))
    assert found == [(0, old + old), (1, b"")]


def test_a_disk_that_hangs_is_waited_for_only_so_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_file_range: FileRange) -> memoryview:
        await asyncio.Event().wait()
        raise AssertionError("nobody ever sets it")

    monkeypatch.setattr(
        "respool.broker.replication.follower_local_reads.READ_MS_MAX", READ_MS_MAX / 100
    )
    monkeypatch.setattr(world.local_reader, "read", hang)
    assert world.filled(fetched_part(0, file_range=world.lend("a", b"first"))) == [(0, b"")]
    assert world.local_reads.ask(is_on_this_host=True).host == ""
