"""A share partition at the leader of its partition: loaded from its stored state, and written with one write at a time.

```
 loading --> serving --> gone: a write was refused, the leadership or the topic is gone, or nobody used it for a while
```
What changes while a write is under way goes together in the next one. Fetches that find nothing wait in a queue: what
becomes available wakes one of them, and that one wakes the next if it leaves something.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import cached_property
from typing import Any

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.broker.share.persister import SharePersister
from respool.broker.share.share_waiter import CommitWatch, ShareWaiter
from respool.broker.share.stored_batches import key_hashes, stored_batches
from respool.broker.steady_clock import SteadyClock
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import (
    UNDECIDED_START,
    ShareKey,
    ShareState,
    ShareStateUpdate,
)
from respool.coordination.share.transitions import ShareCounts, ShareGauges
from respool.log.partition_log import ReadSpec
from respool.model.errors import NotLeader, RequestError, StorageError, StorageFailed
from respool.model.ids import Offset
from respool.model.share.share_errors import FencedStateEpoch
from respool.model.share.share_settings import ShareGroupSettings
from respool.ports.disk import NotCached
from respool.ports.offload import Offload
from respool.ports.record_scan import KeyHasher

logger = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
# Until records were read, this is how large they are taken to be.
RECORD_BYTES = 512.0
KEYS_READ_BYTES = 1024 * 1024
# While the broker may not act, time stands still for locks; then they are longer, since nobody could acknowledge.
PAUSE_MS = 1_000
LOCK_EXTENSION_MS = 10_000


class SharePartition:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        *,
        settings_of: Callable[[str], ShareGroupSettings],
        persister: SharePersister,
        clock: SteadyClock,
        offload: Offload,
        new_hasher: Callable[[], KeyHasher],
        spawn: Spawn,
        may_act: Callable[[], bool],
        on_discarded: Callable[["SharePartition"], None],
        on_dying: Callable[["SharePartition"], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._settings_of = settings_of
        self._persister = persister
        self._clock = clock
        self._offload = offload
        self._new_hasher = new_hasher
        self._spawn = spawn
        self._may_act = may_act
        self._on_discarded = on_discarded
        # Exists once it is loaded.
        self._machine: SharePartitionMachine | None = None
        self.error: RequestError | None = None
        # Resolved once it is loaded, or cannot be.
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Of its log: for how much to read at once.
        self.record_bytes = RECORD_BYTES
        # A fetch reads its log in another thread; others would read the same.
        self.is_reading = False
        self.session_count = 0
        self._waiters: dict[ShareWaiter, None] = {}
        self._watch = CommitWatch(self.wake_next)
        self._watched: ReadTo | None = None
        self._is_writing = False
        self._committed_version = 0
        # Versions that requests wait for, in order.
        self._awaited: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = 0
        self._could_not_act = False
        self._on_dying = on_dying
        spawn(self._load())

    # -- loading -----------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            state = await self._persister.read(self.key, self.leader_epoch)
            if state.start_offset == UNDECIDED_START:
                state = await self._decide_start(state)
            self._check_leader()
            machine = SharePartitionMachine(
                state,
                leader_epoch=self.leader_epoch,
                log_start=self.partition.log_start,
                log_end=self.partition.log.log_end,
                settings=self.settings,
                now_ms=self._clock.now_ms(),
                wall_ms=self._clock.wall_ms(),
            )
            if machine.is_ordered:
                start, end = machine.start, machine.end
                machine.learn_keys(await self._offload.run(lambda: self._read_keys(start, end)))
            if machine.has_update:
                await self._persister.write(self.key, self._take(machine))
            self._check_leader()
        except (RequestError, StorageError) as error:
            self.discard(error if isinstance(error, RequestError) else StorageFailed(str(error)))
            return
        self._committed_version = machine.version
        self._machine = machine
        log = self.partition.log
        if log.log_end > log.log_start:
            self.record_bytes = log.size_bytes / (log.log_end - log.log_start)
        self._arm()
        if not self.loaded.done():
            self.loaded.set_result(None)
        self.after_change()
        if machine.dying:
            self._on_dying(self)

    def _read_keys(self, start: Offset, end: Offset) -> dict[int, int]:
        """The keys of records that may be unfinished; in another thread, where kernels may be compiled."""
        hasher = self.hasher
        log, position = self.partition.log, max(start, self.partition.log_start)
        found: dict[int, int] = {}
        while position < end:
            batches = stored_batches(log.read(ReadSpec(position, log.log_end, KEYS_READ_BYTES)))
            if not batches:
                break
            found |= key_hashes(batches, start, hasher)
            position = Offset(batches[-1].last_offset + 1)
        return {offset: key for offset, key in found.items() if offset < end}

    async def _decide_start(self, state: ShareState) -> ShareState:
        """Store where the group begins before anything is delivered.

        Otherwise: 1. `latest` is the log's end. 2. Records are delivered from there on. 3. The leader is killed before
        the first acknowledgement. 4. The next one begins at the end of what was delivered, and not accepted.
        """
        start = await self._first_offset()
        await self._persister.write(
            self.key,
            ShareStateUpdate(
                state_epoch=state.state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=start,
                # Known from now on, and with it the group's lag.
                finished_count=0,
            ),
        )
        return replace(state, start_offset=start)

    async def _first_offset(self) -> Offset:
        partition, reset = self.partition, self.settings.offset_reset
        log, end = partition.log, partition.high_watermark
        if reset.kind == "earliest":
            return log.log_start
        if reset.kind == "latest":
            return end
        since_ms = self._clock.wall_ms() - reset.duration_ms
        try:
            found = log.first_at_or_after(since_ms, max_offset=end, quickly=True)
        except NotCached:
            found = await self._offload.run(lambda: log.first_at_or_after(since_ms, max_offset=end))
        return end if found is None else found.offset

    def _check_leader(self) -> None:
        partition = self.partition
        if partition.leader is None or partition.leader_epoch != self.leader_epoch:
            raise NotLeader(f"{partition.name}: the leader has changed")

    def check_state(self) -> None:
        """A session begins: if the stored state was altered since, this one is void.

        Offsets are altered while the group has no members, but a session without a member may have kept this loaded.
        """
        if self._machine is not None and self.error is None:
            self._spawn(self._check_state(self._machine.state_epoch))

    async def _check_state(self, state_epoch: int) -> None:
        try:
            state = await self._persister.read(self.key, self.leader_epoch)
            if state.state_epoch != state_epoch:
                self.discard(FencedStateEpoch(f"{self.partition.name}: the offsets were altered"))
        except RequestError as error:
            self.discard(error)

    # -- reading -----------------------------------------------------------------------------------------------------

    @cached_property
    def hasher(self) -> KeyHasher:
        """For order by key. One reads at a time, so one thread at a time uses it."""
        return self._new_hasher()

    @property
    def settings(self) -> ShareGroupSettings:
        return self._settings_of(self.key.group)

    @property
    def is_gone(self) -> bool:
        return self.error is not None

    @property
    def is_loaded(self) -> bool:
        return self._machine is not None

    @property
    def is_idle(self) -> bool:
        machine = self._machine
        return machine is None or not (machine.held or machine.dying or self._is_writing)

    def is_of(self, partition: Partition) -> bool:
        """False: the partition was closed and opened, or elected a leader, since this was loaded."""
        return self.partition is partition and self.leader_epoch == partition.leader_epoch

    def machine(self) -> SharePartitionMachine:
        """What is loaded, with the group's settings as they are now.

        Raises:
            RequestError: it is gone, or not loaded yet.
        """
        if self.error is not None:
            raise self.error
        machine = self._machine
        if machine is None:
            raise NotLeader(f"{self.partition.name}: group {self.key.group} is being loaded")
        settings = self.settings
        if settings.order_by_key is not machine.is_ordered:
            self.discard(NotLeader(f"{self.partition.name}: respool.share.order was changed"))
            raise NotLeader(f"{self.partition.name}: respool.share.order was changed")
        machine.update_settings(settings)
        machine.on_log_start(self.partition.log_start)
        return machine

    def gauges(self) -> ShareGauges:
        """For metrics, of one that is loaded."""
        assert self._machine is not None
        return self._machine.gauges(self.readable_end, self._clock.now_ms())

    @property
    def counts(self) -> ShareCounts:
        return ShareCounts() if self._machine is None else self._machine.counts

    @property
    def readable_end(self) -> Offset:
        if self.settings.read_committed:
            return self.partition.last_stable_offset
        return self.partition.high_watermark

    def has_ready(self) -> bool:
        """True if a fetch would probably acquire something now."""
        if self._machine is None or self.error is not None or self.is_reading:
            return False
        offset = self._machine.next_offset(self._clock.now_ms())
        return offset is not None and offset < self.readable_end

    def ready_bytes(self) -> int:
        """About how many bytes a fetch would acquire now, by the average size of records."""
        if not self.has_ready():
            return 0
        return max(1, int(self.gauges().ready * self.record_bytes))

    # -- waiting fetches ---------------------------------------------------------------------------------------------

    def add_waiter(self, waiter: ShareWaiter) -> None:
        self._waiters[waiter] = None
        read_to = ReadTo.STABLE if self.settings.read_committed else ReadTo.COMMITTED
        if self._watched is not read_to:
            self._unwatch()
            self.partition.add_fetch_waiter(self._watch, read_to)
            self._watched = read_to

    def remove_waiter(self, waiter: ShareWaiter) -> None:
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self.partition.remove_fetch_waiter(self._watch)
            self._watched = None

    def wake_next(self) -> None:
        """Something may be available: wake the fetch that has waited longest."""
        if not self._waiters:
            return
        partition = self.partition
        if partition.leader is None or not partition.is_online or not self.is_of(partition):
            self.discard(NotLeader(f"{partition.name}: the leader has changed"))
            return
        if not self.has_ready():
            return
        for waiter in [one for one in self._waiters if one.is_enough()]:
            del self._waiters[waiter]
            if waiter.wake():
                break
        if not self._waiters:
            self._unwatch()

    # -- changes -----------------------------------------------------------------------------------------------------

    def after_change(self) -> None:
        """The machine has changed: store it, set the timer, wake a fetch that may acquire now."""
        machine = self._machine
        if machine is None or self.error is not None:
            return
        if machine.has_update and not self._is_writing:
            self._is_writing = True
            self._spawn(self._write())
        self._arm()
        self.wake_next()

    def after_log_start(self, log_start: Offset) -> None:
        if self._machine is not None and self.error is None:
            self._machine.on_log_start(log_start)
            self.after_change()

    def when_stored(self) -> "asyncio.Future[None] | None":
        """Resolved when all that has changed so far is committed; None if it is already.

        It fails with a RequestError if the write does.
        """
        machine = self._machine
        assert machine is not None
        if machine.version <= self._committed_version and not self._is_writing:
            return None
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            stored.set_exception(self.error)
        else:
            self._awaited.append((machine.version, stored))
        return stored

    async def _write(self) -> None:
        machine = self._machine
        assert machine is not None
        try:
            while machine.has_update and self.error is None:
                version = machine.version
                await self._persister.write(self.key, self._take(machine))
                self._on_stored(version)
        except RequestError as error:
            # What is stored now is unknown: the next request loads it again.
            self.discard(error)
        finally:
            self._is_writing = False
        if self.error is None:
            self._on_stored(machine.version)
            if machine.dying:
                self._on_dying(self)

    def _take(self, machine: SharePartitionMachine) -> ShareStateUpdate:
        return machine.take_update(now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms())

    def _on_stored(self, version: int) -> None:
        self._committed_version = version
        awaited = self._awaited
        while awaited and awaited[0][0] <= version:
            _, stored = awaited.popleft()
            if not stored.done():
                stored.set_result(None)

    # -- time --------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        machine = self._machine
        if machine is None or machine.due_at_ms is None:
            return
        at_ms = machine.due_at_ms
        if self._alarm is not None:
            if self._alarm_at_ms <= at_ms:
                return
            self._alarm.cancel()
        delay_s = max(0, at_ms - self._clock.now_ms()) / 1_000
        self._alarm_at_ms = at_ms
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self.on_alarm)

    def on_alarm(self) -> None:
        """Locks or delays may have ended."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        machine = self._machine
        if machine is None or self.error is not None:
            return
        if not self._may_act():
            # It ends no locks: another broker may lead.
            self._could_not_act = True
            self._alarm_at_ms = self._clock.now_ms() + PAUSE_MS
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(PAUSE_MS / 1_000, self.on_alarm)
            return
        if self._could_not_act:
            self._could_not_act = False
            machine.extend_locks(LOCK_EXTENSION_MS)
        machine.update_settings(self.settings)
        machine.on_due(self._clock.now_ms())
        self.after_change()

    # -- end ---------------------------------------------------------------------------------------------------------

    def discard(self, error: RequestError) -> None:
        """What is in memory is void: requests that wait get the error, and the next one loads it again."""
        if self.error is not None:
            return
        self.error = error
        logger.debug("%s, group %s: %s", self.partition.name, self.key.group, error)
        if self._alarm is not None:
            self._alarm.cancel()
        self._unwatch()
        if not self.loaded.done():
            self.loaded.set_result(None)
        awaited, self._awaited = self._awaited, deque()
        for _, stored in awaited:
            if not stored.done():
                stored.set_exception(error)
                # The request that waited may be gone.
                stored.exception()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()
        self._on_discarded(self)
