"""Addresses of archives."""

from pathlib import Path

import pytest

from respool.model.archiving.archive_errors import ArchiveRefused
from respool.object_stores.open_store import open_store


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/folder", "does not begin with file://"),
        ("ftp://host/x", "does not begin with file://"),
        ("file://host/x", "file:///absolute/path"),
        ("s3:///prefix", "names no bucket"),
        ("s3://key:secret@bucket/", "must not contain credentials"),
        ("s3://bucket?region=x", "ends with its path"),
    ],
)
def test_a_malformed_address_is_refused_with_the_reason(address: str, why: str) -> None:
    with pytest.raises(ArchiveRefused, match=why) as refused:
        open_store(address)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["file:///folder", "s3://bucket/prefix", "gs://bucket", "hdfs://host:8020/folder"]
)
def test_opening_a_store_sends_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert open_store(address).address == address


def test_the_addresss_spaces_are_unquoted(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    assert open_store(folder.as_uri()).address == folder.as_uri()
