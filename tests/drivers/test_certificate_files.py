"""Certificates from files: what cannot be served, and renewed ones that are served without a restart."""

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from respool.drivers.certificate_files import CertificateFiles, CertificateUnusable
from respool.model.settings import Settings
from support.secured_broker import write_certificate

AUTHORITY = trustme.CA()


def files(folder: Path, **more: Any) -> CertificateFiles:
    given = {"ssl_certificate_file": str(folder / "broker.pem"), "protocol": "SSL"} | more
    settings = Settings.from_flat(**given)
    return CertificateFiles(settings.listeners[0], versions=settings.security.tls_versions)


def issue(folder: Path, name: str = "broker.pem", **how: Any) -> str:
    return write_certificate(folder / name, AUTHORITY.issue_cert("127.0.0.1", **how))


def test_a_renewed_certificate_is_served_by_the_next_connection(tmp_path: Path) -> None:
    issue(tmp_path)
    one = files(tmp_path)
    one.load()
    before = one.context()
    assert not one.check()
    assert one.context() is before
    issue(tmp_path)
    assert one.check()
    assert one.context() is not before


def test_files_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    path = Path(issue(tmp_path))
    failing: list[float] = []
    one = files(tmp_path)
    one._on_failing = failing.append
    one.load()
    before = one.context()
    for broken in (b"", b"not PEM", path.read_bytes()[:900]):
        path.write_bytes(broken)
        assert not one.check()
        assert one.context() is before
        # Each change is tried once.
        assert not one.check()
    path.unlink()
    assert not one.check()
    issue(tmp_path)
    assert one.check()
    assert failing == [1, 1, 1, 1, 0]


def test_certificate_and_key_may_be_renewed_one_after_the_other(tmp_path: Path) -> None:
    def write(issued: trustme.LeafCert, *, key: bool) -> None:
        if key:
            (tmp_path / "key.pem").write_bytes(issued.private_key_pem.bytes())
            os.chmod(tmp_path / "key.pem", 0o600)
        else:
            pems = b"".join(one.bytes() for one in issued.cert_chain_pems)
            (tmp_path / "broker.pem").write_bytes(pems)

    old, new = AUTHORITY.issue_cert("127.0.0.1"), AUTHORITY.issue_cert("127.0.0.1")
    write(old, key=True)
    write(old, key=False)
    one = files(tmp_path, ssl_key_file=str(tmp_path / "key.pem"))
    one.load()
    before = one.context()
    write(new, key=False)
    assert not one.check()
    assert one.context() is before
    write(new, key=True)
    assert one.check()


def test_what_cannot_be_served_is_refused_at_the_start(tmp_path: Path) -> None:
    one = files(tmp_path)
    with pytest.raises(CertificateUnusable, match="No such file"):
        one.load()
    now = datetime.now(UTC)
    issue(tmp_path, not_before=now - timedelta(days=2), not_after=now - timedelta(days=1))
    with pytest.raises(CertificateUnusable, match="has expired"):
        one.load()
    issue(tmp_path, not_before=now + timedelta(days=1), not_after=now + timedelta(days=2))
    with pytest.raises(CertificateUnusable, match="not valid yet"):
        one.load()
    other = AUTHORITY.issue_cert("127.0.0.1")
    issue(tmp_path)
    (tmp_path / "key.pem").write_bytes(other.private_key_pem.bytes())
    with pytest.raises(CertificateUnusable, match="KEY_VALUES_MISMATCH"):
        files(tmp_path, ssl_key_file=str(tmp_path / "key.pem")).load()


def test_the_end_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    soon = datetime.now(UTC) + timedelta(days=5)
    issue(tmp_path, not_after=soon)
    one = files(tmp_path)
    with caplog.at_level(logging.WARNING):
        one.load()
        one.check()
    assert len([line for line in caplog.messages if "expires in" in line]) == 1


def test_a_readable_key_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chmod(issue(tmp_path), 0o644)
    with caplog.at_level(logging.WARNING):
        files(tmp_path).load()
    assert any("can be read by others" in line for line in caplog.messages)


def test_certificates_of_clients_are_never_resumed(tmp_path: Path) -> None:
    issue(tmp_path)
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.cert_pem.bytes())
    one = files(tmp_path, ssl_client_auth="required", ssl_ca_file=str(tmp_path / "ca.pem"))
    one.load()
    assert one.context().num_tickets == 0
