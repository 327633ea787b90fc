"""A share coordinator in memory, whose answers can be held back or refused."""

import asyncio
from dataclasses import replace

from respool.broker.share.persister import SharePersister
from respool.coordination.share.share_state import (
    UNDECIDED_START,
    ShareKey,
    ShareState,
    ShareStateUpdate,
)
from respool.coordination.share.state_merge import apply_update
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import FencedLeaderEpoch, RequestError
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_errors import FencedStateEpoch


class MemoryPersister(SharePersister):
    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self.writes: list[tuple[ShareKey, ShareStateUpdate]] = []
        # Cleared: writes wait.
        self.gate = asyncio.Event()
        self.gate.set()
        # Raised by the next write, which is not applied.
        self.refusal: RequestError | None = None

    def initialize(self, key: ShareKey, start: Offset = UNDECIDED_START) -> None:
        known = self.states.get(key)
        epoch = 0 if known is None else known.state_epoch + 1
        leader_epoch = LeaderEpoch(-1) if known is None else known.leader_epoch
        self.states[key] = ShareState(
            state_epoch=epoch, leader_epoch=leader_epoch, start_offset=start
        )

    async def read(self, key: ShareKey, leader_epoch: LeaderEpoch) -> ShareState:
        state = self._checked(key, leader_epoch)
        self.states[key] = state = replace(state, leader_epoch=leader_epoch)
        return state

    async def write(self, key: ShareKey, update: ShareStateUpdate) -> None:
        await self.gate.wait()
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        state = self._checked(key, update.leader_epoch)
        if update.state_epoch != state.state_epoch:
            raise FencedStateEpoch(f"epoch {update.state_epoch}, here {state.state_epoch}")
        self.writes.append((key, update))
        self.states[key] = apply_update(state, update)

    def _checked(self, key: ShareKey, leader_epoch: LeaderEpoch) -> ShareState:
        state = self.states.get(key)
        if state is None:
            raise GroupIdNotFound(f"group {key.group} has no state of this partition")
        if leader_epoch < state.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {leader_epoch}, here {state.leader_epoch}")
        return state
