"""From settings to the store of a cluster."""

import asyncio
import sys
from pathlib import Path

import pytest

from respool.model.errors import SettingsError
from respool.model.settings import Settings
from respool.node.etcd import connect_to_etcd, etcd_options
from respool.ports.metadata_store import StoreUnavailable


def test_settings_become_options_that_fit_into_a_session() -> None:
    settings = Settings.from_flat(
        etcd="a.example,b.example:1",
        cluster="mine",
        etcd_user="u",
        etcd_password="p",
        etcd_ca_file="ca",
        etcd_cert_file="cert",
        etcd_key_file="key",
        etcd_allow_old_versions=True,
        session_ttl_ms=3_000,
    )
    options = etcd_options(settings)
    assert options.endpoints == ("https://a.example:2379", "https://b.example:1")
    assert (options.cluster, options.user, options.password) == ("mine", "u", "p")
    assert (options.ca_file, options.cert_file, options.key_file) == ("ca", "cert", "key")
    assert options.allow_old_versions
    assert 2 * options.attempt_timeout_ms < options.request_timeout_ms * 2 <= 3_000


def test_a_password_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" secret \n")
    settings = Settings.from_flat(etcd="localhost", etcd_user="u", etcd_password_file=str(file))
    assert etcd_options(settings).password == " secret "


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_a_password_file_of_no_use_is_told(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    settings = Settings.from_flat(etcd="localhost", etcd_user="u", etcd_password_file=str(file))
    with pytest.raises(SettingsError, match="etcd_password_file"):
        etcd_options(settings)


def test_without_the_library_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "respool.drivers.etcd_store", None)
    with pytest.raises(SettingsError, match=r'pip install "\.\[cluster\]"'):
        asyncio.run(connect_to_etcd(Settings.from_flat(etcd="localhost:1")))


def test_nobody_at_the_address_is_told() -> None:
    with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:1"):
        asyncio.run(connect_to_etcd(Settings.from_flat(etcd="127.0.0.1:1", session_ttl_ms=2_000)))
