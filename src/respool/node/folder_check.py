"""Checks that the data folder belongs to a single broker, or to a cluster's broker, before anything is written to it.

A single broker keeps its topics in a file in the folder, a cluster keeps them in etcd. A broker started in the wrong
mode would not know the topics of the partitions in its folder.
"""

from respool.log.folder.data_folder import RUN_NAME
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity
from respool.log.folder.partition_folders import PartitionFolders
from respool.model.errors import DataFolderMismatch
from respool.ports.disk import Disk

METADATA_FILE = "metadata.sqlite"


def refuse_folder_of_a_broker_alone(disk: Disk) -> None:
    """
    Raises:
        DataFolderMismatch: a single broker keeps its topics here.
    """
    if disk.exists(METADATA_FILE):
        raise DataFolderMismatch(
            f"the data folder is that of a broker alone: it holds {METADATA_FILE}, and its topics are not known "
            "to the cluster; give the broker a folder of its own with --data"
        )


def refuse_folder_of_a_cluster(disk: Disk) -> None:
    """
    Raises:
        DataFolderMismatch: a broker of a cluster has used the folder, and no single broker since.
    """
    if not disk.exists(RUN_NAME) or disk.exists(METADATA_FILE):
        return
    written = disk.read_file(IDENTITY_NAME)
    broker = f"broker {FolderIdentity.decode(written).broker_id}" if written else "a broker"
    raise DataFolderMismatch(
        f"the data folder is that of {broker} of a cluster, whose etcd knows its topics: say where that is with --etcd "
        "and --cluster, or with --config; or, to serve alone, use another folder. Nothing was changed"
    )


def refuse_partitions_of_no_topic(disk: Disk, which: str) -> None:
    """Refuse a folder with partitions but without topics: every partition would count as deleted.

    Raises:
        DataFolderMismatch: the folder has partitions.
    """
    names = PartitionFolders(disk).names()
    if names:
        raise DataFolderMismatch(
            f"the data folder holds partitions, such as {min(names)}, but {which} {METADATA_FILE}, which says what "
            f"topics there are: restore that file, with {METADATA_FILE}-wal if there is one; or, to start empty, use "
            "another folder. Nothing was changed"
        )
