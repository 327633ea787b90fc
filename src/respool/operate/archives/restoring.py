"""Creates the data folder of a single broker from an archive: topics with their ids, settings, views and records.

Nothing is downloaded: the records stay in the archive, and are read from there. Each partition's local log begins where
the archive ends, with the epochs and producers of that offset. Only what is below the last stable offset was archived,
so no transaction is open.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from respool.archive.manifest import Manifest
from respool.archive.object_keys import owner_key
from respool.broker.archive.ownership import newest_owner, owner_content
from respool.cluster import keys
from respool.cluster.keys import TopicRecord, ViewRecord
from respool.drivers.local_disk import LocalDisk
from respool.drivers.local_files import DATA_FOLDER_MODE
from respool.drivers.sqlite_store import SqliteStore
from respool.log.file_names import EPOCHS_NAME, LOG, SNAPSHOT, offset_name
from respool.log.folder.data_folder import DataFolder, cluster_id_text
from respool.log.folder.folder_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    OffsetCheckpoint,
)
from respool.log.leader_epochs import EpochCache
from respool.log.partition_folder import METADATA_NAME, encode_metadata, folder_name
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.stored_topic_config import StoredTopicConfig
from respool.model.topic_config import TopicConfig
from respool.model.view_config import WHERE
from respool.node.node import METADATA_FILE
from respool.operate.archives.archived_segments import read_trailer
from respool.operate.archives.bucket_contents import StoredTopic, read_contents
from respool.ports.clock import Clock
from respool.ports.disk import Disk
from respool.ports.metadata_store import MetadataStore
from respool.ports.object_store import Creation, ObjectStore
from respool.ports.random_source import RandomSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    name: TopicPartition
    log_start: Offset
    end: Offset
    epochs: EpochCache
    producers: bytes
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    stored: StoredTopic
    partitions: Sequence[RestoredPartition]


async def restore(
    store: ObjectStore,
    data: Path,
    *,
    broker_id: BrokerId,
    take_over: bool,
    clock: Clock,
    rng: RandomSource,
) -> list[RestoredTopic]:
    """Create a data folder from the archive, and make its new cluster the archive's owner.

    Raises:
        UsageError: the folder is not empty, or the archive has an owner and `take_over` is missing.
        OperatorError: the archive is damaged. Nothing was written.
        ArchiveUnavailable: the store does not answer.
    """
    if os.path.isdir(data) and os.listdir(data):  # noqa: ASYNC240
        raise UsageError(f"{data} is not empty: restore needs an empty data folder")
    owner, number = await newest_owner(store)
    if owner is not None and not take_over:
        raise UsageError(
            f"{store.address} is the archive of cluster {owner}",
            hint="if that cluster is gone for ever, add --take-over; its brokers then archive no more",
        )
    topics = [await _plan(store, one) for one in await read_contents(store)]
    if not topics:
        raise OperatorError(f"{store.address} has no topics")
    os.makedirs(data, mode=DATA_FOLDER_MODE, exist_ok=True)
    disk = LocalDisk(str(data))
    cluster_id = cluster_id_text(rng.uuid())
    claim = owner_content(cluster_id, broker=broker_id, at_ms=clock.now_ms())
    created = await store.create(owner_key(number + 1), claim)
    if created is not Creation.CREATED and (await newest_owner(store))[0] != cluster_id:
        raise OperatorError(f"{store.address}: another cluster became the owner meanwhile")
    DataFolder.open(disk=disk, broker_id=broker_id, new_cluster_id=cluster_id)
    for topic in topics:
        for partition in topic.partitions:
            _write_partition(disk, partition, topic.stored.keys.topic_id)
    _write_checkpoints(disk, [one for topic in topics for one in topic.partitions])
    # Written last: without it, brokers refuse the folder.
    metadata = SqliteStore(os.path.join(data, METADATA_FILE), clock=clock)
    try:
        await _write_metadata(metadata, topics, broker_id, rng)
    finally:
        await metadata.close()
    return topics


async def _plan(store: ObjectStore, topic: StoredTopic) -> RestoredTopic:
    name = topic.keys.topic
    if topic.description is None:
        raise OperatorError(
            f"{store.address}: nothing describes topic {name!r}; nothing was restored"
        )
    if problems := [one.problem for one in topic.partitions if one.problem]:
        raise OperatorError(f"{name}: {problems[0]}; nothing was restored")
    StoredTopicConfig.read(topic.description.config, base=TopicConfig())
    manifests = {one.partition: one.manifest for one in topic.partitions}
    partitions = [
        await _plan_partition(store, TopicPartition(name, number), manifests.get(number))
        for number in range(topic.description.partitions)
    ]
    return RestoredTopic(stored=topic, partitions=partitions)


async def _plan_partition(
    store: ObjectStore, name: TopicPartition, manifest: Manifest | None
) -> RestoredPartition:
    epochs, producers = EpochCache(), b""
    if manifest is None or manifest.archived_end is None:
        return RestoredPartition(
            name=name,
            log_start=Offset(0),
            end=Offset(0),
            epochs=epochs,
            producers=producers,
            leader_epoch=LeaderEpoch(0),
        )
    if manifest.segments:
        last = manifest.segments[-1]
        trailer = await read_trailer(store, last)
        is_whole = trailer.next == last.next
        for one in trailer.epochs:
            if one.start_offset < manifest.archived_end:
                epochs.assign(one.epoch, one.start_offset)
        producers = trailer.producers if is_whole else b""
    return RestoredPartition(
        name=name,
        log_start=manifest.first_offset or Offset(0),
        end=manifest.archived_end,
        epochs=epochs,
        producers=producers,
        leader_epoch=LeaderEpoch(max(manifest.leader_epoch, epochs.latest) + 1),
    )


def _write_partition(disk: Disk, partition: RestoredPartition, topic_id: TopicId) -> None:
    if not partition.end:
        # A new log is made with its first record.
        return
    folder = folder_name(partition.name)
    disk.make_folder(folder)
    disk.open_log(f"{folder}/{offset_name(partition.end, LOG)}").close()
    disk.replace_file(f"{folder}/{METADATA_NAME}", encode_metadata(topic_id))
    disk.replace_file(f"{folder}/{EPOCHS_NAME}", partition.epochs.encode())
    if partition.producers:
        disk.replace_file(f"{folder}/{offset_name(partition.end, SNAPSHOT)}", partition.producers)
    disk.sync_folder(folder)
    disk.sync_folder("")


def _write_checkpoints(disk: Disk, partitions: Sequence[RestoredPartition]) -> None:
    written = [one for one in partitions if one.end]
    ends = {one.name: one.end for one in written}
    OffsetCheckpoint(disk, RECOVERY_POINT).write(ends)
    OffsetCheckpoint(disk, HIGH_WATERMARK).write(ends)
    OffsetCheckpoint(disk, LOG_START).write({one.name: one.log_start for one in written})


async def _write_metadata(
    store: MetadataStore, topics: Sequence[RestoredTopic], broker_id: BrokerId, rng: RandomSource
) -> None:
    for topic in topics:
        puts: dict[str, bytes] = {}
        stored, description = topic.stored, topic.stored.description
        assert description is not None
        topic_id = stored.keys.topic_id
        for number, partition in enumerate(topic.partitions):
            image = PartitionImage(
                replicas=(broker_id,),
                isr=(broker_id,),
                leader=broker_id,
                leader_epoch=partition.leader_epoch,
            )
            puts[keys.partition_key(topic_id, number)] = keys.encode_partition(image)
        record = TopicRecord(
            id=topic_id,
            overrides=description.config,
            partition_count=len(topic.partitions),
        )
        puts[keys.topic_key(stored.keys.topic)] = keys.encode_topic(record)
        for name, settings in description.views.items():
            puts[keys.topic_key(name)] = _view(settings, topic_id, rng.uuid())
        await store.transact(puts=puts)


def _view(settings: Mapping[str, str], parent: TopicId, view_id: UUID) -> bytes:
    record = TopicRecord(
        id=TopicId(view_id),
        overrides={name: value for name, value in settings.items() if name != WHERE},
        partition_count=0,
        view=ViewRecord(parent_id=parent, where=settings.get(WHERE, "")),
    )
    return keys.encode_topic(record)
