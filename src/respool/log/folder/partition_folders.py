"""Lists, creates and renames the partition folders of a data folder, without opening a log."""

from uuid import UUID

from respool.log.file_names import FOLDER_DELETED, LOG, parse_offset_name
from respool.log.folder_durability import was_folder_durable
from respool.log.partition_folder import (
    METADATA_NAME,
    NEW_METADATA_NAME,
    STRAY,
    decode_metadata,
    encode_metadata,
    folder_name,
    is_aside,
    name_aside,
    parse_folder_name,
)
from respool.model.errors import PartitionFolderUnclear
from respool.model.ids import Offset, TopicId, TopicPartition
from respool.ports.disk import Disk

ROOT = ""


class PartitionFolders:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def names(self) -> list[TopicPartition]:
        """The partitions that have a folder, in use or not."""
        parsed = map(parse_folder_name, self._disk.list_folder(ROOT))
        return [name for name in parsed if name is not None]

    def with_suffix(self, suffix: str) -> list[str]:
        """The renamed folders with that suffix."""
        return [name for name in self._disk.list_folder(ROOT) if name.endswith(suffix)]

    def is_being_deleted(self, name: TopicPartition) -> bool:
        """True if a folder of this partition was renamed for deletion and still exists."""
        folder = folder_name(name)
        return any(is_aside(one, folder) for one in self.with_suffix(FOLDER_DELETED))

    def topic_id(self, name: TopicPartition) -> TopicId | None:
        """The topic whose data the folder holds; None if there is no data, or none that was ever durable.

        Raises:
            PartitionFolderUnclear: there is data, but its topic is unknown.
        """
        folder = folder_name(name)
        data = self._disk.read_file(f"{folder}/{METADATA_NAME}")
        if data is None:
            return self._topic_id_of_new(folder)
        try:
            return decode_metadata(data)
        except ValueError as error:
            raise PartitionFolderUnclear(
                f"{folder}/{METADATA_NAME} is damaged ({error}): repair it, or move the folder away"
            ) from error

    def _topic_id_of_new(self, folder: str) -> TopicId | None:
        data = self._disk.read_file(f"{folder}/{NEW_METADATA_NAME}")
        if data is not None:
            try:
                return decode_metadata(data)
            except ValueError:
                # A power cut came before the first sync.
                return None
        # A power cut before the first sync may leave a log without metadata. After it there are epochs, too.
        if self._logs_in(folder) and was_folder_durable(self._disk, folder):
            raise PartitionFolderUnclear(
                f"{folder} holds a log but no {METADATA_NAME}: put that file back, or move the folder away"
            )
        return None

    def lacks_first_segment(self, name: TopicPartition, log_start: Offset) -> bool:
        """True if a power cut before the first sync left later segments of the log without its first one.

        No name in the folder was durable then, so any of them may be missing. Segments are removed, and the log start
        is raised, only after the first sync: until then the first segment begins at the checkpointed log start.
        """
        folder = folder_name(name)
        parsed = [parse_offset_name(file) for file in self._logs_in(folder)]
        bases = [one[0] for one in parsed if one is not None]
        return bool(bases) and min(bases) > log_start and not was_folder_durable(self._disk, folder)

    def make(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Create the folder for this topic. The log's first sync makes it durable (folder_durability.py)."""
        folder = folder_name(name)
        self._disk.make_folder(folder)
        metadata = self._disk.open_log(f"{folder}/{NEW_METADATA_NAME}")
        if not metadata.size:
            # Not written by an earlier attempt.
            metadata.append((encode_metadata(topic_id),))
        metadata.close()

    def remove_unsynced(self, name: TopicPartition) -> str | None:
        """Make way for a new log, where a power cut left a folder of which nothing was durable.

        Returns the new path of a folder with records: they were never synced, but somebody may miss them.
        """
        folder = folder_name(name)
        if not self._disk.exists(folder):
            return None
        if any(self._disk.size(f"{folder}/{file}") for file in self._logs_in(folder)):
            return self.put_aside(name, STRAY)
        self._disk.delete(folder)
        return None

    def _logs_in(self, folder: str) -> list[str]:
        return [file for file in self._disk.list_folder(folder) if file.endswith(LOG)]

    def put_aside(self, name: TopicPartition, suffix: str) -> str | None:
        """Rename the folder, durably; return its new path, or None if there is no folder."""
        folder = folder_name(name)
        if not self._disk.exists(folder):
            return None
        try:
            tag = self.topic_id(name) or UUID(int=0)
        except PartitionFolderUnclear:
            tag = UUID(int=0)
        path = name_aside(folder, tag=tag, suffix=suffix)
        while self._disk.exists(path):
            tag = UUID(int=(tag.int + 1) % 2**128)
            path = name_aside(folder, tag=tag, suffix=suffix)
        self._disk.rename(folder, path)
        self._disk.sync_folder(ROOT)
        return path
