"""Order by key, with several members, releases, lost members and changes of leader."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.coordination.share.acknowledged_ranges import AcknowledgedRange, AcknowledgeType
from respool.coordination.share.acquisition import AcquireMode, FoundRecords, RecordSpan
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import ShareState
from respool.coordination.share.state_merge import apply_update
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_settings import ShareGroupSettings

SETTINGS = ShareGroupSettings(order_by_key=True, delivery_count_limit=10, record_locks_max=20)
BATCH = 5


class OrderedGroup:
    """Members of a group on a log whose records have these keys; 0: none."""

    def __init__(self, keys: list[int], group_settings: ShareGroupSettings = SETTINGS) -> None:
        self.keys = dict(enumerate(keys))
        self.settings = group_settings
        self.stored = ShareState(state_epoch=0, leader_epoch=LeaderEpoch(0), start_offset=Offset(0))
        self.held: dict[str, list[int]] = defaultdict(list)
        self.finished: set[int] = set()
        self.load()

    def load(self) -> None:
        self.machine = SharePartitionMachine(
            self.stored,
            leader_epoch=LeaderEpoch(0),
            log_start=Offset(0),
            log_end=Offset(len(self.keys)),
            settings=self.settings,
            now_ms=0,
            wall_ms=0,
        )
        self.machine.learn_keys(self.hashes(self.machine.start, self.machine.end))
        self.held.clear()

    def hashes(self, first: int, end: int) -> dict[int, int]:
        return {one: self.keys[one] for one in range(first, end) if self.keys[one]}

    def acquire(self, member: str, records_max: int = 4) -> list[int]:
        taken: list[int] = []
        position = 0
        while len(taken) < records_max:
            offset = self.machine.next_offset(0, at_least=position)
            if offset is None or offset >= len(self.keys):
                break
            first = offset - offset % BATCH
            position = min(first + BATCH, len(self.keys))
            found = FoundRecords(
                first=offset,
                end=Offset(position),
                spans=[RecordSpan(first, position - 1, 0)],
                keys=self.hashes(max(first, self.machine.end), position),
            )
            acquired = self.machine.acquire(
                member,
                found,
                mode=AcquireMode.RECORD_LIMIT,
                records_max=records_max - len(taken),
                batch_size=500,
                now_ms=0,
            )
            for low, high, _ in acquired.ranges:
                taken += range(low, high + 1)
        self.check(member, taken)
        self.held[member] += taken
        return taken

    def check(self, member: str, taken: list[int]) -> None:
        for one in taken:
            assert one not in self.finished
            assert all(one not in held for held in self.held.values())
            key = self.keys[one]
            before = [each for each in range(one) if key and self.keys[each] == key]
            unfinished = [each for each in before if each not in self.finished]
            assert len(unfinished) < self.settings.key_inflight_max
            assert all(each in self.held[member] or each in taken for each in unfinished)

    def acknowledge(self, member: str, offset: int, kind: AcknowledgeType) -> None:
        self.machine.acknowledge(member, [AcknowledgedRange(offset, offset, kind)], now_ms=0)
        self.held[member].remove(offset)
        if kind is not AcknowledgeType.RELEASE:
            self.finished.add(offset)

    def store(self) -> None:
        if self.machine.has_update:
            update = self.machine.take_update(now_ms=0, wall_ms=0)
            self.stored = apply_update(self.stored, update)


STEPS = st.lists(
    st.tuples(st.sampled_from("aaarrlx"), st.sampled_from("abc"), st.integers(1, 6)), max_size=60
)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), STEPS)
def test_a_record_is_delivered_when_all_before_it_of_its_key_are_finished(
    keys: list[int], steps: list[tuple[str, str, int]]
) -> None:
    group = OrderedGroup(keys)
    for step, member, number in steps:
        held = group.held[member]
        if step == "a" or not held:
            group.acquire(member, number)
        elif step == "r":
            group.acknowledge(member, held[number % len(held)], AcknowledgeType.ACCEPT)
        elif step == "l":
            group.acknowledge(member, held[number % len(held)], AcknowledgeType.RELEASE)
        else:
            group.store()
            group.load()
    # Nothing is left behind.
    for member in "abc":
        group.machine.release_member(member, is_orderly=True, now_ms=0)
    group.held.clear()
    for _ in range(10 * len(keys)):
        for one in group.acquire("a", 10):
            group.acknowledge("a", one, AcknowledgeType.ACCEPT)
    assert group.finished == set(range(len(keys)))
    assert group.machine.start == len(keys)


def test_a_busy_key_holds_back_no_other_key() -> None:
    group = OrderedGroup([1, 1, 1, 2, 2, 0, 0, 3, 1, 2])
    assert group.acquire("a", 10) == [0, 3, 5, 6, 7]
    assert group.acquire("b", 10) == []
    group.acknowledge("a", 3, AcknowledgeType.ACCEPT)
    assert group.acquire("b", 10) == [4]
    group.acknowledge("a", 0, AcknowledgeType.RELEASE)
    # It comes again before the next of its key.
    assert group.acquire("b", 10) == [0]


def test_a_member_may_hold_several_of_a_key_if_the_group_allows_it() -> None:
    several = ShareGroupSettings(order_by_key=True, key_inflight_max=3)
    group = OrderedGroup([1, 1, 1, 1, 1], several)
    assert group.acquire("a", 10) == [0, 1, 2]
    assert group.acquire("b", 10) == []
    group.acknowledge("a", 0, AcknowledgeType.ACCEPT)
    assert group.acquire("b", 10) == []


def test_the_memory_of_keys_is_released() -> None:
    group = OrderedGroup(list(range(1, 5_001)))
    for _ in range(600):
        for one in group.acquire("a", 10):
            group.acknowledge("a", one, AcknowledgeType.ACCEPT)
    assert group.machine.start == 5_000
    assert group.machine._order is not None
    assert len(group.machine._order) < 1_100
