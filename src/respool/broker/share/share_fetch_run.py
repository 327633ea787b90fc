"""One ShareFetch request: acknowledgements, then records for the member, or a wait for them.

The answer leaves when its acknowledgements are committed and there are records, or the wait is over.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from respool.broker.fetch.fetch_run import ROOM_MIN
from respool.broker.share.member_acknowledgements import Acknowledgements, RefusalOf
from respool.broker.share.share_partition import SharePartition
from respool.broker.share.share_reading import (
    AnswerLimits,
    SharedRecords,
    ShareReadBroker,
    ShareReading,
)
from respool.broker.share.share_sessions import ShareSession, ShareTarget
from respool.broker.share.share_waiter import ShareWaiter
from respool.broker.share.shares import Shares
from respool.coordination.share.acquisition import AcquireMode
from respool.model.errors import RequestError, StorageError, StorageFailed


class ShareFetchBroker(ShareReadBroker, Protocol):
    shares: Shares


@dataclass(slots=True, kw_only=True)
class ShareFetchLimits:
    wait_max_s: float
    # Until as many bytes are available, the fetch waits.
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    mode: AcquireMode

    @property
    def wants_records(self) -> bool:
        return self.bytes_max > 0 and self.records_max > 0


@dataclass(slots=True)
class ShareFetchAnswer:
    records: dict[ShareTarget, SharedRecords] = field(default_factory=dict)
    errors: dict[ShareTarget, RequestError] = field(default_factory=dict)
    size: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.records and not self.errors


class ShareFetchRun:
    def __init__(
        self,
        broker: ShareFetchBroker,
        session: ShareSession,
        limits: ShareFetchLimits,
        *,
        refusal_of: RefusalOf,
    ) -> None:
        """`refusal_of` is asked before each read: rights may end while the fetch waits."""
        self._refusal_of = refusal_of
        self._broker = broker
        self._session = session
        self._limits = limits
        self._deadline = asyncio.get_running_loop().time() + limits.wait_max_s

    async def run(self, acknowledgements: Acknowledgements) -> ShareFetchAnswer:
        answer = await self._fetch() if self._limits.wants_records else ShareFetchAnswer()
        memory = self._broker.memory
        memory.charge(answer.size)
        try:
            await acknowledgements.committed()
        finally:
            # In the next turn of the loop, the connection has charged its unsent bytes.
            asyncio.get_running_loop().call_soon(memory.release_reservation, answer.size)
        return answer

    async def _fetch(self) -> ShareFetchAnswer:
        while True:
            errors = await self._load()
            is_over = asyncio.get_running_loop().time() >= self._deadline
            answer = await self._attempt(takes_anything=is_over)
            for target, error in errors.items():
                answer.errors.setdefault(target, error)
            if not answer.is_empty or is_over or not self._session.targets:
                return answer
            await self._wait()

    async def _load(self) -> dict[ShareTarget, RequestError]:
        """Wait until all share partitions are loaded; return why those are not that cannot be."""
        shares = self._shares(ShareFetchAnswer())
        loading = [(target, share) for target, share in shares if not share.loaded.done()]
        if not loading:
            return {}
        left = max(0.0, self._deadline - asyncio.get_running_loop().time())
        await asyncio.wait([share.loaded for _, share in loading], timeout=left)
        return {target: share.error for target, share in loading if share.error is not None}

    def _shares(self, answer: ShareFetchAnswer) -> list[tuple[ShareTarget, SharePartition]]:
        """The session's share partitions, another one first each time; what is not here is an error in the answer."""
        shares, session = self._broker.shares, self._session
        targets = list(session.targets)
        turn = session.epoch % len(targets) if targets else 0
        found = []
        for target in targets[turn:] + targets[:turn]:
            refusal = self._refusal_of(target)
            if refusal is not None:
                answer.errors[target] = refusal
                continue
            try:
                found.append((target, shares.find(session.key.group, target)))
            except RequestError as error:
                answer.errors[target] = error
        return found

    async def _attempt(self, *, takes_anything: bool) -> ShareFetchAnswer:
        """Acquire what is available now, if it is enough."""
        answer = ShareFetchAnswer()
        shares = self._shares(answer)
        room = self._room
        if room <= 0 or not (takes_anything or self._is_enough([share for _, share in shares])):
            return answer
        limits = AnswerLimits(
            records=self._limits.records_max,
            size=room,
            batch_size=self._limits.batch_size,
            mode=self._limits.mode,
        )
        for target, share in shares:
            if limits.is_full or not self._session.is_open:
                break
            if share.is_reading or not (share.is_gone or share.has_ready()):
                continue
            try:
                topic = self._broker.shares.topic_of(target)
                reading = ShareReading(self._broker, share, target, topic, key=self._session.key)
                taken = await reading.acquire(limits)
            except RequestError as error:
                answer.errors[target] = error
                continue
            except StorageError as error:
                share.partition.on_storage_error(error)
                answer.errors[target] = StorageFailed(f"{share.partition.name}: {error}")
                continue
            if taken.record_count:
                answer.records[target] = taken
                answer.size += taken.size
                share.after_change()
        for _, share in shares:
            share.wake_next()
        return answer

    def _is_enough(self, shares: list[SharePartition]) -> bool:
        """Nothing is held meanwhile: what is available is estimated, not acquired."""
        wanted = min(self._limits.bytes_min, self._limits.bytes_max)
        if wanted <= 1:
            return True
        return any(one.is_gone for one in shares) or wanted <= sum(
            one.ready_bytes() for one in shares
        )

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Wait until something may be available, at most until the deadline."""
        loop = asyncio.get_running_loop()
        shares = [share for _, share in self._shares(ShareFetchAnswer())]
        waiter = ShareWaiter(partial(self._is_enough, shares))
        if self._room <= 0:
            self._broker.memory.when_room(partial(_wake, waiter))
        else:
            for share in shares:
                share.add_waiter(waiter)
                if share.is_gone or (share.has_ready() and waiter.is_enough()):
                    # It became available between the attempt and here, and woke nobody.
                    waiter.wake()
                elif not share.loaded.done():
                    share.loaded.add_done_callback(partial(_wake, waiter))
        alarm = loop.call_at(self._deadline, waiter.wake)
        is_cancelled = True
        try:
            await waiter.ready
            is_cancelled = False
        finally:
            alarm.cancel()
            for share in shares:
                share.remove_waiter(waiter)
                if is_cancelled:
                    # What this one was woken for is for the next.
                    share.wake_next()

    # -- memory ------------------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        """How many bytes of records the answer may contain now; 0: none until memory is free."""
        memory = self._broker.memory
        available = memory.available_for_replies
        if available < min(ROOM_MIN, memory.limit // 2):
            return 0
        most = min(self._limits.bytes_max, self._broker.settings.fetch.fetch_bytes_max)
        return min(most, max(ROOM_MIN, available))


def _wake(waiter: ShareWaiter, *_: object) -> None:
    waiter.wake()
