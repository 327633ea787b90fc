"""Makes the folder of a new log durable: not when the log is created, but before its first record counts as synced.

Creating a thousand partitions would otherwise wait for seven thousand syncs. A new log has no folder; its first append
creates one, in the page cache, and after a power cut that may be missing or incomplete. Nothing is lost by that: the
log was empty, or its records were not synced, and the metadata store still names the partition.

A folder in which nothing was ever durable differs from one that has lost its `partition.metadata`: until the first
sync the metadata has another name, and the epochs have no file.

1. the content of `partition.metadata.new` is synced;   2. it is renamed;   3. all names in the folder are synced;
4. the folder's own name is synced;   5. `leader-epoch-checkpoint` is written;   6. the records are synced.
"""

from respool.log.file_names import EPOCHS_NAME
from respool.log.partition_folder import METADATA_NAME, NEW_METADATA_NAME
from respool.log.removal import parent_folder
from respool.ports.disk import Disk


def was_folder_durable(disk: Disk, folder: str) -> bool:
    """False if an earlier process may have ended before the folder was durable."""
    return disk.exists(f"{folder}/{EPOCHS_NAME}")


def make_folder_durable(disk: Disk, folder: str) -> None:
    """Make the metadata and all names durable; may be repeated. It needs no room on the disk."""
    path = f"{folder}/{NEW_METADATA_NAME}"
    if disk.exists(path):
        metadata = disk.open_log(path, create=False)
        metadata.sync()
        metadata.close()
        disk.rename(path, f"{folder}/{METADATA_NAME}")
    disk.sync_folder(folder)
    disk.sync_folder(parent_folder(folder))


def make_found_folder_durable(disk: Disk, folder: str) -> None:
    """As `make_folder_durable`, for the folder of an earlier process.

    Its syncs may have failed: then the page cache has what no later sync writes. So the metadata is written again.
    """
    content = disk.read_file(f"{folder}/{NEW_METADATA_NAME}")
    if content is not None:
        disk.replace_file(f"{folder}/{METADATA_NAME}", content)
        disk.delete(f"{folder}/{NEW_METADATA_NAME}")
    make_folder_durable(disk, folder)
