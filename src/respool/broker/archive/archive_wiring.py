"""Creates a broker's archive, if it has one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from respool.broker.archive.archive import Archive
from respool.broker.deliveries.deliveries import Deliveries
from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.world import World
from respool.log.folder.data_folder import DataFolder
from respool.model.delays.kept_records import OFFSET_MAX
from respool.model.ids import BrokerId, Offset
from respool.model.settings import Settings


class ArchivingBroker(Protocol):
    """The broker, as the archive needs it."""

    world: World
    settings: Settings
    folder: DataFolder
    catalog: Catalog
    partitions: Partitions
    deliveries: Deliveries

    def may_act(self) -> bool: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]": ...


def new_archive(broker: ArchivingBroker) -> Archive | None:
    world, settings, catalog = broker.world, broker.settings, broker.catalog
    if world.objects is None:
        return None

    def deletable_to(partition: Partition) -> Offset:
        has_delays = partition.config.respool_delay
        return broker.deliveries.deletable_to(partition) if has_delays else OFFSET_MAX

    archive = Archive(
        me=BrokerId(settings.broker_id),
        cluster_id=broker.folder.cluster_id,
        store=world.objects,
        settings=settings.archive,
        partitions=broker.partitions,
        image=lambda: catalog.image,
        clock=world.clock,
        rng=world.rng,
        offload=world.offload,
        metrics=world.metrics,
        may_act=broker.may_act,
        deletable_to=deletable_to,
        spawn=broker.spawn,
    )
    broker.spawn(archive.run())
    return archive


def archived_end_of(archive: Archive | None, partition: Partition) -> Offset:
    """The offset below which a partition is certainly archived."""
    return Offset(0) if archive is None else archive.archived_end(partition)
