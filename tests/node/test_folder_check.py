"""Whose data folder it is, before anything is written into it."""

from pathlib import Path

import pytest

from respool.drivers.local_disk import LocalDisk
from respool.log.folder.data_folder import RUN_NAME
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity
from respool.model.errors import DataFolderMismatch
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.folder_check import (
    METADATA_FILE,
    refuse_folder_of_a_broker_alone,
    refuse_folder_of_a_cluster,
)
from respool.node.node import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a broker of a cluster leaves it."""
    (tmp_path / RUN_NAME).write_text("0" * 32)
    identity = FolderIdentity(cluster_id="c", broker_id=BrokerId(3))
    (tmp_path / IDENTITY_NAME).write_bytes(identity.encode())
    return tmp_path


@pytest.mark.parametrize("partition", ["rides-0", None])
def test_the_folder_of_a_clusters_broker_is_not_served_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], partition: str | None
) -> None:
    """It asked for a metadata.sqlite that there never was; or, where nothing was held, made one."""
    if partition is not None:
        (folder / partition).mkdir()
    assert (
        run(Settings.from_flat(data=str(folder), listen="127.0.0.1:0", broker_id=BrokerId(3))) == 1
    )
    error = capsys.readouterr().err
    assert "the data folder is that of broker 3 of a cluster" in error
    assert "--etcd and --cluster" in error
    assert not (folder / METADATA_FILE).exists()


def test_a_broker_whose_number_is_not_written_is_told_all_the_same(folder: Path) -> None:
    (folder / IDENTITY_NAME).unlink()
    with pytest.raises(DataFolderMismatch, match="that of a broker of a cluster"):
        refuse_folder_of_a_cluster(LocalDisk(str(folder)))


def test_the_folder_of_a_broker_alone_is_no_clusters(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    refuse_folder_of_a_cluster(disk)
    refuse_folder_of_a_broker_alone(disk)
    (tmp_path / METADATA_FILE).touch()
    refuse_folder_of_a_cluster(disk)
    with pytest.raises(DataFolderMismatch, match="that of a broker alone"):
        refuse_folder_of_a_broker_alone(disk)
