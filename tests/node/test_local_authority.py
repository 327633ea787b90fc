"""Certificates of a local authority: what clients check holds, and what would be refused is said."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from respool.model.errors import SettingsError
from respool.node.local_authority import LocalAuthority
from support.secured_broker import write_certificate


def test_both_sides_of_tls_believe_each_other(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path / "made" / "here")
    broker = authority.issue("broker", ["b1.example.org", "10.0.0.5", "::1"])
    client = authority.issue("billing")
    assert (tmp_path / "made" / "here").stat().st_mode & 0o077 == 0
    for host in ("b1.example.org", "10.0.0.5", "::1"):
        assert shake_hands(authority.ca_file, broker, client, host) == "billing"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(authority.ca_file, broker, client, "b2.example.org")


def shake_hands(ca: Path, broker: Path, client: Path, host: str) -> str:
    """The name that the broker sees."""
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    server_side.load_cert_chain(broker)
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=str(ca))
    client_side.load_cert_chain(client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_side.wrap_bio(to_client, to_server, server_hostname=host),
        server_side.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate: Any = ends[1].getpeercert()
    ((part,),) = certificate["subject"]
    return str(part[1])


def test_a_crash_between_key_and_certificate_is_made_up_for(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path)
    authority.issue("broker", ["localhost"])
    authority.ca_file.unlink()
    authority.issue("billing")
    # The certificate that was made before is still of this authority.
    assert [one.problem for one in authority.describe()] == [None, None, None]


def test_an_authority_without_its_key_issues_nothing(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path)
    authority.issue("broker")
    authority.key_file.unlink()
    with pytest.raises(SettingsError, match=r"ca\.key is not"):
        authority.issue("billing")
    with pytest.raises(SettingsError, match="there is no authority"):
        authority.renew(authority.file_of("broker"))


def test_what_clients_would_refuse_is_said(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path)
    authority.issue("broker")
    stranger = trustme.CA().issue_cert("b1.example.org", common_name="stranger")
    path = Path(write_certificate(tmp_path / "stranger.pem", stranger))
    mixed = authority.issue("mixed").read_bytes()
    other = authority.issue("other").read_bytes()
    end = b"-----END PRIVATE KEY-----\n"
    key, certificate = other.split(end)[0] + end, mixed.split(end)[1]
    authority.file_of("mixed").write_bytes(key + certificate)
    (tmp_path / "junk.pem").write_text("-----BEGIN CERTIFICATE-----\njunk\n")
    problems = {one.file.name: one.problem for one in authority.describe()}
    assert problems == {
        "ca.pem": None,
        "broker.pem": None,
        "mixed.pem": "the key in the file does not fit",
        "other.pem": None,
        "stranger.pem": "ca.pem did not sign it",
    }
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="not of the authority"):
        authority.renew(path)
    assert path.read_bytes() == before
