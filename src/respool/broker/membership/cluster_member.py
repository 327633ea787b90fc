"""This broker as a member of a cluster: its registration, cluster image changes, and its roles.

```
  metadata store --watch--> catalog's image --+-- immediately: end roles, update the leaders' registered brokers
                                              +-- soon: open, close, lead, follow (one after the other)
                                              +-- the controller (if it is this broker) decides what is due
                                              +-- the failure detector watches the other brokers
```
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn
from uuid import UUID

from respool.broker.membership.broker_lifecycle import BrokerLifecycle
from respool.broker.membership.controller_election import ControllerElection
from respool.broker.membership.failure_detector import FailureDetector
from respool.broker.membership.hosted_replicas import HostedReplicas
from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.registry import Partitions
from respool.broker.replication.replication_throttle import ReplicationThrottle
from respool.broker.replication.roles import Roles
from respool.cluster.session import Session, SessionSettings
from respool.log.folder.data_folder import DataFolder
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.errors import StorageError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.ports.clock import Clock
from respool.ports.metadata_store import Guard, MetadataStore
from respool.ports.offload import Offload
from respool.ports.peers import Peers
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)

# Leaders check for lagging followers this many times within the maximum replica lag.
TICKS_WITHIN_LAG = 4
# The delay before a failed write of the folder id is retried.
NOTE_AGAIN_S = 1.0
# How long a stopping broker waits for the metadata store.
LEAVE_S_MAX = 5.0


class ClusterMember:
    def __init__(
        self,
        *,
        me: BrokerId,
        settings: Settings,
        store: MetadataStore,
        peers: Peers,
        clock: Clock,
        rng: RandomSource,
        offload: Offload,
        catalog: Catalog,
        rules: ControllerSettings,
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
    ) -> None:
        self._me = me
        self._settings = settings
        self._store = store
        self._peers = peers
        self._clock = clock
        self._rng = rng
        self._offload = offload
        self._catalog = catalog
        self._rules = rules
        self.throttle = ReplicationThrottle(
            me=me,
            catalog=catalog,
            clock=clock,
            settings=rules,
        )
        self._spawn = spawn
        self._lifecycle: BrokerLifecycle | None = None
        self._election: ControllerElection | None = None
        self._failure_detector = FailureDetector(
            me=me,
            dead_after_ms=settings.membership.dead_after_refused_ms,
            store=store,
            peers=peers,
            clock=clock,
            may_act=self.may_act,
            spawn=spawn,
        )
        self._last_image = catalog.image
        # Topics whose partitions must be reconciled with the image, in the order in which they changed.
        self._unreconciled: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._image_changed = asyncio.Event()
        # Called when topics were created, deleted or got more partitions.
        self.on_topics_changed: Callable[[], None] = lambda: None
        # Called when the lease was in doubt and turned out to be valid.
        self.on_acting_again: Callable[[], None] = lambda: None
        # Called when leaders of partitions may have changed, or brokers joined or left.
        self.on_leaders_changed: Callable[[], None] = lambda: None

    def wire(
        self, *, partitions: Partitions, hosted_replicas: HostedReplicas, roles: Roles
    ) -> None:
        """Set what the constructor cannot have: these objects are created later, since they need `may_act`."""
        self._partitions, self._hosted_replicas, self._roles = partitions, hosted_replicas, roles

    @property
    def epoch(self) -> int | None:
        """The broker epoch; None while the broker is not registered."""
        return None if self._lifecycle is None else self._lifecycle.epoch

    @property
    def registration(self) -> Guard | None:
        """A guard for writes that only this run may make; None while the broker is not registered."""
        return None if self._lifecycle is None else self._lifecycle.registration

    @property
    def run(self) -> UUID | None:
        """The run id for the data folder's clean-stop file."""
        return None if self._lifecycle is None else self._lifecycle.run

    @property
    def suspects(self) -> Collection[BrokerId]:
        """Registered brokers that are probably dead."""
        return self._failure_detector.suspects

    def may_act(self) -> bool:
        return self._lifecycle is not None and self._lifecycle.may_act()

    async def join(self, endpoint: BrokerEndpoint, folder: DataFolder) -> None:
        """Register with this address and join the cluster; return when the assigned replicas are open.

        Raises:
            NotAdmitted: the broker may not join.
        """
        self._lifecycle = lifecycle = BrokerLifecycle(
            me=self._me,
            session=Session(
                endpoint,
                settings=SessionSettings(lease_ttl_ms=self._settings.membership.session_ttl_ms),
                clean_run=folder.clean_run,
                last_run=folder.last_run,
                folder=await self._id_of(folder),
            ),
            store=self._store,
            catalog=self._catalog,
            clock=self._clock,
            rng=self._rng,
            on_stop_acting=self._on_stop_acting,
            on_acting_again=self.on_acting_again,
            note_run=partial(self._note_run, folder),
        )
        self._election = ControllerElection(
            me=self._me,
            catalog=self._catalog,
            lifecycle=lifecycle,
            clock=self._clock,
            settings=self._rules,
        )
        await lifecycle.join()
        self._spawn(lifecycle.stay())
        # Read the image again, now that the state of earlier runs is cleared.
        await self._catalog.refresh()
        self._roles.are_taken = True
        self._catalog.on_changed = self._on_image
        self._on_image()
        self._unreconciled.update(dict.fromkeys(sorted(self._catalog.image.topics)))
        self._spawn(self._catalog.follow())
        await self._reconcile()
        self._spawn(self._keep_reconciled())
        self._spawn(self._tick())
        self._spawn(self._election.run())

    async def hand_over(self) -> None:
        """Announce the shutdown, and wait until other brokers lead the partitions, within `handover_max_ms`."""
        if self._lifecycle is None or not self.may_act():
            return
        await self._lifecycle.announce_stop()
        try:
            async with asyncio.timeout(self._settings.membership.handover_max_ms / 1000):
                while self._could_hand_over(self._catalog.image):
                    self._image_changed.clear()
                    await self._image_changed.wait()
        except TimeoutError:
            logger.warning("others did not take over in time all that this broker leads")

    async def leave(self) -> None:
        """Record a clean shutdown in the store and leave. All logs are synced and closed.

        The wait is limited: the data folder records the clean shutdown too, and the lease expires by itself.
        """
        if self._lifecycle is None or not self._lifecycle.is_stopping:
            return
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._lifecycle.leave()
        except TimeoutError:
            logger.warning("the metadata store could not record that this broker has stopped")

    # -- changes by other brokers ------------------------------------------------------------------------------------

    def _on_image(self) -> None:
        image, before = self._catalog.image, self._last_image
        self._last_image = image
        self._image_changed.set()
        if image.brokers is not before.brokers:
            self._peers.move_to(
                {
                    one.id: address
                    for one in image.brokers.values()
                    if one.id != self._me
                    and (address := one.address(self._settings.inter_broker_listener)) is not None
                }
            )
            self._roles.on_brokers(list(self._partitions))
            if self._lifecycle is not None and not self._catalog.is_registered:
                # Another broker considered this one dead.
                self._lifecycle.doubt_lease()
        self._failure_detector.on_image(image)
        changed = _changed_topics(before, image)
        for name in changed:
            self._hosted_replicas.apply_settings(name)
            for partition in self._partitions.of_topic(name):
                if self._roles.end_stale_role(partition):
                    # Immediately, since opening, closing and deleting other replicas may take a while.
                    self._spawn(self._roles.take_role(partition))
            self._unreconciled[name] = None
        are_configs_changed = image.broker_overrides is not before.broker_overrides
        if changed or are_configs_changed or image.brokers is not before.brokers:
            # A broker that is gone copies nothing, so others may use its share of the throttle.
            self.throttle.on_image()
        if changed:
            self._woken.set()
        if any(
            _shape(before, name) != _shape(image, name)
            for name in (*changed, *_views(before, image))
        ):
            self.on_topics_changed()
        if changed or image.brokers is not before.brokers:
            self.on_leaders_changed()
        if self._election is not None:
            self._election.wake()

    async def _keep_reconciled(self) -> NoReturn:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self._reconcile()

    async def _reconcile(self) -> None:
        names, self._unreconciled = self._unreconciled, {}
        await self._hosted_replicas.reconcile(names)

    async def _tick(self) -> NoReturn:
        while True:
            await asyncio.sleep(
                self._settings.replication.replica_lag_max_ms / TICKS_WITHIN_LAG / 1000
            )
            self._roles.tick(list(self._partitions))

    async def _id_of(self, folder: DataFolder) -> UUID:
        if folder.id is not None:
            return folder.id
        new = self._rng.uuid()
        try:
            await self._offload.run(lambda: folder.note_id(new))
        except StorageError as error:
            # Otherwise the next start would see a different folder, and partitions that are complete only here would
            # stay offline until an operator acts.
            logger.warning("which data folder this is cannot be written down yet: %s", error)
            self._spawn(self._note_id_later(folder, new))
        return new

    async def _note_id_later(self, folder: DataFolder, new: UUID) -> None:
        while folder.id is None:
            await asyncio.sleep(NOTE_AGAIN_S)
            with suppress(StorageError):
                await self._offload.run(lambda: folder.note_id(new))

    async def _note_run(self, folder: DataFolder, run: UUID) -> None:
        try:
            await self._offload.run(lambda: folder.note_run(run))
        except StorageError as error:
            # The next start then has to wait until this run's lease expires.
            logger.warning("which run this is cannot be written down: %s", error)

    def _on_stop_acting(self) -> None:
        """Stop answering. Roles stay until the image ends them: the lease may turn out to be still valid."""
        for partition in self._partitions:
            partition.role.on_fenced()

    def _could_hand_over(self, image: ClusterImage) -> bool:
        """True if this broker leads a partition that another broker could lead."""
        return any(
            one.leader == self._me and self._has_heir(one, image)
            for topic in image.topics.values()
            for one in topic.partitions
        )

    def _has_heir(self, partition: PartitionImage, image: ClusterImage) -> bool:
        others = (image.brokers.get(one) for one in partition.isr if one != self._me)
        return any(one is not None and not one.is_draining for one in others)


def _changed_topics(before: ClusterImage, after: ClusterImage) -> list[str]:
    old, new = before.topics, after.topics
    return sorted(name for name in old.keys() | new.keys() if old.get(name) is not new.get(name))


def _views(before: ClusterImage, after: ClusterImage) -> set[str]:
    """Those that may have changed."""
    return set() if before.views is after.views else {*before.views, *after.views}


def _shape(image: ClusterImage, name: str) -> tuple[object, int, bool] | None:
    topic = image.readable(name)
    return None if topic is None else (topic.id, len(topic.partitions), topic.is_listed)
