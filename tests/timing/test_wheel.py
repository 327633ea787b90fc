"""The wheel beside the plainest model of one, a sorted list, through jumps of the clock, power cuts and restarts."""

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk
from respool.timing.entries import due_of, offset_of, pack_entry
from respool.timing.wheel import DAY_MS, HOUR_MS, MINUTE_MS, Wheel, WheelCorrupt
from respool.timing.wheel_files import WheelFiles

FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
FOLDER = "reminders-0/pending"
START_MS = 1_760_000_000_000
# The smallest that a wheel accepts: nearly everything goes through files.
SMALL = 64


class WheelWorld:
    def __init__(self, seed: int = 1, *, now_ms: int = START_MS) -> None:
        self.disk = SimDisk(Random(seed))
        # A partition's folder is durable before its log counts as synced.
        self.disk.make_folder(FOLDER.partition("/")[0])
        self.disk.sync_folder("")
        self.now_ms = now_ms
        self.next_offset = 0
        self.expected: list[bytes] = []
        self.begin()
        self.kept: tuple[list[bytes], int] | None = None

    def begin(self) -> None:
        self.files = WheelFiles(self.disk, FOLDER)
        self.wheel = Wheel(self.files, now_ms=self.now_ms, entries_max=SMALL)

    def add(self, *dues_ms: int) -> None:
        for due_ms in dues_ms:
            entry = pack_entry(due_ms, Offset(self.next_offset))
            self.next_offset += 1
            self.wheel.add(entry)
            self.expected.append(entry)

    def advance(self, by_ms: int = 0) -> None:
        self.now_ms += by_ms
        while self.wheel.advance(self.now_ms, step=1):
            pass

    def pop(self, count: int) -> list[bytes]:
        """Pop from a wheel that has opened all it should: exactly what is due, in order."""
        self.advance()
        due = sorted(entry for entry in self.expected if due_of(entry) <= self.now_ms)[:count]
        assert self.wheel.pop_due(self.now_ms, count) == due
        gone = set(due)
        self.expected = [entry for entry in self.expected if entry not in gone]
        return due

    def discard(self, which: int) -> None:
        if self.expected:
            entry = self.expected.pop(which % len(self.expected))
            self.wheel.discard(offset_of(entry))

    def checkpoint(self, popped: list[bytes] | None = None) -> None:
        popped = popped or []
        self.files.write_checkpoint({"wheel": self.wheel.state(popped=popped)})
        self.expected += popped
        for entry in popped:
            self.wheel.add(entry)
        self.kept = list(self.expected), self.next_offset

    def restart(self, *, power_cut: bool) -> None:
        """What was done since the checkpoint is lost, as if it had never been."""
        if power_cut:
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk = self.disk.reopen()
        self.begin()
        document = self.files.load_checkpoint()
        if self.kept is None:
            assert document is None
            self.files.delete_all()
            self.expected = []
            return
        assert document is not None
        self.wheel.restore(document["wheel"])
        self.expected, self.next_offset = list(self.kept[0]), self.kept[1]

    def check(self) -> None:
        assert len(self.wheel) == len(self.expected)
        # Entries in the queue's memory that were discarded stay until they come first.
        assert self.wheel.in_memory <= SMALL + 1
        first = min(map(due_of, self.expected), default=None)
        told = self.wheel.next_due_ms()
        if first is not None:
            assert told is not None
            assert told <= first

    def drain(self) -> None:
        while self.expected:
            self.now_ms = max(self.now_ms, min(map(due_of, self.expected)))
            assert self.pop(37)
        assert self.wheel.next_due_ms() is None
        assert len(self.wheel) == 0


dues = st.one_of(
    st.integers(-5 * MINUTE_MS, 5 * MINUTE_MS),
    st.integers(0, 5 * HOUR_MS),
    st.integers(0, 100 * DAY_MS),
    st.integers(0, 4000 * DAY_MS),
)
actions = st.one_of(
    st.tuples(st.just("add"), st.lists(dues, min_size=1, max_size=60)),
    # Many at once, so that a minute does not fit into memory.
    st.tuples(st.just("burst"), st.tuples(dues, st.integers(1, 300))),
    st.tuples(st.just("jump"), st.one_of(st.integers(-HOUR_MS, HOUR_MS), dues)),
    st.tuples(st.just("pop"), st.integers(1, 200)),
    st.tuples(st.just("discard"), st.integers(0, 10**6)),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("restart"), st.booleans()),
)


@given(st.lists(actions, max_size=40), st.integers(0, 2**32))
@settings(max_examples=2_000 if FUZZ else 100, deadline=None)
def test_wheel_is_a_sorted_list(steps: list[tuple[str, object]], seed: int) -> None:
    world = WheelWorld(seed)
    for action, given_value in steps:
        run_step(world, action, given_value)
        world.check()
    world.drain()


def run_step(world: WheelWorld, action: str, value: object) -> None:
    match action, value:
        case "add", list(later):
            world.add(*(world.now_ms + one for one in later))
        case "burst", (int(later), int(count)):
            world.add(*(world.now_ms + later + one % 7 for one in range(count)))
        case "jump", int(by_ms):
            world.advance(by_ms)
        case "pop", int(count):
            world.pop(count)
        case "discard", int(which):
            world.discard(which)
        case "checkpoint", bool(with_popped):
            world.checkpoint(world.pop(20) if with_popped else None)
        case "restart", bool(power_cut):
            world.restart(power_cut=power_cut)
        case _:
            raise AssertionError(action)


def test_small_wheel_is_one_file() -> None:
    world = WheelWorld()
    world.add(*(world.now_ms + day * DAY_MS for day in range(50)))
    world.checkpoint()
    assert len(world.disk.list_folder(FOLDER)) == 2


def test_large_wheel_becomes_small_again() -> None:
    world = WheelWorld()
    world.add(*(world.now_ms + day * DAY_MS for day in range(80)))
    world.advance(70 * DAY_MS)
    world.pop(100)
    world.advance()
    world.checkpoint()
    assert len(world.disk.list_folder(FOLDER)) == 2
    world.drain()


def test_half_opened_bucket_holds_back_what_comes_after_it() -> None:
    world = WheelWorld()
    minute = (world.now_ms // MINUTE_MS + 30) * MINUTE_MS
    later = minute + 10 * MINUTE_MS
    world.add(*(minute + one for one in range(3_000)), later)
    world.now_ms = later + MINUTE_MS
    popped: list[bytes] = []
    while world.wheel.advance(world.now_ms, step=1):
        popped += world.wheel.pop_due(world.now_ms, 500)
    while more := world.wheel.pop_due(world.now_ms, 500):
        popped += more
    assert popped == sorted(world.expected)


def test_minute_that_does_not_fit_into_memory_is_sorted_in_files() -> None:
    world = WheelWorld()
    minute = (world.now_ms // MINUTE_MS + 30) * MINUTE_MS
    world.add(*(minute + one * 7_919 % MINUTE_MS for one in range(2_000)))
    world.advance(30 * MINUTE_MS)
    assert world.wheel.in_memory <= SMALL
    world.drain()


def test_entry_of_another_time_is_noticed() -> None:
    world = WheelWorld()
    world.add(*(world.now_ms + HOUR_MS * one for one in range(1, 100)))
    world.files.flush()
    name = next(one for one in world.disk.list_folder(FOLDER) if one.startswith("h-"))
    file = world.disk.open_log(f"{FOLDER}/{name}")
    size = file.size
    file.truncate(0)
    file.append([bytes(size)])
    with pytest.raises(WheelCorrupt, match="due at 0"):
        world.advance(200 * HOUR_MS)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"files": {"m-1": "x"}}', b'{"files": {"m-1-1": 3}}']
)
def test_unusable_checkpoint_is_no_checkpoint(content: bytes) -> None:
    world = WheelWorld()
    world.disk.make_folder(FOLDER)
    world.disk.replace_file(f"{FOLDER}/checkpoint", content)
    assert world.files.load_checkpoint() is None
