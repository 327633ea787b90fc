"""`respool serve --secure`: an authority, a certificate and an administrator for a broker that has none yet.

    <data>/security/ca.pem              the authority, which clients trust
    <data>/security/ca.key              its key
    <data>/security/broker.pem          the broker's key and certificate
    <data>/security/admin.properties    for --client-config: how the user admin connects

A second start finds all of it. The certificate is made again if the broker has another name.
"""

import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from respool.client.kafka.client_config import read_client_config
from respool.client.kafka.errors import ClientError
from respool.client.kafka.security import Login
from respool.model.addresses import format_address, is_wildcard
from respool.model.errors import SettingsError
from respool.model.extras import how_to_install
from respool.model.settings import Settings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ADMIN = "admin"
FOLDER = "security"
CERTIFICATE_DAYS = 825
AUTHORITY_DAYS = 3_650
PASSWORD_BYTES = 18


def secure_flags(settings: Settings) -> dict[str, object]:
    """Make what is missing, and return the settings with which the broker is secured."""
    folder = Path(settings.data).absolute() / FOLDER
    # Both may be new: with one call the data folder would have the mode of the umask.
    os.makedirs(folder.parent, mode=0o700, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    client = settings.listeners[0]
    host, port = client.advertised_for(*client.listen_address)
    _make_certificate(folder, _names(host, client.listen_address[0]))
    admin = folder / "admin.properties"
    if not admin.exists():
        write_private(admin, _admin_properties(folder, format_address(host, port)))
    users = {one for one in settings.access.super_users.split(";") if one.strip()}
    return {
        "protocol": "SASL_SSL",
        "sasl_enabled_mechanisms": "SCRAM-SHA-512",
        "ssl_certificate_file": str(folder / "broker.pem"),
        "ssl_ca_file": str(folder / "ca.pem"),
        "bootstrap_user_file": str(admin),
        "authorization": "enforce",
        "super_users": ";".join(sorted(users | {f"User:{ADMIN}"})),
    }


def producer_lines(flags: Mapping[str, object]) -> list[str]:
    """The three lines that a producer needs besides a user and a password."""
    return [
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={flags['ssl_ca_file']}",
        "sasl.mechanism=SCRAM-SHA-512",
    ]


def bootstrap_login(settings: Settings) -> Login | None:
    """The user that is created if there is none.

    Raises:
        SettingsError: the file of `bootstrap_user_file` cannot be used.
    """
    path = settings.security.bootstrap_user_file
    if not path:
        return None
    try:
        login = read_client_config(path).security.login
    except ClientError as error:
        raise SettingsError(f"bootstrap_user_file = {path!r}: {error}") from None
    if login is None:
        raise SettingsError(f"bootstrap_user_file = {path!r}: there is no login in it")
    return login


def write_private(path: Path, text: bytes | str) -> None:
    """Write a file that only this user can read, all or nothing."""
    draft = path.with_name(f"{path.name}.new")
    data = text.encode() if isinstance(text, str) else text
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _admin_properties(folder: Path, address: str) -> str:
    lines = [
        f"bootstrap.servers={address}",
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={folder / 'ca.pem'}",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={ADMIN}",
        f"sasl.password={secrets.token_urlsafe(PASSWORD_BYTES)}",
    ]
    return "\n".join(lines) + "\n"


def _names(*hosts: str) -> list[str]:
    known = [*hosts, socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    return list(dict.fromkeys(one for one in known if one and not is_wildcard(one)))


def _make_certificate(folder: Path, names: Iterable[str]) -> None:
    """Make the authority and the certificate, as far as they are missing."""
    noted = folder / "names"
    text = "\n".join(names) + "\n"
    if (folder / "broker.pem").exists() and noted.exists() and noted.read_text() == text:
        return
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise SettingsError(
            f"--secure makes certificates, which needs cryptography: {how_to_install('secure')}"
        ) from None
    private = serialization.PrivateFormat.PKCS8
    pem, unencrypted = serialization.Encoding.PEM, serialization.NoEncryption()
    if not (folder / "ca.key").exists():
        key = _new_key()
        authority = _certificate("Respool authority", key, key, issuer=None, names=())
        write_private(folder / "ca.pem", authority.public_bytes(pem))
        write_private(folder / "ca.key", key.private_bytes(pem, private, unencrypted))
    from cryptography import x509

    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    authority_key = serialization.load_pem_private_key(
        (folder / "ca.key").read_bytes(), password=None
    )
    key = _new_key()
    made = _certificate(
        "respool",
        key,
        authority_key,  # type: ignore[arg-type]
        issuer=authority.subject,
        names=names,
    )
    write_private(
        folder / "broker.pem",
        key.private_bytes(pem, private, unencrypted) + made.public_bytes(pem),
    )
    write_private(noted, text)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certificate(
    subject: str,
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    *,
    issuer: "x509.Name | None",
    names: Iterable[str],
) -> "x509.Certificate":
    """A certificate for these names; of an authority if there is no issuer."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.now(UTC)
    days = AUTHORITY_DAYS if issuer is None else CERTIFICATE_DAYS
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer or own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .add_extension(_usage(is_authority=issuer is None), critical=True)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(one) for one in names]), critical=False
        ).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, SHA256())


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
