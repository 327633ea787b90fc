"""Uploads: whatever the store answers, entries are gapless, and nothing is archived twice."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.archived_log import KEYS, segment_entry, start_entry
from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import ArchivedSegment, decode_entry, encode_entry
from respool.archive.upload_machine import (
    CreateEntry,
    Effect,
    ReadEntry,
    UploadMachine,
    UploadObject,
    UploadState,
    WaitThenRetry,
)
from respool.model.ids import LeaderEpoch
from respool.ports.object_store import Creation


def machine(epoch: int = 1, manifest: Manifest | None = None) -> UploadMachine:
    return UploadMachine(
        manifest or Manifest(KEYS), leader_epoch=LeaderEpoch(epoch), retry_ms_max=1_000
    )


def uploading(one: UploadMachine, entry: ArchivedSegment) -> CreateEntry:
    assert one.begin_upload(entry.key) == UploadObject(key=entry.key)
    effect = one.on_uploaded(entry)
    assert isinstance(effect, CreateEntry)
    assert effect.content == encode_entry(entry)
    return effect


def test_the_end_moves_once_the_entry_is_created() -> None:
    one, entry = machine(), segment_entry(0, 10, epoch=1)
    assert uploading(one, entry).number == 1
    assert one.manifest.archived_end is None
    assert one.on_creation(Creation.CREATED) is None
    assert one.is_idle
    assert one.manifest.archived_end == 10


@pytest.mark.parametrize("outcome", [Creation.EXISTS, Creation.UNKNOWN])
def test_an_entry_that_exists_may_be_ones_own(outcome: Creation) -> None:
    one, entry = machine(), segment_entry(0, 10, epoch=1)
    uploading(one, entry)
    look = one.on_creation(outcome)
    assert isinstance(look, ReadEntry)
    assert one.manifest.archived_end is None
    assert one.on_read(encode_entry(entry)) is None
    assert one.manifest.archived_end == 10


def test_exists_without_an_object_is_tried_again_with_the_same_entry() -> None:
    one, entry = machine(), segment_entry(0, 10, epoch=1)
    first = uploading(one, entry)
    one.on_creation(Creation.EXISTS)
    assert isinstance(one.on_read(None), WaitThenRetry)
    assert one.retry() == first


def test_a_higher_epoch_ends_the_uploads() -> None:
    one = machine(1)
    uploading(one, segment_entry(0, 10, epoch=1))
    one.on_creation(Creation.EXISTS)
    assert one.on_read(encode_entry(segment_entry(0, 7, epoch=2, number=5))) is None
    assert one.state is UploadState.FENCED
    assert machine(1, one.manifest).state is UploadState.FENCED


def test_an_earlier_leaders_entry_makes_room_for_the_next_number() -> None:
    one, entry = machine(2), segment_entry(0, 10, epoch=2)
    uploading(one, entry)
    one.on_creation(Creation.EXISTS)
    # It raised the log start only: the segment still begins where the archive ends.
    effect = one.on_read(encode_entry(start_entry(0, epoch=1, number=5)))
    assert isinstance(effect, CreateEntry)
    assert effect.number == 2


def test_a_segment_that_another_leader_archived_is_not_archived_again() -> None:
    one = machine(2)
    uploading(one, segment_entry(0, 10, epoch=2))
    one.on_creation(Creation.UNKNOWN)
    assert one.on_read(encode_entry(segment_entry(0, 8, epoch=1, number=5))) is None
    assert one.is_idle
    assert one.manifest.archived_end == 8


def test_a_failed_upload_is_tried_later_under_another_name() -> None:
    one = machine()
    one.begin_upload("key")
    assert one.on_failed() is None
    assert one.is_idle
    assert one.retry_delay_ms > 0


@dataclass
class Store:
    """Creates with lost answers, false refusals, and writes that come late."""

    random: Random
    is_healed: bool = False
    objects: dict[str, bytes] = field(default_factory=dict)
    late: list[tuple[str, bytes]] = field(default_factory=list)

    def create(self, key: str, content: bytes) -> Creation | None:
        fault = 9 if self.is_healed else self.random.randrange(10)
        if fault == 0:
            return None
        if fault == 1:
            return Creation.EXISTS
        if fault == 2:
            self.late.append((key, content))
            return Creation.UNKNOWN
        if key in self.objects:
            return Creation.EXISTS
        self.objects[key] = content
        lost = (Creation.EXISTS, Creation.UNKNOWN, None, None)
        return self.random.choice(lost) if fault < 5 else Creation.CREATED

    def apply_late(self) -> None:
        if self.late:
            key, content = self.late.pop(self.random.randrange(len(self.late)))
            self.objects.setdefault(key, content)


class Leader:
    """A leader of some epoch, with all records up to `log_end`."""

    def __init__(self, epoch: int, store: Store, number: int) -> None:
        manifest = Manifest(KEYS)
        while (content := store.objects.get(KEYS.entry(manifest.next_number))) is not None:
            manifest.apply(manifest.next_number, decode_entry(content, KEYS, name="entry"))
        self.machine = machine(epoch, manifest)
        self.epoch, self.store, self.number = epoch, store, number
        self.effect: Effect | None = None
        self.pending: ArchivedSegment | None = None

    def step(self, random: Random) -> None:
        one, effect = self.machine, self.effect
        if one.is_over:
            return
        if effect is None:
            base = one.manifest.archived_end or 0
            self.number += 1000
            self.pending = segment_entry(
                base, base + random.randrange(1, 9), epoch=self.epoch, number=self.number
            )
            self.effect = one.begin_upload(self.pending.key)
        elif isinstance(effect, UploadObject):
            assert self.pending is not None
            failed = not self.store.is_healed and not random.randrange(5)
            self.effect = one.on_failed() if failed else one.on_uploaded(self.pending)
        elif isinstance(effect, CreateEntry):
            outcome = self.store.create(effect.key, effect.content)
            self.effect = one.on_failed() if outcome is None else one.on_creation(outcome)
        elif isinstance(effect, ReadEntry):
            if not self.store.is_healed and not random.randrange(5):
                self.effect = one.on_failed()
            else:
                self.effect = one.on_read(self.store.objects.get(effect.key))
        else:
            self.effect = one.retry()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=200)
def test_leaders_that_race_leave_one_gapless_history(seed: int) -> None:
    """E3, E4: entries are gapless, valid epochs never fall, ranges never overlap, and what a leader has seen stays."""
    random = Random(seed)
    store = Store(random)
    leaders = [Leader(0, store, 0)]
    seen: list[int] = []
    for _ in range(80):
        if not random.randrange(15) and len(leaders) < 4:
            leaders.append(Leader(len(leaders), store, len(leaders)))
        leader = random.choice(leaders)
        before = leader.machine.manifest.archived_end
        leader.step(random)
        after = leader.machine.manifest.archived_end
        if after != before:
            seen.append(after or 0)
        if not random.randrange(6):
            store.apply_late()
    store.is_healed = True
    while store.late:
        store.apply_late()
    last = leaders[-1]
    before = last.machine.manifest.archived_end
    for _ in range(40):
        last.step(random)
    assert (last.machine.manifest.archived_end or 0) > (before or 0), "after heal, uploads progress"
    numbers = sorted(store.objects)
    assert numbers == [KEYS.entry(at) for at in range(1, len(numbers) + 1)]
    whole = Manifest(KEYS)
    for number, key in enumerate(numbers, start=1):
        # Raises if a range overlaps another or leaves a gap.
        whole.apply(number, decode_entry(store.objects[key], KEYS, name=key))
    assert all(end <= (whole.archived_end or 0) for end in seen)
    for one in leaders:
        assert whole.segments[: len(one.machine.manifest.segments)] == one.machine.manifest.segments
