"""What `test_copy.py` does not show: how the writer fails."""

from collections.abc import Iterator
from random import Random
from typing import Any, cast
from unittest.mock import patch

import pytest

from replay.replay_world import Connection, World, answered, served_by_the_world
from respool.client.kafka.codes import Code
from respool.records.build import NewRecord
from respool.replay.batches import CopyBatch
from respool.replay.copy_plan import CopyPlan, ProducerId, Span
from respool.replay.errors import PositionLost, ReplayFailed, ReplayUnreachable
from respool.replay.record_reader import ignore_note
from respool.replay.writer import AWAY_SECONDS_MAX, ReplayWriter

PLAN = CopyPlan(
    topic="rides",
    into="copy",
    spans={0: Span(0, 100)},
    producers={0: ProducerId(7000, 0)},
    source_count=1,
    target_ends={0: 0},
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Obedient(Random):
    """Chance that always does at once what can be done."""

    def random(self) -> float:
        return 0.0


def batch(number: int) -> CopyBatch:
    return CopyBatch(
        source=0,
        target=0,
        first_number=number,
        first_offset=number,
        last_offset=number,
        records=[NewRecord(value=b"%d" % number, timestamp_ms=1)],
    )


@pytest.fixture
def world() -> Iterator[World]:
    with served_by_the_world():
        yield World({0: []}, targets=1, rng=Obedient())


def writer_on(
    world: World, clock: Clock, *, code: int = 0, notes: list[str] | None = None
) -> ReplayWriter:
    """A writer whose requests are all answered with this code; 0: as the world does."""

    class Refusing(Connection):
        def receive_reply(self) -> Any:
            reply = super().receive_reply()
            return answered(0, Code(code), -1) if code else reply

    world.connect = lambda broker: Refusing(world)
    return ReplayWriter(
        cast("Any", world),
        PLAN,
        clock=clock,
        on_note=ignore_note if notes is None else notes.append,
    )


def test_batches_are_written_in_order_and_told_with_their_place(world: World) -> None:
    writer = writer_on(world, Clock())
    for number in range(7):
        writer.add(batch(number))
    done = []
    while writer.unacknowledged:
        done += writer.run(seconds=0)
    assert [(each.batch.first_number, each.offset) for each in done] == [(n, n) for n in range(7)]
    assert [record.value for record in world.target[0].records] == [b"%d" % n for n in range(7)]


def test_the_first_batch_of_a_producer_goes_alone(world: World) -> None:
    writer = writer_on(world, Clock())
    world.is_troubled = False
    for number in range(4):
        writer.add(batch(number))
    world.rng = Random(0)
    with patch.object(Connection, "has_reply", return_value=False):
        writer.run(seconds=0)
        assert [len(each.pipe) for each in world.connections] == [1]
    world.rng = Obedient()
    writer.run(seconds=0)
    with patch.object(Connection, "has_reply", return_value=False):
        writer.run(seconds=0)
        assert [len(each.pipe) for each in world.connections] == [3]


def test_a_number_that_is_not_expected_is_a_lost_position(world: World) -> None:
    writer = writer_on(world, Clock())
    writer.add(batch(0))
    writer.run(seconds=0)
    writer = writer_on(world, Clock())
    writer.add(batch(5))
    with pytest.raises(PositionLost, match="does not expect number 5"):
        writer.run(seconds=0)
    assert len(world.target[0].records) == 1


def test_a_message_too_large_is_told_with_its_place_and_a_way_out(world: World) -> None:
    writer = writer_on(world, Clock(), code=10)
    writer.add(batch(3))
    with pytest.raises(ReplayFailed, match="too large: rides/0, offsets 3 to 3") as refused:
        writer.run(seconds=0)
    assert "max.message.bytes" in refused.value.hint


def test_an_unknown_refusal_is_told_with_its_code(world: World) -> None:
    writer = writer_on(world, Clock(), code=29)
    writer.add(batch(3))
    with pytest.raises(ReplayFailed, match=r"TOPIC_AUTHORIZATION_FAILED \(29\)"):
        writer.run(seconds=0)


def test_a_transient_error_is_retried_until_the_target_was_away_too_long(world: World) -> None:
    clock = Clock()
    notes: list[str] = []
    writer = writer_on(world, clock, code=56, notes=notes)
    writer.add(batch(0))
    while clock.now <= AWAY_SECONDS_MAX - 1:
        assert writer.run(seconds=0) == []
        clock.now += 1
    clock.now += 2
    with pytest.raises(ReplayUnreachable, match="has acknowledged nothing for 60 seconds"):
        writer.run(seconds=0)
    assert ["KAFKA_STORAGE_ERROR (56)" in note for note in notes] == [True]
    # It was refused by the reply only, and never written twice.
    assert len(world.target[0].records) == 1


def test_time_without_batches_to_acknowledge_does_not_count_as_silence(world: World) -> None:
    clock = Clock()
    writer = writer_on(world, clock)
    with patch.object(Connection, "has_reply", return_value=False):
        # The replay was paused for longer than the target may be silent.
        clock.now += AWAY_SECONDS_MAX + 1
        writer.add(batch(0))
        assert writer.run(seconds=0) == []
        clock.now += AWAY_SECONDS_MAX - 1
        writer.add(batch(1))
        assert writer.run(seconds=0) == []
        clock.now += 2
        with pytest.raises(ReplayUnreachable):
            writer.run(seconds=0)


def test_a_broker_that_is_silent_is_given_up_too(world: World) -> None:
    clock = Clock()
    writer = writer_on(world, clock)
    with patch.object(Connection, "has_reply", return_value=False):
        writer.add(batch(0))
        writer.run(seconds=0)
        clock.now += AWAY_SECONDS_MAX + 1
        with pytest.raises(ReplayUnreachable):
            writer.run(seconds=0)
