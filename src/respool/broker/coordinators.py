"""The coordinators of this broker, wired: groups, transactions, and who writes the ends of transactions."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from respool.broker.catalog import Catalog
from respool.broker.groups import Groups
from respool.broker.marker_writer import MarkerWriter
from respool.broker.partition import Partition
from respool.broker.partitions import Partitions
from respool.broker.peer_link import PeerLink
from respool.broker.producer_ids import ProducerIds
from respool.broker.remote_coordinators import RemoteCoordinators
from respool.broker.remote_markers import RemoteMarkers
from respool.broker.room_settings import settings_for
from respool.broker.shards import Shards, ShardsOwner
from respool.broker.steady_clock import SteadyClock
from respool.broker.topics import Topics
from respool.broker.transactions import Transactions
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.group_settings import GroupSettings
from respool.coordination.transactions.transaction_coordinator_shard import (
    TransactionCoordinatorShard,
)
from respool.coordination.transactions.transaction_settings import TransactionSettings
from respool.model.ids import BrokerId
from respool.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
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
        producer_ids: ProducerIds,
        clock: Clock,
        steady_clock: SteadyClock,
        offload: Offload,
        rng: RandomSource,
        link: PeerLink | None,
        is_clustered: bool,
        spawn: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        """`link` leads to those on other brokers; None for a broker that is alone."""
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._steady_clock = steady_clock
        self._offload = offload
        self._spawn = spawn
        self._is_clustered = is_clustered
        group_settings = settings_for(GroupSettings, settings)
        transaction_settings = settings_for(TransactionSettings, settings)
        self.groups = Groups(
            new_shards=partial(
                self._new_shards, CONSUMER_OFFSETS, settings.offsets_topic_partitions
            ),
            catalog=catalog,
            clock=steady_clock,
            new_group_machine=lambda: GroupCoordinatorShard(group_settings, rng=rng),
        )
        self.markers = MarkerWriter(
            partitions=partitions,
            offsets=self.groups.shards,
            clock=clock,
            remote=None
            if link is None
            else RemoteMarkers(link, me=me, image=lambda: catalog.image, spawn=spawn),
        )
        self.transactions = Transactions(
            new_shards=partial(
                self._new_shards, TRANSACTION_STATE, settings.transactions_topic_partitions
            ),
            markers=self.markers,
            producer_ids=producer_ids,
            new_transaction_machine=lambda: TransactionCoordinatorShard(transaction_settings),
            me=me,
            remote=None if link is None else RemoteCoordinators(link, spawn=spawn),
        )

    def on_role(self, partition: Partition) -> None:
        """The partition has begun to be led here, or is led here no more."""
        for shards in (self.groups.shards, self.transactions.shards):
            if partition.name.topic == shards.topic:
                shards.on_role(partition)

    def stop(self) -> None:
        """Whoever waits for one looks for it anew."""
        self.transactions.stop()
        self.groups.shards.stop()

    def _new_shards(self, topic: str, partition_count: int, owner: ShardsOwner) -> Shards:
        return Shards(
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
