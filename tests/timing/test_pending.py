"""Pending records of two replicas beside the log they come from, through leader changes, crashes and retention."""

import os
from collections import defaultdict
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.ids import Offset
from respool.records.build import NewRecord
from respool.records.record import Record
from respool.sim.disk.simulated_disk import SimDisk
from respool.timing.delay_records import Cancel, Delivered, Fact, WaitingRecord, read_fact
from respool.timing.due_header import DelayRules
from respool.timing.pending import Pending

FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
RULES = DelayRules(levels_ms=(1_000, 5_000), max_ms=10 * 365 * 86_400_000)
START_MS = 1_760_000_000_000
FOLDER = "reminders-0/pending"
Headers = tuple[tuple[str, bytes | None], ...]


class Replica:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.disk = SimDisk(Random(1))
        self.disk.make_folder("reminders-0")
        self.disk.sync_folder("")
        self.open()

    def open(self) -> None:
        world = self.world
        self.pending = Pending.open(
            self.disk,
            FOLDER,
            now_ms=world.now_ms,
            log_start=world.log_start,
            log_end=Offset(len(world.log)),
            entries_max=64,
        )

    def feed(self, part: float = 1.0) -> None:
        """A replica may know the log start, and not yet what was carried."""
        self.pending.skip_to(self.world.log_start)
        begin = self.pending.scanned_to
        end = Offset(begin + int((self.world.stable - begin) * part))
        self.pending.on_stable(self.world.facts(begin, end), end=end)
        self.pending.on_log_start(min(self.world.log_start, end))

    def sweep(self) -> None:
        """A follower drops what its leader dropped."""
        while due := self.pending.advance(
            self.world.now_ms, due_ms=self.pending.sweep_at_ms, deliver_max=10, step=1
        ).deliver:
            for one in due:
                waiting = self.world.fact(one.offset)
                if not isinstance(waiting, WaitingRecord) or self.pending.is_superseded(
                    waiting, self.world.read_id
                ):
                    self.pending.on_dropped(one.offset)

    def restart(self) -> None:
        self.disk.crash()
        self.disk = self.disk.reopen()
        self.open()


class World:
    """A log, its committed end, and two replicas of which one leads."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log: list[Record] = []
        self.log_start = Offset(0)
        self.committed = self.stable = Offset(0)
        # Where the log will start once everything below `carried_end` is committed.
        self.new_start: Offset | None = None
        self.carried_end = Offset(0)
        # For each copy in the log, what was stable when it was written.
        self.stable_then: dict[Offset, Offset] = {}
        self.replicas = [Replica(self), Replica(self)]
        self.leader = self.replicas[0]

    # -- the log -----------------------------------------------------------------------------------------------------

    def append(self, new: NewRecord) -> Offset:
        offset = Offset(len(self.log))
        self.log.append(
            Record(
                offset=offset,
                timestamp=self.now_ms,
                key=new.key,
                value=new.value,
                headers=new.headers,
            )
        )
        return offset

    def fact(self, offset: Offset) -> Fact | None:
        return read_fact(self.log[offset], RULES) if offset >= self.log_start else None

    def facts(self, begin: Offset, end: Offset) -> list[Fact]:
        found = [self.fact(Offset(one)) for one in range(begin, end)]
        return [one for one in found if one is not None]

    def read_id(self, offset: Offset) -> bytes | None:
        fact = self.fact(offset)
        return fact.id if isinstance(fact, WaitingRecord | Cancel) else None

    # -- what happens ------------------------------------------------------------------------------------------------

    def commit(self, stable_part: float = 1.0) -> None:
        self.committed = Offset(len(self.log))
        stable = self.stable + int((self.committed - self.stable) * stable_part)
        self.stable = Offset(max(self.stable, stable))

    def deliver(self, count: int = 1_000) -> None:
        leader = self.leader
        leader.feed()
        while True:
            advanced = leader.pending.advance(self.now_ms, deliver_max=count, step=1)
            for due in advanced.deliver:
                assert due.due_ms <= self.now_ms
                waiting = self.fact(due.offset)
                assert isinstance(waiting, WaitingRecord)
                if leader.pending.is_superseded(waiting, self.read_id):
                    leader.pending.on_dropped(due.offset)
                    continue
                copy = leader.pending.delivery(waiting, due.due_ms, now_ms=self.now_ms)
                self.stable_then[self.append(copy)] = self.stable
            if not advanced.is_busy and not advanced.deliver:
                return

    def change_leader(self) -> None:
        """The other replica leads; what was not committed is lost."""
        self.leader.pending.on_role_ended()
        self.new_start = None
        del self.log[self.committed :]
        self.leader = next(one for one in self.replicas if one is not self.leader)
        self.lead()

    def lead(self) -> None:
        pending = self.leader.pending
        pending.on_leading(self.facts(pending.scanned_to, Offset(len(self.log))))

    def restart(self, which: int) -> None:
        replica = self.replicas[which]
        replica.restart()
        if replica is self.leader:
            self.new_start = None
            del self.log[self.committed :]
            self.lead()

    def carry_below(self, part: float) -> None:
        """Retention begins: the leader appends what waits again. It may deliver and be replaced meanwhile."""
        self.new_start = None
        self.leader.feed()
        new_start = Offset(self.log_start + int((self.stable - self.log_start) * part))
        pending = self.leader.pending
        if not pending.can_carry(self.log_start, new_start):
            return
        for fact in self.facts(self.log_start, new_start):
            carried = pending.carry(fact, self.read_id, now_ms=self.now_ms, new_start=new_start)
            if carried is not None:
                self.carried_end = Offset(self.append(carried) + 1)
        self.new_start = new_start

    def raise_start(self) -> None:
        """And ends: what was carried is committed, so the log start rises."""
        if self.new_start is not None and self.committed >= self.carried_end:
            self.log_start, self.new_start = self.new_start, None

    def delete_below(self, part: float) -> None:
        self.carry_below(part)
        self.commit()
        self.raise_start()
        for replica in self.replicas:
            replica.feed()


def check_deliveries(
    world: World, sent: dict[Offset, WaitingRecord | Cancel], all_records: list[Record]
) -> None:
    copies: dict[Offset, list[Record]] = defaultdict(list)
    for record in all_records:
        fact = read_fact(record, RULES)
        if isinstance(fact, Delivered):
            copies[fact.first].append(record)
    for first, fact in sent.items():
        if isinstance(fact, Cancel):
            assert first not in copies
            continue
        superseding = [
            one for one, other in sent.items() if one > first and other.id == fact.id is not None
        ]
        expected = 1 if fact.repetition is None else None
        delivered = copies.get(first, [])
        if not superseding:
            assert delivered, f"{first} was never delivered"
        if expected is not None:
            assert len(delivered) <= expected, f"{first} was delivered {len(delivered)} times"
        for copy in delivered:
            assert copy.timestamp >= fact.due_ms
            # Nothing that superseded it was known to be committed.
            assert all(one >= world.stable_then[copy.offset] for one in superseding)
            assert copy.headers[0] == ("kind", b"x")
        times = [dict(one.headers)["respool-due-at"] for one in delivered]
        assert len(set(times)) == len(times)


delays = st.one_of(st.integers(0, 5_000), st.integers(0, 200 * 86_400_000))
ids = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c"]))
actions = st.one_of(
    st.tuples(st.just("send"), st.tuples(delays, ids)),
    st.tuples(st.just("send"), st.tuples(delays, ids)),
    st.tuples(st.just("schedule"), st.tuples(st.sampled_from([b"@every 1h", b"0 8 * * *"]), ids)),
    st.tuples(st.just("cancel"), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.just("commit"), st.sampled_from([0.0, 0.5, 1.0])),
    st.tuples(
        st.just("pass"), st.one_of(st.integers(-6_000, 6_000), st.integers(0, 90 * 86_400_000))
    ),
    st.tuples(st.just("deliver"), st.integers(1, 5)),
    st.tuples(st.just("deliver"), st.just(1_000)),
    st.tuples(st.just("feed"), st.integers(0, 1)),
    st.tuples(st.just("feed_part"), st.integers(0, 1)),
    st.tuples(st.just("checkpoint"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
    st.tuples(st.just("change_leader"), st.none()),
    st.tuples(st.just("delete"), st.sampled_from([0.3, 1.0])),
    st.tuples(st.just("carry"), st.sampled_from([0.3, 1.0])),
    st.tuples(st.just("raise_start"), st.none()),
)


@given(st.lists(actions, max_size=60))
@settings(max_examples=3_000 if FUZZ else 150, deadline=None)
def test_each_is_delivered_once_and_none_after_its_cancellation(
    steps: list[tuple[str, Any]],
) -> None:
    world = World()
    for action, value in steps:
        take_step(world, action, value)
    # After all is well, everything that is due is delivered, and nothing is left.
    for _ in range(3):
        world.commit()
        world.now_ms += 300 * 86_400_000
        world.deliver()
    world.commit()
    for replica in world.replicas:
        replica.feed()
    sent = {
        fact.first: fact
        for record in world.log
        if isinstance(fact := read_fact(record, RULES), WaitingRecord | Cancel)
        and fact.first == record.offset
    }
    check_deliveries(world, sent, world.log)
    assert len(world.leader.pending) == 0
    for replica in world.replicas:
        if replica is not world.leader:
            world.now_ms += 300 * 86_400_000
            # Something later shows that what is left over was cancelled.
            world.append(new_record(("respool-delay", b"0")))
            world.commit()
            world.deliver()
            world.commit()
            replica.feed()
            replica.sweep()
            assert len(replica.pending) == 0


def take_step(world: World, action: str, value: Any) -> None:
    match action:
        case "send":
            delay_ms, key = value
            world.append(new_record(("respool-delay", b"%d" % delay_ms), key=key))
        case "schedule":
            text, key = value
            world.append(new_record(("respool-schedule", text), ("respool-times", b"3"), key=key))
        case "cancel":
            world.append(new_record(("respool-cancel", value)))
        case "commit":
            world.commit(value)
        case "pass":
            world.now_ms += value
        case "deliver":
            world.deliver(value)
        case "feed":
            world.replicas[value].feed()
            if world.replicas[value] is not world.leader:
                world.replicas[value].sweep()
        case "feed_part":
            world.replicas[value].feed(0.5)
        case "checkpoint":
            world.replicas[value].pending.write_checkpoint()
        case "restart":
            world.restart(value)
        case "change_leader":
            world.change_leader()
        case "delete":
            world.delete_below(value)
        case "carry":
            world.carry_below(value)
        case "raise_start":
            world.raise_start()


def new_record(*headers: tuple[str, bytes], key: bytes | None = None) -> NewRecord:
    ids = () if key is None else (("respool-schedule-id", key),)
    return NewRecord(value=b"v", headers=(("kind", b"x"), *headers, *ids))


def copies_in(world: World) -> int:
    return sum(isinstance(read_fact(record, RULES), Delivered) for record in world.log)


def test_record_that_becomes_due_while_it_is_carried_is_delivered_once() -> None:
    world = World()
    world.append(new_record(("respool-delay", b"1000")))
    world.commit()
    world.carry_below(1.0)
    world.now_ms += 2_000
    # The carried record is not committed: a copy of the earlier place would be a second one.
    world.deliver()
    assert copies_in(world) == 0
    world.commit()
    world.raise_start()
    world.deliver()
    world.commit()
    world.deliver()
    assert copies_in(world) == 1


def test_record_is_not_deleted_before_its_copy_is_stable() -> None:
    world = World()
    world.append(new_record(("respool-delay", b"1000")))
    world.commit()
    world.now_ms += 2_000
    world.deliver()
    pending = world.leader.pending
    assert not pending.can_carry(Offset(0), Offset(1))
    world.commit()
    world.leader.feed()
    assert pending.can_carry(Offset(0), Offset(1))


def test_clock_that_is_set_back_before_the_copy_is_stable_carries_nothing_twice() -> None:
    world = World()
    world.append(new_record(("respool-delay", b"1000")))
    world.append(new_record(("respool-delay", b"9000")))
    world.commit()
    world.now_ms += 2_000
    world.deliver()
    world.now_ms -= 1_500
    world.commit()
    world.delete_below(1.0)
    world.now_ms += 20_000
    for _ in range(2):
        world.deliver()
        world.commit()
    assert copies_in(world) == 2


def test_replica_that_learns_of_carrying_and_deleting_at_once_counts_each_record_once() -> None:
    world = World()
    follower = world.replicas[1]
    for _ in range(3):
        world.append(new_record(("respool-delay", b"86400000")))
    world.commit()
    follower.feed()
    world.carry_below(1.0)
    world.commit()
    world.raise_start()
    follower.feed()
    assert len(follower.pending) == 3


def test_replica_that_was_away_while_records_were_deleted_counts_what_is_left() -> None:
    world = World()
    follower = world.replicas[1]
    for _ in range(3):
        world.append(new_record(("respool-delay", b"86400000")))
    world.commit()
    follower.feed()
    for _ in range(5):
        world.append(new_record(("respool-delay", b"86400000")))
        world.commit()
        # All but the carried ones are deleted, twice.
        world.carry_below(1.0)
        world.commit()
        world.raise_start()
    follower.feed()
    assert len(follower.pending) == 8


def test_replica_that_is_behind_counts_what_was_carried_once() -> None:
    world = World()
    follower = world.replicas[1]
    for _ in range(4):
        world.append(new_record(("respool-delay", b"86400000")))
    world.commit()
    follower.feed()
    world.carry_below(0.5)
    world.commit()
    world.raise_start()
    # It knows the log start, and nothing of what was carried.
    follower.feed(0.0)
    follower.feed()
    assert len(follower.pending) == 4
