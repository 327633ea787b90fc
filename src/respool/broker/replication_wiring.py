"""Replication and its wiring: roles, replica fetchers, ISR writer and offline replicas.

A single broker has the same roles: it leads all its partitions, and has no followers.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from respool.broker.membership.cluster_member import ClusterMember
from respool.broker.membership.offline_replicas import OfflineReplicas
from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.sync_requests import SyncRequests
from respool.broker.peer_link import PeerLink
from respool.broker.replication.follower_local_reads import FollowerLocalReads
from respool.broker.replication.follower_log import FollowerLog
from respool.broker.replication.isr_writer import IsrWriter
from respool.broker.replication.replica_fetchers import ReplicaFetchers
from respool.broker.replication.roles import Roles
from respool.log.folder.data_folder import DataFolder
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.ports.clock import Clock
from respool.ports.local_reader import LocalReader
from respool.ports.metadata_store import MetadataStore
from respool.ports.offload import Offload

# The limit of a peer's reply; see `TcpPeers`.
LOCAL_READ_BYTES_MAX = 128 * 1024 * 1024


class Replication:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        store: MetadataStore,
        folder: DataFolder,
        syncs: SyncRequests[Partition],
        offload: Offload,
        clock: Clock,
        lag_ms_max: int,
        fetch_ahead_bytes: int,
        member: ClusterMember | None,
        link: PeerLink | None,
        local_reader: LocalReader | None,
        may_act: Callable[[], bool],
        spawn: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        """`member` and `link` are None for a single broker."""
        self._offline_replicas: OfflineReplicas | None = None
        following: ReplicaFetchers | None = None
        if member is not None and link is not None:
            self._offline_replicas = OfflineReplicas(
                me=me, catalog=catalog, registration=lambda: member.registration, spawn=spawn
            )
            following = ReplicaFetchers(
                me=me,
                link=link,
                work=FollowerLog(folder=folder, syncs=syncs, offload=offload, clock=clock),
                throttle=member.throttle,
                clock=clock,
                local_reads=partial(
                    FollowerLocalReads, local_reader, clock=clock, bytes_max=LOCAL_READ_BYTES_MAX
                ),
                fetch_ahead_bytes=fetch_ahead_bytes,
                broker_epoch=lambda: member.epoch,
                spawn=spawn,
            )
        self.isr = IsrWriter(
            catalog=catalog,
            store=store,
            may_act=may_act,
            on_newer_image=self._on_newer_image,
            spawn=spawn,
        )
        self.roles = Roles(
            me=me,
            catalog=catalog,
            offload=offload,
            clock=clock,
            lag_ms_max=lag_ms_max,
            spawn=spawn,
            following=following,
            on_sound=self._clear_offline,
        )

    def on_offline(self, partition: Partition) -> None:
        """Report the offline replica, so that another broker may lead the partition."""
        if self._offline_replicas is not None:
            self._offline_replicas.report(partition)

    def _clear_offline(self, partition: Partition) -> None:
        if self._offline_replicas is not None:
            self._offline_replicas.clear(partition)

    def _on_newer_image(self, partition: Partition, image: PartitionImage) -> None:
        self.roles.end_stale_role(partition, image)
