"""A replay killed anywhere, any number of times, leaves every message in the target once, in order."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.replay_world import SOURCE, TARGET, Killed, Reader, World, served_by_the_world
from respool.model.ids import Offset
from respool.records.batch import Codec
from respool.records.record import Record
from respool.replay import copy, copy_run
from respool.replay.copy import ReplayCopy
from respool.replay.copy_plan import CopyPlan, ProducerId, Span
from respool.replay.copy_position import CopyPosition
from respool.replay.copy_run import Control, CopyJob
from respool.replay.errors import ReplayFailed
from respool.replay.pace import Pace
from respool.replay.request import MessageFilter

EXAMPLES = 3_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 120
REPLAY_ID = "3fa94c01"
KEYS = [None, b"", b"a", b"b", b"c", b"ride-7"]


def source_log(rng: Random, partition: int, length: int) -> list[Record]:
    """A log with holes, as compaction and transactions leave them."""
    offset, log = 0, []
    for _ in range(length):
        offset += rng.choice([1, 1, 1, 2, 5])
        key = rng.choice(KEYS)
        log.append(
            Record(
                offset=Offset(offset - 1),
                timestamp=1_700_000_000_000 + offset,
                key=key,
                value=b"%d/%d" % (partition, offset),
                headers=(("h", b"1"),) if offset % 3 else (),
            )
        )
    return log


def plan_for(world: World) -> CopyPlan:
    spans = {}
    for number, log in world.source.items():
        end = log[-1].offset + 1 if log else 0
        start = world.rng.randint(0, end)
        spans[number] = Span(start, world.rng.randint(start, end))
    return CopyPlan(
        topic=SOURCE,
        into=TARGET,
        spans=spans,
        producers={number: ProducerId(1000 + number, 0) for number in spans},
        source_count=len(world.source),
        target_ends={number: len(part.records) for number, part in world.target.items()},
    )


def job_for(
    world: World, plan: CopyPlan, keys: frozenset[bytes] | None, recorded: list[Any]
) -> CopyJob:
    return CopyJob(
        cluster=cast("Any", world),
        plan=plan,
        replay_id=REPLAY_ID,
        selection=MessageFilter(keys=keys),
        pace=Pace(speed=None, rate=None),
        codec=Codec.NONE,
        batch_records=world.rng.randint(1, 5),
        oldest_ms=None,
        on_progress=lambda progress: None,
        on_checkpoint=lambda position: recorded.append(position.to_document()),
    )


@contextmanager
def living_in(world: World) -> Iterator[None]:
    """The copying code on this world instead of sockets, clients and clocks."""
    with ExitStack() as stack:
        stack.enter_context(served_by_the_world())
        for target, name, value in (
            (copy_run, "RecordRangeReader", Reader),
            (copy_run, "CHECKPOINT_SECONDS", 0),
            (copy_run, "PROGRESS_SECONDS", 0),
            (copy, "RecordRangeReader", Reader),
            (copy, "describe_topic", world.describe_topic),
            (copy, "held_spans", world.held_spans),
            (copy, "READ_AGAIN_SECONDS", 0),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def expected(world: World, plan: CopyPlan, keys: frozenset[bytes] | None) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for source, log in world.source.items():
        span = plan.spans[source]
        for message in log:
            if span.start <= message.offset < span.stop and (keys is None or message.key in keys):
                target = plan.target_for(source, message.key)
                found.setdefault((source, target), []).append(message.offset)
    return found


def copied(world: World) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for target in world.target:
        for origin in world.origins(target, REPLAY_ID):
            found.setdefault((origin.partition, target), []).append(origin.offset)
    return found


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rng=st.randoms(use_true_random=False),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    targets=st.integers(1, 3),
    deaths=st.lists(st.integers(0, 60), max_size=5),
    filtered=st.booleans(),
    troubled=st.booleans(),
)
def test_whatever_kills_it_every_message_is_copied_once_and_in_order(
    *,
    rng: Random,
    lengths: list[int],
    targets: int,
    deaths: list[int],
    filtered: bool,
    troubled: bool,
) -> None:
    source = {number: source_log(rng, number, length) for number, length in enumerate(lengths)}
    world = World(source, targets=targets, rng=rng)
    world.is_troubled = troubled
    plan = plan_for(world)
    keys = frozenset({b"a", b"ride-7"}) if filtered else None
    recorded: list[Any] = [None]
    with living_in(world):
        for steps in [*deaths, None]:
            world.steps_left = steps
            # Not every checkpoint was recorded before the end came.
            checkpoint = rng.choice(recorded)
            position = CopyPosition.from_document(plan, checkpoint)
            try:
                position = ReplayCopy(job_for(world, plan, keys, recorded)).run(position, Control())
            except Killed:
                world.end_life()
                continue
            assert position.is_complete
        world.steps_left = None
        world.end_life()
        world.deliver_all()
    assert copied(world) == expected(world, plan, keys)
    assert position.copied == sum(map(len, expected(world, plan, keys).values()))
    for partition in world.target.values():
        for record in partition.records:
            assert dict(record.headers)["respool-replay-id"] == REPLAY_ID.encode()


@pytest.mark.long
@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(rng=st.randoms(use_true_random=False), targets=st.integers(1, 3))
def test_several_runs_at_once_do_not_write_a_message_twice(rng: Random, targets: int) -> None:
    """Another begins while one is at work, and is killed or ends; each goes on behind what the other wrote."""
    world = World({n: source_log(rng, n, 30) for n in range(3)}, targets=targets, rng=rng)
    plan = plan_for(world)

    class Interrupting(Control):
        """Lets the other run go on for a while, in the middle of this one."""

        def __init__(self, depth: int) -> None:
            super().__init__()
            self._depth = depth
            self._calls = 0
            self._at = world.rng.randint(2, 12)

        @property
        def is_stopped(self) -> bool:
            self._calls += 1
            if self._calls == self._at and self._depth:
                mine = len(world.connections)
                world.steps_left = world.rng.randint(0, 80)
                with suppress(Killed):
                    other = Interrupting(self._depth - 1)
                    ReplayCopy(job_for(world, plan, None, [])).run(CopyPosition(plan), other)
                world.steps_left = None
                for connection in world.connections[mine:]:
                    connection.is_orphan = True
            return False

    with living_in(world):
        ReplayCopy(job_for(world, plan, None, [])).run(CopyPosition(plan), Interrupting(2))
    assert copied(world) == expected(world, plan, None)


def test_copies_that_were_deleted_from_the_target_stop_it_with_an_explanation() -> None:
    rng = Random(3)
    world = World({0: source_log(rng, 0, 40)}, targets=1, rng=rng)
    plan = plan_for(world)
    with living_in(world):
        ReplayCopy(job_for(world, plan, None, [])).run(CopyPosition(plan), Control())
        count = len(world.target[0].records)
        # All but the first few are gone, and the broker still knows what came last.
        del world.target[0].records[2:]
        world.target[0].readable = 2
        with pytest.raises(ReplayFailed, match="does not take the next messages") as refused:
            ReplayCopy(job_for(world, plan, None, [])).run(CopyPosition(plan), Control())
    assert count > 2
    assert len(world.target[0].records) == 2
    assert "--again" in refused.value.hint


def test_what_was_deleted_from_the_source_is_told_and_nothing_is_written() -> None:
    rng = Random(4)
    world = World({0: source_log(rng, 0, 40)}, targets=1, rng=rng)
    plan = plan_for(world)
    start = plan.spans[0].start
    world.source_starts[0] = start + 1
    with (
        living_in(world),
        pytest.raises(ReplayFailed, match=f"offsets from {start} were still to be copied") as told,
    ):
        ReplayCopy(job_for(world, plan, None, [])).run(CopyPosition(plan), Control())
    # Retention was blamed for it, also when an operator had deleted them.
    assert "deleted, by retention or DeleteRecords" in told.value.message
    assert world.target[0].records == []
