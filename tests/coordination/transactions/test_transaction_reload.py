"""A coordinator that starts again from its log, at every point of a long story, decides as the one that lived it."""

from collections.abc import Callable
from typing import Any

import pytest

from coordination.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    TIMEOUT_MS,
    V0,
    V2,
    TransactionWorld,
    add_of,
    end_of,
    init_of,
)
from respool.coordination.transactions.transaction_metadata import LAST_USABLE_EPOCH
from respool.coordination.transactions.transaction_requests import VerifyPartitions
from respool.model.ids import ProducerId

P0, P1 = ProducerId(FIRST_PRODUCER_ID), ProducerId(FIRST_PRODUCER_ID + 1)
LAST = LAST_USABLE_EPOCH

# In order: a producer of each version at work, each taken over from; too late; going on after errors; and the last
# epochs, where a new producer id comes in.
STORY: list[Callable[[TransactionWorld], object]] = [
    lambda world: world.init(),
    lambda world: world.add(A0),
    lambda world: world.add(A1),
    lambda world: world.end(),
    lambda world: world.write_markers(),
    lambda world: world.add(A1),
    lambda world: world.end(is_commit=False),
    lambda world: world.write_markers(),
    lambda world: world.init(),
    lambda world: world.add(A0, producer_epoch=1, version=V2),
    lambda world: world.end(producer_epoch=1, version=V2),
    lambda world: world.write_markers(),
    lambda world: world.end(producer_epoch=2, version=V2, is_commit=False),
    lambda world: world.init(producer_id=P0, producer_epoch=3),
    lambda world: world.add(A0, producer_epoch=4, version=V2),
    lambda world: world.advance(TIMEOUT_MS),
    lambda world: world.write_markers(),
    lambda world: world.init(),
    lambda world: world.set_epoch(LAST - 1),
    lambda world: world.init(producer_id=P0, producer_epoch=LAST - 1),
    lambda world: world.add(A0, producer_epoch=LAST, version=V2),
    lambda world: world.end(producer_epoch=LAST, version=V2),
    lambda world: world.write_markers(),
    lambda world: world.init(producer_id=P1, producer_epoch=0),
]
IDENTITIES = [
    *((P0, epoch) for epoch in (0, 1, 2, 4, LAST - 1, LAST)),
    *((P1, epoch) for epoch in (0, 1)),
]
PROBES: list[Callable[[ProducerId, int], Any]] = [
    lambda *who: init_of(new_producer_id=ProducerId(9_999)),
    lambda *who: init_of(producer_id=who[0], producer_epoch=who[1]),
    lambda *who: add_of(A0, producer_id=who[0], producer_epoch=who[1], version=V2),
    lambda *who: VerifyPartitions(
        transactional_id="payments-1", producer_id=who[0], producer_epoch=who[1], partitions=(A0,)
    ),
    *(
        lambda *who, version=version, is_commit=is_commit: end_of(
            producer_id=who[0], producer_epoch=who[1], version=version, is_commit=is_commit
        )
        for version in (V0, V2)
        for is_commit in (False, True)
    ),
]


def told(length: int) -> TransactionWorld:
    world = TransactionWorld()
    for step in STORY[:length]:
        step(world)
    return world


@pytest.mark.parametrize("length", range(len(STORY) + 1))
def test_after_a_restart_every_request_is_decided_as_before(length: int) -> None:
    for probe in PROBES:
        for identity in IDENTITIES:
            lived, reloaded = told(length), told(length)
            reloaded.reload()
            assert reloaded.log == lived.log
            assert reloaded.effects == lived.effects
            answers = []
            for world in (lived, reloaded):
                ticket = world.ask(probe(*identity))
                # Errors are compared by what they say.
                answers.append(repr(world.replies.get(ticket, "waits")))
            assert answers[0] == answers[1]
            assert reloaded.log == lived.log
            assert reloaded.effects == lived.effects


def test_the_story_comes_through_all_states_and_to_the_next_producer_id() -> None:
    states = {told(length).state() for length in range(1, len(STORY) + 1)}
    assert len(states) == 6
    assert told(len(STORY)).transaction.producer_id == P1
