"""Who may open the data folder."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.drivers.sqlite_file import SqliteFile
from respool.model.settings import Settings
from respool.node.folder_access import make_data_folder
from respool.testing import Broker


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def settings_of(data: Path, protocol: str) -> Settings:
    return Settings.from_flat(
        data=str(data), protocol=protocol, ssl_certificate_file="broker.pem", ssl_key_file=""
    )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_new_folder_is_for_its_owner_only(
    tmp_path: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "srv" / "data"
    make_data_folder(settings_of(data, protocol))
    assert mode_of(data) == 0o700
    # Folders on the way to it are others' business.
    assert mode_of(data.parent) == 0o755
    assert not caplog.records


@pytest.mark.parametrize(
    ("mode", "protocol", "is_warned"),
    [
        (0o755, "SASL_SSL", True),
        (0o755, "SSL", True),
        (0o711, "SASL_SSL", True),
        (0o755, "PLAINTEXT", False),
        (0o750, "SASL_SSL", False),
        (0o700, "SASL_SSL", False),
    ],
)
def test_an_existing_folder_is_left_alone(
    tmp_path: Path, mode: int, protocol: str, *, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with caplog.at_level(logging.WARNING):
        make_data_folder(settings_of(data, protocol))
    assert mode_of(data) == mode
    assert [str(data) in one.getMessage() for one in caplog.records] == [True] * is_warned


def test_the_store_and_its_journal_are_for_their_owner_only(tmp_path: Path) -> None:
    """They have what passwords are checked with."""
    store = SqliteFile(str(tmp_path / "metadata.sqlite"))
    try:
        files = [one for one in tmp_path.iterdir() if one.name.startswith("metadata.sqlite")]
        assert len(files) > 1
        assert {mode_of(one) for one in files} == {0o600}
    finally:
        store.close()


def test_a_broker_makes_its_folder_so(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data"):
        assert mode_of(tmp_path / "data") == 0o700
