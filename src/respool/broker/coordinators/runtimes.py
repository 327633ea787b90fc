"""The coordinators of this broker: one runtime per partition of an internal topic, found by the hash of a name.

The topic is created when the first client asks for a coordinator. A runtime that could not write stops; another one
replaces it after a delay and reads the log again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Protocol

from respool.broker.coordinators.coordinator_log import CoordinatorState
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.topics import Topics
from respool.broker.partitions.commit_waiters import when_committed
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.steady_clock import SteadyClock
from respool.model.cluster import BrokerEndpoint
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.errors import RequestError
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.ports.metadata_store import StoreUnavailable
from respool.ports.offload import Offload

logger = logging.getLogger(__name__)

# A failed coordinator is not reopened immediately: reading its log again is expensive.
REOPEN_DELAY_S = 2.0
# How long a request waits for a coordinator that is about to serve. Clients' own limits are several times as long.
ABOUT_TO_SERVE_S = 5.0


class CoordinatorRuntimesOwner(Protocol):
    """Owns the coordinators: provides their machines and handles their effects."""

    def new_machine(self, number: int) -> CoordinatorState: ...

    def on_loaded(self, number: int, runtime: CoordinatorRuntime) -> None:
        """The coordinator has loaded its partition and serves requests."""

    def on_effect(self, runtime: CoordinatorRuntime, effect: Any) -> None:
        """A committed decision of the coordinator's machine has this effect."""


class CoordinatorRuntimes:
    def __init__(
        self,
        *,
        owner: CoordinatorRuntimesOwner,
        topic: str,
        partition_count: int,
        catalog: Catalog,
        topics: Topics,
        partitions: Partitions,
        clock: SteadyClock,
        offload: Offload,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[Any]"],
        is_clustered: bool,
    ) -> None:
        self._owner = owner
        self.topic = topic
        self._partition_count = partition_count
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._offload = offload
        self._spawn = spawn
        self._is_clustered = is_clustered
        self._runtimes: dict[int, CoordinatorRuntime] = {}
        self._creating = asyncio.Lock()
        # The topic cannot be created, and clients keep retrying.
        self.topic_failures = RateLimitedLog(logger)
        # Partitions whose coordinators failed, with the timers that reopen them.
        self._reopening: dict[int, asyncio.TimerHandle] = {}
        # In start order, so that simulated runs are deterministic.
        self._loading: dict[asyncio.Task[Any], None] = {}
        # Set when a coordinator may have begun or stopped, and then replaced by a new event.
        self._changed = asyncio.Event()

    def on_role(self, partition: Partition) -> None:
        """This broker has become the partition's leader, or has ceased to be.

        A leader opens a coordinator; until its log is loaded, clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        number = partition.name.partition
        timer = self._reopening.pop(number, None)
        if timer is not None:
            timer.cancel()
        runtime = self._runtimes.pop(number, None)
        if runtime is not None:
            runtime.stop()
        if partition.is_leading:
            self._begin(partition)
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Topics, roles or coordinators have changed: those in `wait_until_served` look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until_served(self, names: Collection[str]) -> None:
        """Wait while coordinators of these names are about to serve here, but not for ever.

        Another broker may send clients here before this one has read that it leads, or has loaded the log.
        """
        if not self.has_topic and not await self._is_topic_to_come():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(ABOUT_TO_SERVE_S):
                while any(map(self._is_about_to_serve, names)):
                    await self._changed.wait()

    def is_about_to_serve(self, name: str) -> bool:
        """True if `wait_until_served` may have to wait for this name."""
        return self._is_clustered and self._is_about_to_serve(name)

    async def _is_topic_to_come(self) -> bool:
        """True if the image will soon have the topic, because other brokers have it already."""
        if not self._is_clustered:
            return False
        try:
            return await self._catalog.is_topic_stored(self.topic)
        except StoreUnavailable:
            # Nobody can tell. Clients are sent here by a broker that has the topic.
            return True

    def _is_about_to_serve(self, name: str) -> bool:
        if not self._partitions.may_act:
            return False
        topic = self._catalog.image.topics.get(self.topic)
        if topic is None:
            # Its image is on the way, see `_is_topic_to_come`.
            return True
        number = self.partition_of(name)
        runtime = self._runtimes.get(number)
        if runtime is not None:
            return runtime.is_loading
        return topic.partitions[number].leader == self._catalog.me

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist."""
        async with self._creating:
            if self._runtimes or (self._is_clustered and self.has_topic):
                return
            await self._topics.create_internal(self.topic, partition_count=self._partition_count)
        if not self._is_clustered:
            # In a cluster, loading takes as long as other brokers are away, and the client need not wait for it.
            await asyncio.gather(*self._loading)

    def stop(self) -> None:
        for timer in self._reopening.values():
            timer.cancel()
        self._reopening.clear()
        for runtime in self._runtimes.values():
            runtime.stop()

    @property
    def has_topic(self) -> bool:
        return self.topic in self._catalog.image.topics

    def __iter__(self) -> Iterator[tuple[int, CoordinatorRuntime]]:
        return iter(tuple(self._runtimes.items()))

    def at(self, number: int) -> CoordinatorRuntime:
        """Raises:
        NotCoordinator: the partition does not exist, or is not served here yet.
        """
        runtime = self._runtimes.get(number)
        if runtime is None:
            raise NotCoordinator(f"{self.topic}-{number} is not served here; look for it first")
        return runtime

    def partition_of(self, name: str) -> int:
        """Return the partition that stores this group or transactional id."""
        topic = self._catalog.image.topics.get(self.topic)
        count = self._partition_count if topic is None else len(topic.partitions)
        return partition_for(name, count)

    def leader_of(self, name: str) -> BrokerEndpoint:
        """Return the broker that coordinates this group or transactional id.

        Raises:
            CoordinatorNotAvailable: there is no leader now, or this broker's lease has expired.
        """
        if not self._partitions.may_act:
            # The image may be outdated: clients redirected to a broker that cannot act either would return in a loop.
            raise CoordinatorNotAvailable("this broker's lease has run out")
        image = self._catalog.image
        number = self.partition_of(name)
        leader = image.topics[self.topic].partitions[number].leader
        endpoint = None if leader is None else image.brokers.get(leader)
        if endpoint is None:
            raise CoordinatorNotAvailable(f"{self.topic}-{number} has no leader now")
        return endpoint

    def runtime_of(self, name: str) -> CoordinatorRuntime:
        """Raises:
        NotCoordinator: no client has asked for a coordinator yet, or this broker may not act now.
        """
        if not self._partitions.may_act:
            # Another broker may be the coordinator by now. Commits would fail here, but replies about membership,
            # committed offsets or open transactions would come from outdated memory.
            raise NotCoordinator(f"the coordinator of {name!r}: this broker's lease has run out")
        runtime = self._runtimes.get(self.partition_of(name))
        if runtime is None:
            raise NotCoordinator(f"the coordinator of {name!r} is not here; look for it first")
        return runtime

    def ask(self, name: str, request: Any) -> "asyncio.Future[Any]":
        """Send a request to the coordinator of `name`. The future is done when the reply may be sent.

        Raises:
            RequestError: the coordinator cannot be asked now. The future may also fail with one; then the request's
                outcome is unknown.
        """
        return self.runtime_of(name).ask(request)

    async def ask_all(self, request: Any) -> list[Any]:
        """Send a request to every coordinator on this broker. Fail if one is missing: a partial answer looks complete.

        Raises:
            CoordinatorLoadInProgress, CoordinatorNotAvailable: one of them cannot answer.
        """
        if not self._partitions.may_act:
            raise CoordinatorNotAvailable("this broker's lease has run out")
        topic = self._catalog.image.topics.get(self.topic)
        for number, one in enumerate(topic.partitions if topic is not None else ()):
            if one.leader == self._catalog.me and number not in self._runtimes:
                raise CoordinatorLoadInProgress(f"{self.topic}-{number} is not served here yet")
        return list(
            await asyncio.gather(*(runtime.ask(request) for runtime in self._runtimes.values()))
        )

    def _open_runtime(self, partition: Partition) -> CoordinatorRuntime:
        number = partition.name.partition
        runtime = self._runtimes[number] = CoordinatorRuntime(
            partition=partition,
            machine=self._owner.new_machine(number),
            clock=self._clock,
            offload=self._offload,
            may_act=lambda: self._partitions.may_act,
            on_failed=lambda: self._reopen_later(number),
            on_effect=lambda effect: self._owner.on_effect(runtime, effect),
        )
        return runtime

    def _begin(self, partition: Partition) -> None:
        task = self._spawn(self._load(partition, self._open_runtime(partition)))
        self._loading[task] = None
        task.add_done_callback(self._on_loaded)

    def _on_loaded(self, task: "asyncio.Task[Any]") -> None:
        self._loading.pop(task, None)
        self.wake_waiters()

    async def _load(self, partition: Partition, runtime: CoordinatorRuntime) -> None:
        try:
            # Records of an earlier leader are acted upon only once they are committed and can no longer be lost.
            await when_committed(partition.waiters, partition.log.log_end)
        except RequestError as error:
            logger.info("%s: the coordinator does not begin here: %s", partition.name, error)
            is_served = self._runtimes.get(partition.name.partition) is runtime
            runtime.stop()
            if is_served and partition.is_leading and partition.is_online:
                # The broker is still the leader; only its lease was in doubt.
                self._reopen_later(partition.name.partition)
            return
        await runtime.load()
        if runtime.is_active:
            self._owner.on_loaded(partition.name.partition, runtime)

    def _reopen_later(self, number: int) -> None:
        """Reopen after a delay: a full disk may have room by then. Loading an offline partition fails again."""
        assert number not in self._reopening, f"{self.topic}-{number} is reopened already"
        loop = asyncio.get_running_loop()
        self._reopening[number] = loop.call_later(REOPEN_DELAY_S, self._reopen, number)

    def _reopen(self, number: int) -> None:
        del self._reopening[number]
        partition = self._partitions.find(self.topic, number)
        if partition.is_leading:
            self._begin(partition)


def java_string_hash(text: str) -> int:
    """31 * h + c over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(name: str, partition_count: int) -> int:
    """The coordinator partition of a group or transactional id: by Java's String.hashCode, as in Kafka."""
    value = java_string_hash(name)
    # In Java, the absolute value of the smallest integer is that integer; Kafka uses 0 instead.
    return 0 if value == -(2**31) else abs(value) % partition_count
