"""The data folder: its identity, its partitions, and what its checkpoints guarantee.

```
meta.properties                      identity of the folder (folder_identity.py)
.kafka_cleanshutdown                 exists after a clean stop: the next start reads no log
recovery-point-offset-checkpoint     logs are durable below these offsets (folder_checkpoints.py)
log-start-offset-checkpoint          logs are deleted below these offsets
replication-offset-checkpoint        high watermarks
cleaner-offset-checkpoint            logs are compacted below these offsets
tag-index-secret                     of the hashes in tag indexes (tag_secret.py)
<topic>-<partition>/                 a log (partition_folder.py, partition_log.py)
```
Invariants at every moment, even if the power fails:

- The clean-shutdown marker exists only while every log is synced to its end and the recovery points say so. So it is
  durably removed before `open` returns, and written last by `close`.
- A recovery point is at or below the synced end. So it is durably lowered before a log is truncated: a log that ends
  before its recovery point counts as damaged, and after a crash new bytes below an old point would be trusted.
- A new log has no checkpoint until its folder is durable (folder_durability.py). So where there is a checkpoint and the
  folder is missing, it was lost.
- A checkpoint describes the log in the folder, never an earlier one of the same name. So its entry is durably removed
  before an earlier topic's folder is renamed, and before a removed partition's folder is deleted. A partition with a
  checkpoint but without a folder was therefore lost, and is not created again.

Every method may block on the disk: call them off the event loop. Several threads may call at once if `guard` is a lock;
it is released during recovery, so that many logs recover in parallel.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Self
from uuid import UUID

from respool.log.file_names import FOLDER_DELETED
from respool.log.folder.clean_marker import CleanMarker
from respool.log.folder.folder_checkpoints import FolderCheckpoints
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity
from respool.log.folder.partition_folders import ROOT, PartitionFolders
from respool.log.log_tail import TailMemory
from respool.log.partition_folder import STRAY, advice_on_loss, folder_name, uuid_to_text
from respool.log.partition_log import PartitionLog
from respool.model.errors import (
    DataFolderMismatch,
    DiskFull,
    HandlesExhausted,
    NothingTruncated,
    PartitionFolderMissing,
    StorageError,
)
from respool.model.ids import BrokerId, Offset, TopicId, TopicPartition
from respool.model.topic_config import DAY_MS, TopicConfig
from respool.ports.disk import Disk

logger = logging.getLogger(__name__)

RUN_NAME = "last-run"
ID_NAME = "folder-id"


class DataFolder:
    def __init__(
        self,
        *,
        disk: Disk,
        identity: FolderIdentity,
        is_new: bool,
        producer_expiration_ms: int,
        guard: AbstractContextManager[object],
        tail_bytes_max: int,
    ) -> None:
        """Use `open`."""
        self._disk = disk
        self._producer_expiration_ms = producer_expiration_ms
        self._guard = guard
        self._tails = TailMemory(tail_bytes_max)
        self._folders = PartitionFolders(disk)
        self._checkpoints = FolderCheckpoints(disk)
        # Partitions opened since the start; None for a log that could not be opened.
        self._opened: dict[TopicPartition, PartitionLog | None] = {}
        self._is_closed = False
        self.cluster_id = identity.cluster_id
        # True if the folder is new.
        self.is_new = is_new
        self._marker = CleanMarker(disk)
        # True if no log has changed since it was closed. A damaged checkpoint makes that doubtful.
        self.was_clean = self._marker.exists and not self._checkpoints.any_is_damaged
        # The last run that used the folder, for a broker in a cluster.
        self.last_run = _uuid_in(disk, RUN_NAME)
        # The folder's unique id, for a broker in a cluster; None until it is assigned.
        self.id = _uuid_in(disk, ID_NAME)
        # The run that stopped cleanly, for a broker in a cluster.
        self.clean_run = self._marker.run if self.was_clean else None

    @classmethod
    def open(
        cls,
        *,
        disk: Disk,
        broker_id: BrokerId,
        new_cluster_id: str,
        cluster_id: str | None = None,
        producer_expiration_ms: int = DAY_MS,
        guard: AbstractContextManager[object] | None = None,
        tail_bytes_max: int = 0,
    ) -> Self:
        """Open the folder, or initialize an empty one with `cluster_id` if given, else with `new_cluster_id`.

        Raises:
            DataFolderMismatch: the folder belongs to another broker or cluster, or has another layout.
        """
        is_new = not disk.exists(IDENTITY_NAME)
        folder = cls(
            disk=disk,
            is_new=is_new,
            identity=_identity(disk, broker_id, cluster_id, new_cluster_id),
            producer_expiration_ms=producer_expiration_ms,
            guard=guard or nullcontext(),
            tail_bytes_max=tail_bytes_max,
        )
        if folder._marker.exists:
            folder._marker.remove()
        return folder

    def open_partition(
        self,
        name: TopicPartition,
        *,
        topic_id: TopicId,
        config: TopicConfig,
        now_ms: int,
        is_replicated: bool = False,
    ) -> PartitionLog:
        """Open the partition's log, with recovery if needed, or create it if there never was one.

        A replicated log is committed up to `high_watermark`; a single replica is committed as a whole. A folder of
        another topic with the same name is renamed: neither read nor deleted.

        Raises:
            StorageError: this log cannot be opened. Others are not affected: the caller continues without this
                partition, and the next stop does not count as clean.
        """
        assert not self._is_closed
        points = self._checkpoints.recovery_points
        with self._guard:
            # When opened a second time, it is no longer as the last stop left it.
            untouched = name not in self._opened
            self._opened[name] = None
            has_folder = self._prepare(name, topic_id)
            clean = self.was_clean and untouched and name in points
        log = PartitionLog.open(
            disk=self._disk,
            folder=folder_name(name),
            config=config,
            now_ms=now_ms,
            log_start=self._checkpoints.log_starts.get(name),
            recovery_point=points.get(name),
            clean=clean,
            producer_expiration_ms=self._producer_expiration_ms,
            cleaned_end=self._checkpoints.cleaned_end(name),
            high_watermark=self.high_watermark(name) if is_replicated else None,
            is_replicated=is_replicated,
            create_folder=None if has_folder else partial(self._folders.make, name, topic_id),
            tails=self._tails,
        )
        # A log that lost its end is refused: once it grew again, it would be trusted up to the old point.
        assert log.synced_end >= points.get(name)
        self._opened[name] = log
        return log

    def high_watermark(self, name: TopicPartition) -> Offset:
        """The checkpointed high watermark. The log may have lost its end since: valid up to `log_end`."""
        return self._checkpoints.high_watermarks.get(name)

    def truncate_partition(self, name: TopicPartition, log: PartitionLog, offset: Offset) -> None:
        """Remove the batch that contains `offset` and everything after it. Durable when this returns.

        No append or sync of the log may run meanwhile. After a power cut the log has its old end, the new one, or one
        in between.

        Raises:
            NothingTruncated: the log is unchanged.
            StorageError: the log is inconsistent, and must be opened again before use.
        """
        with self._guard:
            with _truncating_nothing_if(DiskFull, HandlesExhausted):
                self._checkpoints.lower(name, log.end_after_truncation(offset))
            with self._closed_on_failure(name):
                log.truncate_to(offset)

    def restart_partition(self, name: TopicPartition, log: PartitionLog, offset: Offset) -> None:
        """Remove all data of the log and restart it at `offset`. Otherwise as `truncate_partition`."""
        with self._guard:
            with _truncating_nothing_if(DiskFull, HandlesExhausted):
                self._checkpoints.lower(name, min(offset, log.first_base_offset))
            # An old log that a power cut restores and that does not reach this offset is dropped at the next opening.
            # If the checkpoint may be written in spite of an error, the old log must not be used.
            with _truncating_nothing_if(DiskFull):
                self._checkpoints.log_starts.update({name: offset})
            with self._closed_on_failure(name):
                log.truncate_fully_and_start_at(offset)

    @contextmanager
    def _closed_on_failure(self, name: TopicPartition) -> Iterator[None]:
        """After a failed truncation, stop writing checkpoints of this log.

        Otherwise a running round of checkpoints would restore its old recovery point, and at the next opening the
        truncated part would count as lost.
        """
        try:
            yield
        except BaseException:
            self._opened[name] = None
            raise

    def note_run(self, run: UUID) -> None:
        """Store which run of a cluster's broker uses the folder."""
        self._disk.replace_file(RUN_NAME, run.hex.encode())

    def note_id(self, new: UUID) -> None:
        """Assign the folder's permanent id."""
        self._disk.replace_file(ID_NAME, new.hex.encode())
        self.id = new

    def partition_folders(self) -> list[TopicPartition]:
        """The partitions that have a folder, in use or not."""
        return self._folders.names()

    def remove_partition(self, name: TopicPartition, log: PartitionLog | None) -> str | None:
        """Rename the partition's folder; return its new path, to be deleted when its readers are done.

        Only `on_removed` makes this final: before it, a power cut may restore the folder, as a stray one.

        `log` is None if it could not be opened. Returns None if there is no folder.
        """
        with self._guard:
            removed = None if log is None else log.delete()
            path = removed.path if removed else self._folders.put_aside(name, FOLDER_DELETED)
            self._opened.pop(name, None)
            # Not written here: deleting a topic with a thousand partitions would write four thousand files.
            self._checkpoints.forget_soon([name])
        return path

    def on_removed(self, names: Collection[TopicPartition]) -> None:
        """Drop these partitions from the checkpoints, once for all of them, before the renamed folders are deleted.

        Until then the renamed folder distinguishes a removed partition from a lost one.
        """
        with self._guard:
            self._disk.sync_folder(ROOT)
            # A partition created again meanwhile has replaced its entry already.
            self._checkpoints.forget([name for name in names if name not in self._opened])

    def put_strays_aside(self, known: Collection[TopicPartition]) -> list[str]:
        """Rename the folders of all partitions that are not `known`: the cluster does not assign those to this broker.

        They are not deleted: a metadata store restored from an old backup would look the same.
        """
        paths = []
        with self._guard:
            strays = [name for name in self._folders.names() if name not in known]
            # First, and also without a folder: a later topic with that name has lost nothing.
            self._checkpoints.forget(self._checkpoints.names() - set(known))
            for name in strays:
                path = self._folders.put_aside(name, STRAY)
                assert path is not None
                paths.append(path)
                self._opened.pop(name, None)
                logger.warning("%s is not a partition here; its folder is now %s", name, path)
        return paths

    def folders_to_delete(self) -> list[str]:
        """Renamed folders of removed partitions that are not deleted yet."""
        return self._folders.with_suffix(FOLDER_DELETED)

    def write_checkpoints(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> None:
        """Write the synced end, start and high watermark of these logs.

        Nothing is synced here. Other partitions keep their entries. The mappings must not change meanwhile.
        """
        with self._guard:
            self._checkpoints.write(self._current(logs), high_watermarks)

    def close_log(self, name: TopicPartition, log: PartitionLog) -> bool:
        """Close one log; return whether all of it is synced. Several may be closed at the same time, before `close`."""
        return _close(name, log)

    def close(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        high_watermarks: Mapping[TopicPartition, Offset],
        *,
        closed: Collection[TopicPartition] = (),
        is_clean: bool = True,
        run: UUID | None = None,
    ) -> bool:
        """Close the logs and mark the folder as cleanly stopped; return whether it is.

        `closed` names the logs that `close_log` has closed successfully. It is not clean if `is_clean` is False, if a
        log does not close, or if an opened one is not in `logs`: its end may not be durable.
        """
        with self._guard:
            assert not self._is_closed
            self._is_closed = True
            # The order makes the marker true: logs, then checkpoints, then marker.
            closed = {name for name, log in logs.items() if name in closed or _close(name, log)}
            self._checkpoints.write(self._current(logs), high_watermarks)
            if not is_clean or not self._are_all_clean(closed):
                return False
            self._marker.write(run)
            return True

    def _prepare(self, name: TopicPartition, topic_id: TopicId) -> bool:
        """Return whether the partition has a folder of this topic. If not, one may be created.

        In both cases the checkpoints describe this topic afterwards.
        """
        found = self._folders.topic_id(name)
        if found == topic_id:
            if not self._lacks_first_segment(name):
                return True
            found = None
        if self._checkpoints.may_contain(name) and (
            found is not None or self._folders.is_being_deleted(name)
        ):
            # They describe an earlier topic. Remove them before its folder is renamed, or that would look like a loss.
            self._checkpoints.forget([name])
        if found is not None:
            path = self._folders.put_aside(name, STRAY)
            logger.warning("%s was of an earlier topic %s; it is now %s", name, found, path)
        recorded = self._checkpoints.recorded_end(name)
        # Everything below the log start was deleted, or its loss accepted (accepted_loss.py): it continues there.
        if recorded > self._checkpoints.log_starts.get(name):
            raise PartitionFolderMissing(_missing(self._disk, name, recorded))
        path = self._folders.remove_unsynced(name)
        if path is not None:
            logger.warning(
                "%s: records that were never synced lost their metadata, or records before them; they are in %s",
                name,
                path,
            )
        return False

    def _lacks_first_segment(self, name: TopicPartition) -> bool:
        """True if nothing of the log was ever durable, and its first records are missing."""
        log_start = self._checkpoints.log_starts.get(name)
        if self.was_clean or self._checkpoints.recorded_end(name) > log_start:
            return False
        return self._folders.lacks_first_segment(name, log_start)

    def _current(
        self, logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, PartitionLog]:
        """Without partitions that were removed or created again after the caller collected the logs, and without those
        whose folder is not durable.
        """
        return {
            name: log
            for name, log in logs.items()
            if self._opened.get(name) is log and log.is_folder_durable
        }

    def _are_all_clean(self, closed: set[TopicPartition]) -> bool:
        untouched = set(self._folders.names()) - self._opened.keys()
        return self._opened.keys() <= closed and (self.was_clean or not untouched)


@contextmanager
def _truncating_nothing_if(*passing: type[StorageError]) -> Iterator[None]:
    """For checkpoint writes before a truncation."""
    try:
        yield
    except passing as error:
        raise NothingTruncated(str(error)) from error


def _uuid_in(disk: Disk, name: str) -> UUID | None:
    try:
        return UUID(hex=(disk.read_file(name) or b"").decode())
    except ValueError:
        return None


def cluster_id_text(uuid: UUID) -> str:
    """A new cluster id in Kafka's format."""
    return uuid_to_text(uuid)


def _identity(
    disk: Disk, broker_id: BrokerId, cluster_id: str | None, new_cluster_id: str
) -> FolderIdentity:
    data = disk.read_file(IDENTITY_NAME)
    if data is not None:
        identity = FolderIdentity.decode(data)
        identity.check(cluster_id=cluster_id, broker_id=broker_id)
        return identity
    # It is written first, so a folder with logs but without it is not ours.
    if PartitionFolders(disk).names():
        raise DataFolderMismatch(
            f"the data folder holds partitions but no {IDENTITY_NAME}: put that file back, or use another folder"
        )
    identity = FolderIdentity(cluster_id=cluster_id or new_cluster_id, broker_id=broker_id)
    disk.replace_file(IDENTITY_NAME, identity.encode())
    return identity


def _missing(disk: Disk, name: TopicPartition, recorded: Offset) -> str:
    folder = folder_name(name)
    what = "is empty" if disk.exists(folder) else "is missing"
    return (
        f"the folder {folder} {what}, but the log in it reached offset {recorded}; "
        f"{advice_on_loss(folder)}"
    )


def _close(name: TopicPartition, log: PartitionLog) -> bool:
    """Close the log; say whether all of it is synced."""
    try:
        log.close()
    except StorageError as error:
        logger.warning("%s did not close, and is recovered at the next start: %s", name, error)
        return False
    return log.synced_end == log.log_end
