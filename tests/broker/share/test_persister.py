"""The contract of `SharePersister`, kept by the one that the tests of this package use."""

import asyncio
from uuid import UUID

import pytest

from broker.share.memory_persister import MemoryPersister
from respool.broker.share.persister import SharePersister
from respool.coordination.share.share_state import (
    ACKNOWLEDGED,
    UNDECIDED_START,
    ShareKey,
    ShareStateUpdate,
    StateBatch,
)
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import FencedLeaderEpoch
from respool.model.ids import LeaderEpoch, Offset, TopicId
from respool.model.share.share_errors import FencedStateEpoch

KEY = ShareKey("billing", TopicId(UUID(int=7)), 0)


def update(*, state_epoch: int, leader_epoch: int) -> ShareStateUpdate:
    return ShareStateUpdate(
        state_epoch=state_epoch,
        leader_epoch=LeaderEpoch(leader_epoch),
        start_offset=Offset(3),
        batches=(StateBatch(5, 6, ACKNOWLEDGED, 1),),
    )


def test_what_was_written_is_read() -> None:
    async def story() -> None:
        memory = MemoryPersister()
        persister: SharePersister = memory
        memory.initialize(KEY)
        assert (await persister.read(KEY, LeaderEpoch(1))).start_offset == UNDECIDED_START
        await persister.write(KEY, update(state_epoch=0, leader_epoch=1))
        state = await persister.read(KEY, LeaderEpoch(1))
        assert (state.start_offset, state.batches) == (3, (StateBatch(5, 6, ACKNOWLEDGED, 1),))

    asyncio.run(story())


def test_older_leaders_and_older_states_write_nothing() -> None:
    async def story() -> None:
        persister = MemoryPersister()
        with pytest.raises(GroupIdNotFound):
            await persister.read(KEY, LeaderEpoch(1))
        persister.initialize(KEY)
        await persister.read(KEY, LeaderEpoch(2))
        with pytest.raises(FencedLeaderEpoch):
            await persister.write(KEY, update(state_epoch=0, leader_epoch=1))
        persister.initialize(KEY)
        with pytest.raises(FencedStateEpoch):
            await persister.write(KEY, update(state_epoch=0, leader_epoch=2))
        assert persister.writes == []

    asyncio.run(story())
