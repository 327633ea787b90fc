"""Partitions' folders: what was made or put aside stays so, whatever happens to the power."""

from random import Random
from uuid import UUID

import pytest

from respool.log.folder.partition_folders import PartitionFolders
from respool.log.folder_durability import make_folder_durable, was_folder_durable
from respool.model.errors import PartitionFolderUnclear
from respool.model.ids import TopicId, TopicPartition
from respool.sim.disk.simulated_disk import SimDisk

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(UUID(int=0xA1))
ASIDE = "orders-0.000000000000000000000000000000a1-stray"
SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folder_that_was_made_durable_survives_a_power_cut(seed: int) -> None:
    disk = SimDisk(Random(seed))
    PartitionFolders(disk).make(ORDERS, TOPIC_ID)
    make_folder_durable(disk, "orders-0")
    disk.crash()
    folders = PartitionFolders(disk.reopen())
    assert folders.names() == [ORDERS]
    assert folders.topic_id(ORDERS) == TOPIC_ID


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folder_that_was_only_made_is_the_topics_or_nobodys(seed: int) -> None:
    disk = SimDisk(Random(seed))
    PartitionFolders(disk).make(ORDERS, TOPIC_ID)
    assert not was_folder_durable(disk, "orders-0")
    disk.crash()
    folders = PartitionFolders(disk.reopen())
    assert folders.topic_id(ORDERS) in (TOPIC_ID, None)
    assert folders.remove_unsynced(ORDERS) is None
    assert folders.names() == []


def test_a_leftover_folder_with_records_is_put_aside() -> None:
    disk = SimDisk(Random(1))
    folders = PartitionFolders(disk)
    disk.make_folder("orders-0")
    disk.open_log(f"orders-0/{0:020d}.log").append((b"unsynced",))
    assert folders.topic_id(ORDERS) is None
    assert folders.remove_unsynced(ORDERS) == f"orders-0.{0:032x}-stray"
    assert folders.names() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folder_that_was_put_aside_does_not_come_back(seed: int) -> None:
    disk = SimDisk(Random(seed))
    folders = PartitionFolders(disk)
    folders.make(ORDERS, TOPIC_ID)
    assert folders.put_aside(ORDERS, "-stray") == ASIDE
    disk.crash()
    folders = PartitionFolders(disk.reopen())
    assert folders.names() == []
    assert folders.with_suffix("-stray") == [ASIDE]
    assert folders.put_aside(ORDERS, "-stray") is None


def test_nothing_is_put_aside_over_what_already_is() -> None:
    disk = SimDisk(Random(1))
    folders = PartitionFolders(disk)
    paths = []
    for _ in range(3):
        folders.make(ORDERS, TOPIC_ID)
        paths.append(folders.put_aside(ORDERS, "-stray"))
    assert len(set(paths)) == 3
    assert sorted(path for path in paths if path) == folders.with_suffix("-stray")


def test_a_folder_without_data_is_nobodys() -> None:
    disk = SimDisk(Random(1))
    folders = PartitionFolders(disk)
    assert folders.topic_id(ORDERS) is None
    disk.make_folder("orders-0")
    assert folders.topic_id(ORDERS) is None


def test_a_log_without_metadata_is_unclear_and_can_be_put_aside() -> None:
    disk = SimDisk(Random(1))
    folders = PartitionFolders(disk)
    disk.make_folder("orders-0")
    disk.open_log(f"orders-0/{0:020d}.log")
    disk.replace_file("orders-0/leader-epoch-checkpoint", b"")
    with pytest.raises(PartitionFolderUnclear, match="holds a log"):
        folders.topic_id(ORDERS)
    assert folders.put_aside(ORDERS, "-stray") == f"orders-0.{0:032x}-stray"
