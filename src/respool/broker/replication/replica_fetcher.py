"""Fetches from one leader for all partitions that follow it, round after round, and applies the replies to the logs.

```
   every partition's next fetch -> one request -> append, truncate  -----+--> many bytes: next round immediately
                                                                           +--> else when all of it is on disk
```
Only durable records count, and the leader learns of them with the next request. If many bytes arrive, an extra request
is worthwhile to keep fetching while the disk is at work; that request does not wait at the leader for records. If few
bytes arrive, the next request waits for the disk, so that one request both fetches and reports the durable end.

One request is in flight at a time. A partition that is added while the request waits at the leader for records does not
wait with it: such newcomers are fetched in a channel of their own until the next round includes them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn

from respool.broker.partitions.partition import Partition
from respool.broker.replication.follower_log import FollowerLog
from respool.broker.replication.replica_requests import FetchReply, ReplicaRequests
from respool.broker.replication.replication_throttle import ReplicationThrottle
from respool.model.ids import BrokerId
from respool.ports.clock import Clock
from respool.ports.peers import PeerUnreachable
from respool.replication.effects import AskLeaderRange, FollowerEffect, WaitFor
from respool.replication.follower import BACKOFF_MS, FetchFrom

logger = logging.getLogger(__name__)

STEADY_CHANNEL = 1
NEWCOMERS_CHANNEL = 2
# How long a request may wait at the leader for records.
WAIT_MS = 500
# The same while some local records are not known to be committed: the leader's next reply says whether they are. The
# wait doubles each time they still are not, since too few replicas may be running for a long time.
WAIT_FOR_COMMIT_MS = 20
WAIT_FOR_NEWCOMERS_MS = 50


class ReplicaFetcher:
    def __init__(
        self,
        *,
        leader: BrokerId,
        requests: ReplicaRequests,
        work: FollowerLog,
        throttle: ReplicationThrottle,
        clock: Clock,
        fetch_ahead_bytes: int,
        broker_epoch: Callable[[], int | None],
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
    ) -> None:
        """A round with at least `fetch_ahead_bytes` has many bytes: syncing them takes about as long as a request."""
        self.leader = leader
        self._fetch_ahead_bytes = fetch_ahead_bytes
        self._requests = requests
        self._work = work
        self._throttle = throttle
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._spawn = spawn
        # In the order of arrival, so that simulated runs are deterministic.
        self._partitions: dict[Partition, None] = {}
        # Partitions that were added while a request was waiting at the leader.
        self._newcomers: dict[Partition, None] = {}
        # Do not fetch these before the given time: they had an error or are throttled.
        self._not_before_ms: dict[Partition, int] = {}
        self._woken = asyncio.Event()
        self._is_polling = False
        self._greeting: asyncio.Task[Any] | None = None
        self._wait_for_commit_ms = WAIT_FOR_COMMIT_MS
        # The last round returned many bytes.
        self._is_much = False

    def add(self, partition: Partition) -> None:
        if partition not in self._partitions:
            self._partitions[partition] = None
            self._newcomers[partition] = None
        partition.role.on_follower_ready = self._woken.set
        self._not_before_ms.pop(partition, None)
        self._woken.set()
        if self._is_polling and (self._greeting is None or self._greeting.done()):
            self._greeting = self._spawn(self._greet())

    def wake(self) -> None:
        """Check again whether fetches are due."""
        self._woken.set()

    def remove(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)
        self._newcomers.pop(partition, None)
        self._not_before_ms.pop(partition, None)
        # The round may be waiting for this partition's sync, which from now on is reported to its next fetcher.
        self._woken.set()

    async def run(self) -> NoReturn:
        while True:
            # Cleared before anything is checked, so that changes in the meantime are noticed.
            self._woken.clear()
            awaits_disk = any(_awaits_disk(one) for one in self._partitions)
            if awaits_disk and not self._is_much:
                await self._woken.wait()
                continue
            asked = self._next_fetches(self._partitions)
            if not asked:
                self._is_much = False
                await self._wait_for_work()
                continue
            for partition in asked:
                self._newcomers.pop(partition, None)
            self._is_polling = True
            try:
                wait_ms = 0 if awaits_disk else self._wait_ms()
                replies = await self._ask(asked, wait_ms=wait_ms, channel=STEADY_CHANNEL)
            finally:
                self._is_polling = False
            self._is_much = sum(len(one.records) for one in replies) >= self._fetch_ahead_bytes
            await self._take(replies, STEADY_CHANNEL)

    async def _greet(self) -> None:
        """Fetch for new partitions until a regular round includes them."""
        while self._newcomers and self._is_polling:
            asked = self._next_fetches(self._newcomers)
            if not asked:
                delay_ms = self._put_off_for_ms(self._newcomers)
                if delay_ms is None:
                    return
                # A newly elected leader may not know yet that it leads. A regular round may take far longer.
                await asyncio.sleep(min(delay_ms, WAIT_FOR_NEWCOMERS_MS) / 1000)
                continue
            replies = await self._ask(
                asked, wait_ms=WAIT_FOR_NEWCOMERS_MS, channel=NEWCOMERS_CHANNEL
            )
            await self._take(replies, NEWCOMERS_CHANNEL)
            # The next round may be waiting for the sync of a partition whose log was truncated since.
            self._woken.set()

    def _next_fetches(self, partitions: Iterable[Partition]) -> dict[Partition, FetchFrom]:
        if self._broker_epoch() is None:
            # Without a broker epoch the leader would refuse the fetch.
            return {}
        now_ms = self._clock.monotonic_ms()
        asked = {}
        for partition in partitions:
            follower = partition.follower
            if follower is None or follower.image.leader != self.leader or not partition.is_online:
                continue
            if self._not_before_ms.get(partition, 0) > now_ms:
                continue
            wait_ms = self._throttle.wait_ms(partition)
            if wait_ms != 0:
                if wait_ms is not None:
                    self._not_before_ms[partition] = now_ms + wait_ms
                continue
            fetch = follower.next_fetch()
            if fetch is not None:
                asked[partition] = fetch
        return asked

    async def _ask(
        self, asked: dict[Partition, FetchFrom], *, wait_ms: int, channel: int
    ) -> list[FetchReply]:
        broker_epoch = self._broker_epoch()
        assert broker_epoch is not None
        try:
            replies = await self._requests.fetch(
                asked, broker_epoch=broker_epoch, wait_ms=wait_ms, channel=channel
            )
        except PeerUnreachable as error:
            logger.debug("%s", error)
            replies = []
        answered = {one.partition for one in replies}
        for partition, fetch in asked.items():
            if partition not in answered and partition.follower is not None:
                self._put_off(partition, partition.follower.on_lost(fetch))
        return replies

    async def _take(self, replies: list[FetchReply], channel: int) -> None:
        for reply in replies:
            if reply.records:
                self._wait_for_commit_ms = WAIT_FOR_COMMIT_MS
                self._let_others_first(reply.partition)
            self._throttle.on_copied(reply.partition, len(reply.records))
            effects = await self._work.take(reply)
            for effect in effects:
                if isinstance(effect, AskLeaderRange):
                    effects = [*effects, *await self._ask_range(reply.partition, effect, channel)]
            self._put_off(reply.partition, effects)

    def _let_others_first(self, partition: Partition) -> None:
        """Move the partition to the end of the next request, since it got records: a reply has limited room.

        In a session the leader does this. But throttled partitions are not in the session all the time, and the first
        of them would always be served first.
        """
        if partition in self._partitions:
            self._partitions[partition] = self._partitions.pop(partition)

    async def _ask_range(
        self, partition: Partition, request: AskLeaderRange, channel: int
    ) -> list[FollowerEffect]:
        follower = partition.follower
        if follower is None:
            return []
        try:
            start, end = await self._requests.log_range(
                partition, request.leader_epoch, channel=channel
            )
        except PeerUnreachable as error:
            logger.debug("%s", error)
            return follower.on_range_lost(request.leader_epoch)
        if partition.follower is not follower:
            return []
        effects = follower.on_leader_range(request.leader_epoch, log_start=start, log_end=end)
        return await self._work.carry_out(partition, effects)

    def _put_off(self, partition: Partition, effects: Iterable[FollowerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, WaitFor) and partition in self._partitions:
                due_ms = self._clock.monotonic_ms() + effect.delay_ms
                self._not_before_ms[partition] = due_ms

    def _put_off_for_ms(self, partitions: Iterable[Partition]) -> int | None:
        """How long until the first delayed partition is due; None if no partition is delayed."""
        now_ms = self._clock.monotonic_ms()
        due = (self._not_before_ms.get(one, 0) - now_ms for one in partitions)
        return min((one for one in due if one > 0), default=None)

    def _wait_ms(self) -> int:
        """How long the leader may hold the request."""
        wait_ms = WAIT_MS
        # Delayed partitions must be fetched when they are due.
        delay_ms = self._put_off_for_ms(self._not_before_ms)
        if delay_ms is not None:
            wait_ms = min(wait_ms, delay_ms)
        if any(
            one.follower is not None and one.follower.is_behind_commits for one in self._partitions
        ):
            wait_ms = min(wait_ms, self._wait_for_commit_ms)
            self._wait_for_commit_ms = min(2 * self._wait_for_commit_ms, WAIT_MS)
        return wait_ms

    async def _wait_for_work(self) -> None:
        """Wait until a partition is added or woken, or a delayed one is due."""
        delay_ms = self._put_off_for_ms(self._not_before_ms)
        if self._partitions:
            delay_ms = BACKOFF_MS if delay_ms is None else min(delay_ms, BACKOFF_MS)
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass


def _awaits_disk(partition: Partition) -> bool:
    follower = partition.follower
    return follower is not None and follower.awaits_disk and partition.is_online
