"""The broker: its components, wired over ports. It has no socket; requests arrive through `dispatch.handle`."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from respool.broker.access_control import AccessControl
from respool.broker.admin_log import AdminLog
from respool.broker.archive.archive_wiring import archived_end_of, new_archive
from respool.broker.audit_trail import AuditTrail
from respool.broker.auto_created import AutoCreatedTopics
from respool.broker.coordinators.coordinators import Coordinators
from respool.broker.coordinators.producer_id_blocks import ProducerIds
from respool.broker.coordinators.topic_readers import TopicReaders
from respool.broker.deadlines import Deadlines
from respool.broker.deliveries.deliveries import Deliveries
from respool.broker.fetch.sessions import FetchSessions
from respool.broker.layouts.layouts import Layouts
from respool.broker.logins.login_changes import LoginChanges
from respool.broker.logins.logins import Logins
from respool.broker.membership.broker_lifecycle import NotAdmitted
from respool.broker.membership.cluster_member import ClusterMember
from respool.broker.membership.hosted_replicas import HostedReplicas
from respool.broker.memory import MemoryBudget
from respool.broker.metadata.access_changes import AccessChanges
from respool.broker.metadata.broker_configs import BrokerConfigs
from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.deleted_topics import DeletedTopics
from respool.broker.metadata.topics import Topics
from respool.broker.metrics.broker_metrics import BrokerMetrics
from respool.broker.own_endpoint import own_endpoint
from respool.broker.partitions.compactor import Compactor
from respool.broker.partitions.deferred_deletion import DeferredDeletion
from respool.broker.partitions.flusher import Flusher
from respool.broker.partitions.housekeeping import Housekeeping
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.partitions.tag_indexer import TagIndexer
from respool.broker.peer_link import PeerLink
from respool.broker.quotas import Quotas
from respool.broker.replication_wiring import Replication
from respool.broker.share.share_series import ShareSeries
from respool.broker.share.shares import Shares
from respool.broker.steady_clock import SteadyClock
from respool.broker.views.views import Views, names_by_topic
from respool.broker.world import World
from respool.log.folder.data_folder import DataFolder, cluster_id_text
from respool.model.cluster import ClusterImage
from respool.model.ids import BrokerId
from respool.model.internal_topics import is_internal
from respool.model.settings import Settings

logger = logging.getLogger(__name__)


class Broker:
    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        self.clock = world.clock
        self.steady_clock = SteadyClock(world.clock)
        self.offload = world.offload
        self.id = BrokerId(settings.broker_id)
        self.memory = MemoryBudget(
            settings.network.memory_bytes_max, has_followers=world.peers is not None
        )
        self.catalog = Catalog(
            store=world.store, settings=settings, rng=world.rng, is_alone=world.peers is None
        )
        self.logins = Logins(settings=settings, catalog=self.catalog, world=world)
        self.producer_ids = ProducerIds(world.store, cluster_id=lambda: self.folder.cluster_id)
        # The link to the other brokers; None for a single broker.
        self.link = (
            None if world.peers is None else PeerLink(world.peers, client_id=f"broker-{self.id}")
        )
        self.local_read_bytes = world.metrics.counter(
            "respool_lent_bytes_total",
            "Bytes of records that readers on this host read from the log's files themselves.",
        )
        self.views = Views(
            settings=settings.fetch,
            scanner=world.scanner,
            offload=world.offload,
            metrics=world.metrics,
        )
        self.audit = AuditTrail(world.audit, world.clock)
        self.admin_log = AdminLog(self.audit)
        self.access = AccessControl(settings.access, audit=self.audit, metrics=world.metrics)
        self.quotas = Quotas(settings.access, clock=world.clock, metrics=world.metrics)
        self.catalog.on_image = self._on_image
        self.metrics = BrokerMetrics(settings, world.metrics)
        self.fetch_sessions = FetchSessions(
            sessions_max=settings.fetch.fetch_sessions_max, rng=world.rng
        )
        # One thread stays free for cold reads while all others sync.
        self.flusher = Flusher(
            world.offload,
            workers_max=max(1, settings.storage.io_threads - 1),
            on_failure=self.fail,
            stopwatch=world.clock.stopwatch_s,
            on_synced=self.metrics.sync_seconds.observe,
        )
        self.deferred_deletion = DeferredDeletion(disk=world.disk, offload=world.offload)
        self.deadlines = Deadlines()
        self.deleted_topics = DeletedTopics(world.clock)
        self.catalog.on_deleted = self.deleted_topics.on_deleted
        # How many partitions the start has to open; None when all are open.
        self._partitions_to_open: int | None = None
        self.member: ClusterMember | None = None
        # In start order, so that simulated runs are deterministic.
        self._background: dict[asyncio.Task[Any], None] = {}
        # Set when an invariant is broken; the node then stops the process.
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        if world.peers is not None:
            self.member = ClusterMember(
                me=self.id,
                settings=settings,
                store=world.store,
                peers=world.peers,
                clock=world.clock,
                rng=world.rng,
                offload=world.offload,
                catalog=self.catalog,
                rules=settings.controller,
                spawn=self.spawn,
            )

    def _on_image(self) -> None:
        self.access.on_image(self.catalog.image, self.catalog.broker_config())
        self.quotas.on_image(self.catalog.image)

    @property
    def image(self) -> ClusterImage:
        return self.catalog.image

    def may_act(self) -> bool:
        """True if the broker may lead: a single broker always, a cluster member while its lease is valid."""
        return self.member is None or self.member.may_act()

    @property
    def opening(self) -> tuple[int, int] | None:
        """While the start opens logs: how many partitions are open, and how many there are."""
        wanted = self._partitions_to_open
        return None if wanted is None else (len(self.partitions), wanted)

    async def start(self) -> None:
        """Open the data folder and all its partitions. A cluster member takes its roles only in `join_cluster`.

        Raises:
            StorageError: the data folder as a whole cannot be used.
            StoreUnavailable: the metadata store does not answer.
        """
        self.folder = await self._open_folder()
        self._create_components()
        self._subscribe()
        await self._load_metadata()
        topics = await self._open_partitions()
        if self.member is None:
            await self._take_roles(topics)
        for work in (self.hosted_replicas.keep_opening(), *self.housekeeping.loops()):
            self.spawn(work)

    async def _open_folder(self) -> DataFolder:
        new_cluster_id = cluster_id_text(self.world.rng.uuid())
        member, new_id = self.member, new_cluster_id
        cluster_id = None if member is None else await self.catalog.cluster_id(new_id)
        return await self.offload.run(
            lambda: DataFolder.open(
                disk=self.world.disk,
                broker_id=self.id,
                new_cluster_id=new_cluster_id,
                cluster_id=cluster_id,
                producer_expiration_ms=self.settings.storage.producer_id_expiration_ms,
                guard=self.offload.lock(),
                tail_bytes_max=self.settings.fetch.tail_bytes_max,
            )
        )

    def _create_components(self) -> None:
        replication = self._new_replication()
        self.partitions = Partitions(
            folder=self.folder,
            catalog=self.catalog,
            offload=self.offload,
            clock=self.clock,
            syncs=self.flusher,
            isr=replication.isr,
            may_act=self.may_act,
            is_clustered=self.member is not None,
            traffic_of=self.metrics.traffics.of,
            on_offline=replication.on_offline,
        )
        self.deliveries = Deliveries(
            settings=self.settings.delays,
            clock=self.clock,
            disk=self.world.disk,
            offload=self.offload,
            metrics=self.world.metrics,
            may_act=self.may_act,
            spawn=self.spawn,
        )
        self.partitions.on_opened = self.deliveries.on_opened
        self.partitions.on_closed = self.deliveries.on_closed
        self.layouts = Layouts(self.catalog, self.partitions, self.world, self.spawn)
        self.roles = replication.roles
        self.hosted_replicas = HostedReplicas(
            me=self.id,
            catalog=self.catalog,
            partitions=self.partitions,
            deferred_deletion=self.deferred_deletion,
            roles=self.roles,
        )
        self.topics = Topics(catalog=self.catalog, hosted_replicas=self.hosted_replicas)
        self.auto_created = AutoCreatedTopics(
            topics=self.topics,
            deleted=self.deleted_topics,
            catalog=self.catalog,
            partitions=self.partitions,
            hosted_replicas=self.hosted_replicas,
            roles=self.roles,
            is_clustered=self.member is not None,
            spawn=self.spawn,
        )
        self.broker_configs = BrokerConfigs(self.catalog)
        self.access_changes = AccessChanges(self.catalog, self.settings.access, self.access)
        self.login_changes = LoginChanges(self.catalog, self.offload)
        self.coordinators = self._new_coordinators()
        self.groups = self.coordinators.groups
        self.topic_readers = TopicReaders(self.groups, self.catalog, self.link)
        self.layouts.watch(self.topic_readers, self.topics, self.link)
        self.markers = self.coordinators.markers
        self.transactions = self.coordinators.transactions
        self.shares = Shares(self, persister=self.coordinators.share_states, spawn=self.spawn)
        self.metrics.wire(
            partitions=self.partitions,
            groups=self.groups,
            catalog=self.catalog,
            offload=self.offload,
            clock=self.clock,
            link=self.link,
        )
        self.metrics.add_group_series(
            partial(ShareSeries, shares=self.shares, catalog=self.catalog, clock=self.clock)
        )
        self.archive = new_archive(self)
        self.housekeeping: Housekeeping = self._new_housekeeping()

    def _subscribe(self) -> None:
        """Connect the components to each other's events; each needs the other, so no constructor can."""
        self.roles.on_changed = self._on_role
        self.hosted_replicas.on_topic = self.layouts.on_topic
        self.topics.on_changed = self.groups.on_topics_changed
        if self.member is None:
            # No client waits for it to be applied: a member of a cluster does the same with every change of a topic.
            self.catalog.on_changed = self.hosted_replicas.apply_defaults
        else:
            self.member.wire(
                partitions=self.partitions, hosted_replicas=self.hosted_replicas, roles=self.roles
            )
            self.member.on_topics_changed = self.groups.on_topics_changed
            self.member.on_leaders_changed = self.markers.on_leaders_changed
            self.member.on_acting_again = self.groups.on_acting_again

    def _on_role(self, partition: Partition) -> None:
        self.layouts.on_role(partition)
        self.coordinators.on_role(partition)
        self.deliveries.on_role(partition)
        self.shares.on_role(partition)

    async def _load_metadata(self) -> None:
        # Provisional: the port is known once the socket is bound.
        self._me = own_endpoint(self.settings)
        await self.catalog.load(cluster_id=self.folder.cluster_id, me=self._me)
        await self.logins.prepare()
        if self.member is None and not self.folder.was_clean:
            await self.catalog.bump_leader_epochs()

    async def _open_partitions(self) -> list[str]:
        """Open the logs of all hosted replicas; return their topics, in the order of the metadata."""
        wanted = list(self.hosted_replicas.wanted())
        self._partitions_to_open = len(wanted)
        await self.partitions.open_all(wanted)
        self._partitions_to_open = None
        await self.offload.run(lambda: self.folder.put_strays_aside(self.partitions.names()))
        self.deferred_deletion.delete_later(self.folder.folders_to_delete(), delay_ms=0)
        return list(dict.fromkeys(topic.name for topic, _ in wanted))

    async def _take_roles(self, topics: list[str]) -> None:
        # Coordinators last, since their first records go to other partitions that must be led by then.
        await self.hosted_replicas.take_roles(one for one in topics if not is_internal(one))
        await self.hosted_replicas.take_roles(one for one in topics if is_internal(one))

    def on_listening(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Set the addresses for clients, by listener: the advertised one, else the address that was bound."""
        self._me = own_endpoint(self.settings, addresses)
        self.catalog.on_listening(self._me)

    async def join_cluster(self) -> None:
        """Register in the cluster, once the address is known at which clients and peers reach this broker.

        Raises:
            NotAdmitted: the broker may not join.
        """
        assert self.member is not None
        # Not the address in the store, which is from an earlier run and may differ.
        await self.member.join(self._me, self.folder)
        await self.producer_ids.prepare()

    async def leave_leadership(self) -> None:
        """Before a stop: hand leadership over while this broker still serves."""
        if self.member is not None:
            await self.member.hand_over()

    async def leave_cluster(self) -> None:
        """After `stop`: record a clean shutdown and leave the cluster."""
        if self.member is not None:
            await self.member.leave()

    async def stop(self) -> None:
        """Sync and close everything, so that the next start need not scan logs. No request may arrive afterwards."""
        self.stop_coordinators()
        await self.deliveries.stop()
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.deadlines.stop()
        self.flusher.stop_timers()
        await self.flusher.drain()
        await self.deferred_deletion.stop()
        high_watermarks = self.partitions.high_watermarks()
        offline = [one.name for one in self.partitions if not one.is_online]
        logs = self.partitions.detach_all()
        # Each close waits for the disk a few times; together they take not much longer than one.
        closings = {name: partial(self.folder.close_log, name, log) for name, log in logs.items()}
        is_closed = await asyncio.gather(*(self.offload.run(one) for one in closings.values()))
        closed = {name for name, done in zip(closings, is_closed, strict=True) if done}
        # A broker that never registered leaves the data folder as the previous run did.
        run = None if self.member is None else self.member.run or self.folder.clean_run
        # A log that failed must be recovered at the next start: the stop was not clean.
        await self.offload.run(
            lambda: self.folder.close(
                logs,
                high_watermarks,
                closed=closed,
                is_clean=not offline and len(closed) == len(logs),
                run=run,
            )
        )

    def stop_coordinators(self) -> None:
        """Stop the coordinators; waiting clients get an error and look them up again."""
        self.coordinators.stop()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a background task that the broker owns. Its failure stops the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(self._on_background_done)
        return task

    def fail(self, error: BaseException) -> None:
        """Stop the broker, since an invariant is broken: serving on could spread the damage."""
        logger.critical("the broker stops: an invariant is broken", exc_info=error)
        self._end(error)

    def _end(self, why: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    def _on_background_done(self, task: "asyncio.Task[Any]") -> None:
        self._background.pop(task, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, NotAdmitted):
            # No invariant is broken. The broker must stop: an operator removed it, or started another one in its place.
            self._end(error)
        else:
            self.fail(error)

    def _new_replication(self) -> Replication:
        return Replication(
            me=self.id,
            catalog=self.catalog,
            store=self.world.store,
            folder=self.folder,
            syncs=self.flusher,
            offload=self.offload,
            clock=self.clock,
            lag_ms_max=self.settings.replication.replica_lag_max_ms,
            fetch_ahead_bytes=self.settings.replication.replica_fetch_ahead_bytes,
            member=self.member,
            link=self.link,
            local_reader=self.world.local_reader,
            may_act=self.may_act,
            spawn=self.spawn,
        )

    def _new_coordinators(self) -> Coordinators:
        return Coordinators(
            me=self.id,
            settings=self.settings,
            catalog=self.catalog,
            topics=self.topics,
            partitions=self.partitions,
            layouts=self.layouts,
            producer_ids=self.producer_ids,
            clock=self.clock,
            steady_clock=self.steady_clock,
            offload=self.offload,
            rng=self.world.rng,
            link=self.link,
            is_clustered=self.member is not None,
            sender_epoch=lambda: None if self.member is None else self.member.epoch,
            clean=lambda partition: self.housekeeping.clean(partition),  # noqa: PLW0108 created later
            spawn=self.spawn,
        )

    def _new_housekeeping(self) -> Housekeeping:
        return Housekeeping(
            partitions=self.partitions,
            folder=self.folder,
            deferred_deletion=self.deferred_deletion,
            offload=self.offload,
            clock=self.clock,
            settings=self.settings,
            deliveries=self.deliveries,
            archived_end=partial(archived_end_of, self.archive),
            delete_finished=self.shares.finished.delete,
            compactor=Compactor(
                partitions=self.partitions,
                deferred_deletion=self.deferred_deletion,
                offload=self.offload,
                clock=self.clock,
                rng=self.world.rng,
                scanner=self.world.scanner,
                memory_bytes_max=self.settings.storage.compaction_memory_bytes_max,
            ),
            tag_indexer=TagIndexer(
                partitions=self.partitions,
                disk=self.world.disk,
                offload=self.offload,
                rng=self.world.rng,
                scanner=self.world.scanner,
                view_names=lambda: names_by_topic(self.image),
                on_secret=self.views.use_secret,
            ),
        )
