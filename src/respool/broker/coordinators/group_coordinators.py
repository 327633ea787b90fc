"""The group coordinators of this broker, on `__consumer_offsets`. They are notified of topic changes."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from respool.broker.coordinators.coordinator_log import TransactionalMachine
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.coordinators.runtimes import CoordinatorRuntimes, CoordinatorRuntimesOwner
from respool.broker.metadata.catalog import Catalog
from respool.broker.steady_clock import SteadyClock
from respool.coordination.decision import Decision
from respool.coordination.groups.committed_offsets import CommittedOffsets
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.coordination.groups.consumer.topics_view import ConsumerTopic, TopicsView
from respool.coordination.groups.share.share_group_requests import (
    InitializeShareStates,
    RemoveShareStates,
    ShareStatesInitialized,
    ShareStatesRemoved,
)
from respool.coordination.share.share_state import ShareKey
from respool.coordination.share_states.share_state_requests import InitialState
from respool.model.errors import RequestError


class GroupMachine(TransactionalMachine, Protocol):
    @property
    def offsets(self) -> CommittedOffsets: ...

    def on_heard_again(self, *, now_ms: int) -> None: ...

    def on_topics_changed(self, topics: TopicsView, *, now_ms: int, wall_ms: int) -> Decision: ...

    def on_topics_deleted(self, names: Collection[str], *, now_ms: int) -> Decision: ...

    def on_partitions_retired(self, first_gone: Mapping[str, int], *, now_ms: int) -> Decision: ...


class ShareStateChanger(Protocol):
    """The share coordinators, as group coordinators need them."""

    async def initialize(
        self, states: Mapping[ShareKey, InitialState]
    ) -> Mapping[ShareKey, RequestError | None]: ...

    async def delete(self, keys: Iterable[ShareKey]) -> Mapping[ShareKey, RequestError | None]: ...


class Groups:
    def __init__(
        self,
        *,
        new_runtimes: Callable[[CoordinatorRuntimesOwner], CoordinatorRuntimes],
        catalog: Catalog,
        clock: SteadyClock,
        new_group_machine: Callable[[], GroupMachine],
        share_states: ShareStateChanger,
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self.runtimes = new_runtimes(self)
        self._catalog = catalog
        self._clock = clock
        self._new_group_machine = new_group_machine
        self._share_states = share_states
        self._spawn = spawn
        # By partition: its machine, and the topics when the machine was last notified of them.
        self._machines: dict[int, GroupMachine] = {}
        self._notified_topics: dict[int, TopicsView] = {}
        # By partition: the retired partitions of which the machine was last notified.
        self._notified_retired: dict[int, Mapping[str, int]] = {}

    def ask(self, group_id: str, request: Any) -> "asyncio.Future[Any]":
        """Send a request to the group's machine: see `CoordinatorRuntimes.ask`."""
        return self.runtimes.ask(group_id, request)

    def committed(self) -> list[CommittedOffsets]:
        """Return the committed offsets of the groups that this broker coordinates."""
        return [
            self._machines[number].offsets for number, runtime in self.runtimes if runtime.is_active
        ]

    def on_acting_again(self) -> None:
        """This broker may act again after a while in which it refused every heartbeat."""
        now_ms = self._clock.now_ms()
        for number, runtime in self.runtimes:
            if runtime.is_active:
                self._machines[number].on_heard_again(now_ms=now_ms)

    def on_topics_changed(self) -> None:
        """Topics were created, deleted or got more partitions."""
        view = self._topics_view()
        for number, runtime in self.runtimes:
            # A coordinator that is still loading is notified once it has loaded.
            if runtime.is_active:
                self._notify_of_topics(number, runtime, view)
        self.runtimes.wake_waiters()

    def new_machine(self, number: int) -> GroupMachine:
        view = self._topics_view()
        machine = self._machines[number] = self._new_group_machine()
        self._notified_retired.pop(number, None)
        machine.on_topics_changed(view, now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms())
        # Keeps an earlier machine's view: topics deleted since then must still be reported after the log is loaded.
        self._notified_topics.setdefault(number, view)
        return machine

    def on_loaded(self, number: int, runtime: CoordinatorRuntime) -> None:
        # Topics may have changed while the log was loaded.
        self._notify_of_topics(number, runtime, self._topics_view())

    def on_effect(self, runtime: CoordinatorRuntime, effect: Any) -> None:
        """A share group's partitions get state at the share coordinator, or lose it."""
        if isinstance(effect, InitializeShareStates):
            self._spawn(self._initialize(runtime, effect))
        else:
            assert isinstance(effect, RemoveShareStates), effect
            self._spawn(self._remove(runtime, effect))

    async def _initialize(self, runtime: CoordinatorRuntime, effect: InitializeShareStates) -> None:
        results = await self._share_states.initialize(
            {
                ShareKey(effect.group_id, one.topic_id, one.partition): InitialState(
                    one.state_epoch, one.offset
                )
                for one in effect.starts
            }
        )
        done, error = _done(results)
        runtime.report(ShareStatesInitialized(group_id=effect.group_id, done=done, error=error))

    async def _remove(self, runtime: CoordinatorRuntime, effect: RemoveShareStates) -> None:
        results = await self._share_states.delete(
            ShareKey(effect.group_id, topic_id, number)
            for topic_id, numbers in effect.partitions.items()
            for number in numbers
        )
        done, error = _done(results)
        runtime.report(ShareStatesRemoved(group_id=effect.group_id, done=done, error=error))

    def _notify_of_topics(self, number: int, runtime: CoordinatorRuntime, view: TopicsView) -> None:
        machine, told = self._machines[number], self._notified_topics[number]
        now_ms = self._clock.now_ms()
        dormant = self._catalog.image.dormant_views
        # A view that this version does not understand keeps its groups' offsets.
        deleted = [
            name
            for name in told
            if name not in view and (name not in dormant or dormant[name].is_orphan)
        ]
        if deleted:
            runtime.apply(machine.on_topics_deleted(deleted, now_ms=now_ms))
        retired = self._first_retired()
        if retired and retired != self._notified_retired.get(number):
            runtime.apply(machine.on_partitions_retired(retired, now_ms=now_ms))
        runtime.apply(machine.on_topics_changed(view, now_ms=now_ms, wall_ms=self._clock.wall_ms()))
        if runtime.is_active:
            self._notified_retired[number] = retired
            # If the records could not be written, the next coordinator is notified instead.
            self._notified_topics[number] = view

    def _topics_view(self) -> TopicsView:
        image = self._catalog.image
        return {
            topic.name: ConsumerTopic(
                topic.id,
                len(topic.partitions),
                matches_patterns=topic.is_listed and not topic.internal,
            )
            for topic in (*image.topics.values(), *image.views.values())
        }

    def _first_retired(self) -> dict[str, int]:
        """The first retired partition of each topic that has any, and of its views."""
        image = self._catalog.image
        first: dict[str, int] = {}
        for topic in image.topics.values():
            if topic.layout is not None and len(topic.partitions) < topic.layout.named:
                for name in (topic.name, *(one.name for one in image.views_of(topic.id))):
                    first[name] = len(topic.partitions)
        return first


def _done(
    results: Mapping[ShareKey, RequestError | None],
) -> tuple[PartitionSet, RequestError | None]:
    """The partitions without an error, and the first error."""
    done = partition_set(
        (key.topic_id, [key.partition]) for key, error in results.items() if error is None
    )
    return done, next((error for error in results.values() if error is not None), None)
