"""The data folder as a whole: whose it is, which partitions lie in it, and how far each may be believed.

```
meta.properties                      whose folder this is (folder_identity.py)
.kafka_cleanshutdown                 there: the last stop was clean, logs need not be read at the start
recovery-point-offset-checkpoint     below these offsets the logs are synced (checkpoint.py)
log-start-offset-checkpoint          below these offsets the logs are deleted
replication-offset-checkpoint        high watermarks
cleaner-offset-checkpoint            below these offsets the logs are compacted
<topic>-<partition>/                 a log (partition_folder.py, partition_log.py)
```
What must stay true at every moment the power may go:

- The marker exists only while every log is synced to its end and the recovery points say so. So it is removed, durably,
  before `open` returns, and written last by `close`.
- A recovery point lies at or below what is synced. So it is lowered, durably, before a log is cut back: a log that ends
  before it is taken for damaged, and a crash would trust new bytes below an old point.
- A checkpoint speaks of the log that lies in the folder, never of an earlier one under the same name. So what it says
  is forgotten, durably, before the folder of an earlier topic is put aside, and before that of a removed partition is
  deleted. Then a partition that the checkpoints know and that has no folder was lost, and is not made anew.

Every method may block on the disk: call it off the event loop. Calls may come from several threads at once when `guard`
is a lock; it is not held while a log is recovered, so that many can be at the same time.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Self
from uuid import UUID

from respool.log.file_names import FOLDER_DELETED
from respool.log.folder.folder_checkpoints import FolderCheckpoints
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity
from respool.log.folder.partition_folders import ROOT, PartitionFolders
from respool.log.log_tail import TailMemory
from respool.log.partition_folder import STRAY, folder_name, uuid_to_text, what_to_do_about_loss
from respool.log.partition_log import PartitionLog
from respool.model.errors import (
    DataFolderMismatch,
    DiskFull,
    HandlesExhausted,
    NothingCut,
    PartitionFolderMissing,
    StorageError,
)
from respool.model.ids import BrokerId, Offset, TopicId, TopicPartition
from respool.model.topic_config import DAY_MS, TopicConfig
from respool.ports.disk import Disk

logger = logging.getLogger(__name__)

CLEAN_MARKER = ".kafka_cleanshutdown"
# Kafka reads a broker epoch from it; -1 is its word for none.
_CLEAN_MARKER_VERSION = "0"
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
        # Partitions that may have changed since the start; None for a log that could not be opened.
        self._opened: dict[TopicPartition, PartitionLog | None] = {}
        self._is_closed = False
        self.cluster_id = identity.cluster_id
        # Nobody has used it before.
        self.is_new = is_new
        # No log has changed since it was closed. What damaged a checkpoint may have damaged more.
        self.was_clean = disk.exists(CLEAN_MARKER) and not self._checkpoints.any_is_damaged
        # Which run used the folder last, of a broker in a cluster.
        self.last_run = _uuid_in(disk, RUN_NAME)
        # What tells it from all other folders, of a broker in a cluster; None until it is given one.
        self.id = _uuid_in(disk, ID_NAME)
        # Which run of the broker it was that stopped cleanly, where it was one of a cluster.
        self.clean_run = _clean_run(disk) if self.was_clean else None

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
        """Take the folder over, or make an empty one ours: under `cluster_id` if given, else `new_cluster_id`.

        Raises:
            DataFolderMismatch: the folder belongs to another broker or cluster, or is laid out differently.
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
        folder._start()
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
        """Open the partition's log, recovered as far as it needs to be, or a new one if there never was one.

        One that is replicated is committed up to `high_watermark` and not beyond; alone, all that is here is.

        A folder of that name that belongs to another topic is put aside: not read, not deleted.

        Raises:
            StorageError: this log cannot be had. It concerns no other: the caller goes on without this partition, and
                the next stop will not count as clean.
        """
        assert not self._is_closed
        points = self._checkpoints.recovery_points
        with self._guard:
            # Opened a second time it is no longer as the last stop left it.
            untouched = name not in self._opened
            self._opened[name] = None
            has_folder = self._prepare(name, topic_id)
            clean = self.was_clean and untouched and name in points
        if not has_folder:
            # Nobody else has to do with this folder; and what is made for many at once can be made durable at once.
            self._folders.make(name, topic_id)
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
            tails=self._tails,
        )
        # A log that lost its end is refused: grown again, it would be believed up to the old point.
        assert log.synced_end >= points.get(name)
        self._opened[name] = log
        return log

    def high_watermark(self, name: TopicPartition) -> Offset:
        """The high watermark as last written down. The log may have lost its end since: trust it up to `log_end`."""
        return self._checkpoints.high_watermarks.get(name)

    def truncate_partition(self, name: TopicPartition, log: PartitionLog, offset: Offset) -> None:
        """Cut off the batch that holds `offset` and all after it; on the disk when this returns.

        Nobody appends to the log meanwhile, and no sync of it runs. A power cut leaves it with its old end, with the
        new one, or with one between them.

        Raises:
            NothingCut: the log is as it was.
            StorageError: the log is in between, and not to be used before it is opened again.
        """
        with self._guard:
            with _cutting_nothing_if(DiskFull, HandlesExhausted):
                self._checkpoints.lower(name, log.end_after_cut(offset))
            with self._telling_if_half_cut(name):
                log.truncate_to(offset)

    def start_partition_anew(self, name: TopicPartition, log: PartitionLog, offset: Offset) -> None:
        """Drop all that the log holds and let it go on at `offset`. All else is as with `truncate_partition`."""
        with self._guard:
            with _cutting_nothing_if(DiskFull, HandlesExhausted):
                self._checkpoints.lower(name, min(offset, log.first_base_offset))
            # An old log that a power cut leaves, and that does not reach this, is dropped at the next opening. Where
            # this may be in the file in spite of an error, the old one must not go on.
            with _cutting_nothing_if(DiskFull):
                self._checkpoints.log_starts.update({name: offset})
            with self._telling_if_half_cut(name):
                log.truncate_fully_and_start_at(offset)

    @contextmanager
    def _telling_if_half_cut(self, name: TopicPartition) -> Iterator[None]:
        """What a log that may be half cut says of itself is not written down any more.

        Else a round of checkpoints that is under way would write its old recovery point back, and whoever opens it
        again would take what was cut off for lost.
        """
        try:
            yield
        except BaseException:
            self._opened[name] = None
            raise

    def note_run(self, run: UUID) -> None:
        """Write down which run of a cluster's broker uses the folder now."""
        self._disk.replace_file(RUN_NAME, run.hex.encode())

    def note_id(self, new: UUID) -> None:
        """Give the folder an id, for good."""
        self._disk.replace_file(ID_NAME, new.hex.encode())
        self.id = new

    def partition_folders(self) -> list[TopicPartition]:
        """The partitions that have a folder here, in use or not."""
        return self._folders.names()

    def remove_partition(self, name: TopicPartition, log: PartitionLog | None) -> str | None:
        """Put the partition's folder out of use; return its path, to be deleted when its readers are done.

        For sure only after `on_removed`: a power cut before it may bring the folder back, as one that nobody knows.

        `log` is None when it could not be opened. Returns None when there is no folder.
        """
        with self._guard:
            aside = None if log is None else log.delete().path
            path = aside or self._folders.put_aside(name, FOLDER_DELETED)
            self._opened.pop(name, None)
            # Not written here: deleting a topic of a thousand partitions would write four thousand files.
            self._checkpoints.forget_soon([name])
        return path

    def on_removed(self, names: Collection[TopicPartition]) -> None:
        """Write down that these are gone, once for all of them: before what `remove_partition` left is deleted.

        Until then the renamed folder tells a removed partition from a lost one.
        """
        with self._guard:
            self._disk.sync_folder(ROOT)
            # One that was made anew meanwhile has been forgotten by that, and speaks for itself now.
            self._checkpoints.forget([name for name in names if name not in self._opened])

    def put_strays_aside(self, known: Collection[TopicPartition]) -> list[str]:
        """Put aside the folders of all partitions but the known: the cluster has no such partition here any more.

        They are renamed, not deleted: a metadata store restored from an old backup would look the same.
        """
        paths = []
        with self._guard:
            strays = [name for name in self._folders.names() if name not in known]
            # First, and also of those without a folder: a topic that gets the name later has lost nothing.
            self._checkpoints.forget(self._checkpoints.names() - set(known))
            for name in strays:
                path = self._folders.put_aside(name, STRAY)
                assert path is not None
                paths.append(path)
                self._opened.pop(name, None)
                logger.warning("%s is not a partition here; its folder is now %s", name, path)
        return paths

    def leftovers(self) -> list[str]:
        """Folders of removed partitions that are still to be deleted."""
        return self._folders.with_suffix(FOLDER_DELETED)

    def write_checkpoints(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> None:
        """Write down how far these logs are synced, where they start and how far they are committed.

        Nothing is synced here. Partitions not named keep what was written before. The mappings must not change
        meanwhile.
        """
        with self._guard:
            self._checkpoints.write(self._current(logs), high_watermarks)

    def close_log(self, name: TopicPartition, log: PartitionLog) -> bool:
        """Close one log; say whether all of it is synced. Several may be closed at the same time, before `close`."""
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
        """Close the logs and leave the folder so that the next start need not read them; say whether it need not.

        `closed` names those that `close_log` has closed already, with success. The next start must read them when
        `is_clean` is False, when a log does not close, or when one that was opened is not among `logs`: its end may
        not be on the disk then.
        """
        with self._guard:
            assert not self._is_closed
            self._is_closed = True
            # The order is what makes the marker true: logs, what refers to them, marker.
            closed = {name for name, log in logs.items() if name in closed or _close(name, log)}
            self._checkpoints.write(self._current(logs), high_watermarks)
            if not is_clean or not self._are_all_clean(closed):
                return False
            marker = {"version": _CLEAN_MARKER_VERSION, "broker_epoch": "-1"}
            if run is not None:
                marker["run"] = run.hex
            content = json.dumps(marker, separators=(",", ":")).encode()
            self._disk.replace_file(CLEAN_MARKER, content)
            return True

    def _start(self) -> None:
        if self._disk.exists(CLEAN_MARKER):
            self._disk.delete(CLEAN_MARKER)
            self._disk.sync_folder(ROOT)

    def _prepare(self, name: TopicPartition, topic_id: TopicId) -> bool:
        """Whether the partition has a folder of this topic. If not, it may be made: none is in its way now.

        In both cases the checkpoints speak of this topic afterwards.
        """
        found = self._folders.topic_id(name)
        if found == topic_id:
            return True
        if self._checkpoints.may_speak_of(name) and (
            found is not None or self._folders.is_being_deleted(name)
        ):
            # They speak of an earlier topic. Before its folder is put aside, or that would look like a loss.
            self._checkpoints.forget([name])
        if found is not None:
            path = self._folders.put_aside(name, STRAY)
            logger.warning("%s was of an earlier topic %s; it is now %s", name, found, path)
        recorded = self._checkpoints.recorded_end(name)
        # Whatever lay below the log's start was deleted, or given up (accepted_loss.py): it goes on from there.
        if recorded > self._checkpoints.log_starts.get(name):
            raise PartitionFolderMissing(_missing(self._disk, name, recorded))
        return False

    def _current(
        self, logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, PartitionLog]:
        """Without those that were removed, or made anew, after the caller had collected the logs."""
        return {name: log for name, log in logs.items() if self._opened.get(name) is log}

    def _are_all_clean(self, closed: set[TopicPartition]) -> bool:
        untouched = set(self._folders.names()) - self._opened.keys()
        return self._opened.keys() <= closed and (self.was_clean or not untouched)


@contextmanager
def _cutting_nothing_if(*passing: type[StorageError]) -> Iterator[None]:
    """For what is written down before a log is cut off."""
    try:
        yield
    except passing as error:
        raise NothingCut(str(error)) from error


def _uuid_in(disk: Disk, name: str) -> UUID | None:
    try:
        return UUID(hex=(disk.read_file(name) or b"").decode())
    except ValueError:
        return None


def _clean_run(disk: Disk) -> UUID | None:
    try:
        return UUID(hex=json.loads(disk.read_file(CLEAN_MARKER) or b"")["run"])
    except (ValueError, KeyError, TypeError):
        return None


def cluster_id_text(uuid: UUID) -> str:
    """A new cluster's id, as Kafka writes one."""
    return uuid_to_text(uuid)


def _identity(
    disk: Disk, broker_id: BrokerId, cluster_id: str | None, new_cluster_id: str
) -> FolderIdentity:
    data = disk.read_file(IDENTITY_NAME)
    if data is not None:
        identity = FolderIdentity.decode(data)
        identity.check(cluster_id=cluster_id, broker_id=broker_id)
        return identity
    # It is written before anything else, so a folder with logs and without it was not left so by us.
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
        f"{what_to_do_about_loss(folder)}"
    )


def _close(name: TopicPartition, log: PartitionLog) -> bool:
    """Close the log; say whether all of it is synced."""
    try:
        log.close()
    except StorageError as error:
        logger.warning("%s did not close, and is recovered at the next start: %s", name, error)
        return False
    return log.synced_end == log.log_end
