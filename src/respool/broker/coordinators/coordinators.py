"""The coordinators of this broker and their wiring: groups, transactions, share partitions and the marker writer."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.coordinators.marker_writer import MarkerWriter
from respool.broker.coordinators.producer_id_blocks import ProducerIds
from respool.broker.coordinators.remote_coordinators import RemoteCoordinators
from respool.broker.coordinators.remote_markers import RemoteMarkers
from respool.broker.coordinators.runtimes import CoordinatorRuntimes, CoordinatorRuntimesOwner
from respool.broker.coordinators.share_coordinators import ShareCoordinators
from respool.broker.coordinators.share_states import ShareStates
from respool.broker.coordinators.transaction_coordinators import TransactionCoordinators
from respool.broker.layouts.layouts import Layouts
from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.topics import Topics
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.peer_link import PeerLink
from respool.broker.steady_clock import SteadyClock
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.share_states.share_coordinator_shard import ShareCoordinatorShard
from respool.coordination.transactions.transaction_coordinator_shard import (
    TransactionCoordinatorShard,
)
from respool.model.ids import BrokerId
from respool.model.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from respool.model.settings import Settings
from respool.ports.clock import Clock
from respool.ports.offload import Offload
from respool.ports.random_source import RandomSource


class Coordinators:
    def __init__(
        self,
        *,
        me: BrokerId,
        settings: Settings,
        catalog: Catalog,
        topics: Topics,
        partitions: Partitions,
        layouts: Layouts,
        producer_ids: ProducerIds,
        clock: Clock,
        steady_clock: SteadyClock,
        offload: Offload,
        rng: RandomSource,
        link: PeerLink | None,
        is_clustered: bool,
        sender_epoch: Callable[[], int | None],
        clean: Callable[[Partition], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        """`link` connects to coordinators on other brokers; None for a single broker.

        `sender_epoch` is this broker's epoch in the cluster; `clean` deletes segments below a partition's log start.
        """
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._steady_clock = steady_clock
        self._offload = offload
        self._spawn = spawn
        self._is_clustered = is_clustered
        self.shares = ShareCoordinators(
            new_runtimes=partial(
                self._new_runtimes,
                SHARE_GROUP_STATE,
                settings.share_states.share_coordinator_state_topic_partitions,
            ),
            new_machine=lambda: ShareCoordinatorShard(settings.share_states),
            clean=clean,
        )
        self.share_states = ShareStates(
            self.shares,
            me=me,
            link=link,
            sender_epoch=sender_epoch,
            timeout_ms=settings.share_states.share_coordinator_write_timeout_ms,
            spawn=spawn,
        )
        self.groups = Groups(
            new_runtimes=partial(
                self._new_runtimes, CONSUMER_OFFSETS, settings.topics.offsets_topic_partitions
            ),
            catalog=catalog,
            clock=steady_clock,
            new_group_machine=lambda: GroupCoordinatorShard(
                settings.groups,
                rng=rng,
                # The image is replaced with every change.
                config_of=lambda group_id: catalog.image.group_configs.get(group_id),  # noqa: PLW0108
                shares=settings.shares,
            ),
            share_states=self.share_states,
            spawn=spawn,
        )
        self.markers = MarkerWriter(
            partitions=partitions,
            offsets=self.groups.runtimes,
            clock=clock,
            layouts=layouts,
            remote=None
            if link is None
            else RemoteMarkers(link, me=me, image=lambda: catalog.image, spawn=spawn),
        )
        self.transactions = TransactionCoordinators(
            new_runtimes=partial(
                self._new_runtimes, TRANSACTION_STATE, settings.topics.transactions_topic_partitions
            ),
            markers=self.markers,
            producer_ids=producer_ids,
            new_transaction_machine=lambda: TransactionCoordinatorShard(settings.transactions),
            me=me,
            remote=None if link is None else RemoteCoordinators(link, spawn=spawn),
        )

    def on_role(self, partition: Partition) -> None:
        """This broker has become the partition's leader, or has ceased to be."""
        for runtimes in (
            self.groups.runtimes,
            self.transactions.runtimes,
            self.shares.runtimes,
        ):
            if partition.name.topic == runtimes.topic:
                runtimes.on_role(partition)

    def stop(self) -> None:
        """Stop the coordinators; waiting clients get an error and look them up again."""
        self.transactions.stop()
        self.groups.runtimes.stop()
        self.shares.runtimes.stop()

    def _new_runtimes(
        self, topic: str, partition_count: int, owner: CoordinatorRuntimesOwner
    ) -> CoordinatorRuntimes:
        return CoordinatorRuntimes(
            owner=owner,
            topic=topic,
            partition_count=partition_count,
            catalog=self._catalog,
            topics=self._topics,
            partitions=self._partitions,
            clock=self._steady_clock,
            offload=self._offload,
            spawn=self._spawn,
            is_clustered=self._is_clustered,
        )
