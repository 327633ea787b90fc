"""`respool serve --secure`: an authority, a certificate and an administrator for a broker that has none yet.

    <data>/security/ca.pem              the authority, which clients trust
    <data>/security/ca.key              its key
    <data>/security/broker.pem          the broker's key and certificate
    <data>/security/admin.properties    for --client-config: how the user admin connects

A second start finds all of it. The certificate is made again if the broker has another name.
"""

import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from respool.client.kafka.client_config import read_client_config
from respool.client.kafka.errors import ClientError
from respool.client.kafka.security import Login
from respool.model.addresses import format_address, is_wildcard
from respool.model.errors import SettingsError
from respool.model.settings import Settings
from respool.node.local_authority import LocalAuthority
from respool.node.private_file import write_private

ADMIN = "admin"
BROKER = "broker"
FOLDER = "security"
PASSWORD_BYTES = 18


def secure_flags(settings: Settings) -> dict[str, object]:
    """Make what is missing, and return the settings with which the broker is secured."""
    folder = Path(settings.data).absolute() / FOLDER
    make_security_folder(folder)
    client = settings.listeners[0]
    host, port = client.advertised_for(*client.listen_address)
    make_certificate(LocalAuthority(folder), certificate_hosts(host, client.listen_address[0]))
    admin = folder / "admin.properties"
    if not admin.exists():
        write_private(admin, admin_properties(folder, format_address(host, port)))
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


def make_security_folder(folder: Path) -> None:
    # Both may be new: with one call the data folder would have the mode of the umask.
    os.makedirs(folder.parent, mode=0o700, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)


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


def admin_properties(folder: Path, address: str) -> str:
    """How the administrator connects, with a new password; without an address if there is none yet."""
    lines = [
        *([f"bootstrap.servers={address}"] if address else []),
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={folder / 'ca.pem'}",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={ADMIN}",
        f"sasl.password={secrets.token_urlsafe(PASSWORD_BYTES)}",
    ]
    return "\n".join(lines) + "\n"


def certificate_hosts(*hosts: str) -> list[str]:
    """The names and addresses by which clients may know this machine."""
    known = [*hosts, socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    return list(dict.fromkeys(one for one in known if one and not is_wildcard(one)))


def make_certificate(authority: LocalAuthority, names: Iterable[str]) -> None:
    """Make the authority and the brokers' certificate, as far as they are missing."""
    noted = authority.folder / "names"
    text = "\n".join(names) + "\n"
    is_same = noted.exists() and noted.read_text() == text
    if not (is_same and authority.file_of(BROKER).exists()):
        authority.issue(BROKER, names)
        write_private(noted, text)
