"""`respool cluster up --secure`: an authority, a certificate, an administrator, and the settings that brokers share.

    <folder>/security/ca.pem, ca.key       the authority
    <folder>/security/broker.pem           key and certificate of the brokers
    <folder>/security/peers.properties     how brokers connect to each other: by that certificate
    <folder>/security/admin.properties     for --client-config: how the user admin connects

Clients log in by SCRAM over TLS. Brokers have a listener of their own on this machine, which is for their certificate
only. A later start finds all of it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from respool.model.operator_errors import UsageError
from respool.node.local_authority import LocalAuthority
from respool.node.private_file import write_private
from respool.node.secure_start import (
    ADMIN,
    BROKER,
    FOLDER,
    admin_properties,
    certificate_hosts,
    make_certificate,
    make_security_folder,
)

# The listener of the brokers, on ports of their own choice: clients never see its addresses.
BROKERS_LISTENER = "brokers"
# Its principals are the whole subjects of certificates, so that no user's name is mistaken for the brokers'.
BROKER_PRINCIPAL = f"User:CN={BROKER}"
# What may be set beside --secure; the rest would undo it.
_FREE = ("authorization", "sasl_enabled_mechanisms", "super_users")


class ClusterSecurity:
    def __init__(self, folder: Path, *, listen_host: str, advertised: str | None) -> None:
        """`folder` is the cluster's. Nothing is written before `make`."""
        self.folder = folder / FOLDER
        self._listen_host = listen_host
        self._advertised = advertised

    @property
    def admin_file(self) -> Path:
        return self.folder / "admin.properties"

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """The settings of all brokers; `given` are those of the command line, which take precedence.

        Raises:
            UsageError: one that is given would undo them.
        """
        folder = self.folder
        users = {one.strip() for one in given.get("super_users", "").split(";") if one.strip()}
        table = f"listener.{BROKERS_LISTENER}."
        settings = {
            "protocol": "SASL_SSL",
            "sasl_enabled_mechanisms": "SCRAM-SHA-512",
            "ssl_certificate_file": str(folder / f"{BROKER}.pem"),
            "ssl_ca_file": str(folder / "ca.pem"),
            "bootstrap_user_file": str(self.admin_file),
            "authorization": "enforce",
            "inter_broker_listener_name": BROKERS_LISTENER,
            "inter_broker_config": str(folder / "peers.properties"),
            "broker_principals": BROKER_PRINCIPAL,
            f"{table}listen": "127.0.0.1:0",
            f"{table}protocol": "SSL",
            f"{table}ssl_client_auth": "required",
            f"{table}ssl_principal_mapping_rules": "DEFAULT",
        }
        for name in given:
            if name in settings and name not in _FREE:
                raise UsageError(f"--set {name} and --secure contradict each other")
        return {
            **settings,
            **given,
            "super_users": ";".join(sorted(users | {f"User:{ADMIN}"})),
        }

    def make(self) -> None:
        """Make what is missing.

        Raises:
            SettingsError: a library is missing, or the authority in the folder cannot be used.
        """
        make_security_folder(self.folder)
        hosts = certificate_hosts(self._advertised or "", self._listen_host)
        make_certificate(LocalAuthority(self.folder), hosts)
        certificate = self.folder / f"{BROKER}.pem"
        lines = [
            "security.protocol=SSL",
            f"ssl.ca.location={self.folder / 'ca.pem'}",
            f"ssl.certificate.location={certificate}",
            f"ssl.key.location={certificate}",
        ]
        write_private(self.folder / "peers.properties", "\n".join(lines) + "\n")
        if not self.admin_file.exists():
            # Where the brokers listen is known when they do.
            write_private(self.admin_file, admin_properties(self.folder, ""))

    def write_addresses(self, addresses: Sequence[str]) -> None:
        """Say in the administrator's file where the brokers listen now."""
        lines = [
            line
            for line in self.admin_file.read_text(encoding="utf-8").splitlines()
            if not line.startswith("bootstrap.servers=")
        ]
        text = "\n".join([f"bootstrap.servers={','.join(addresses)}", *lines]) + "\n"
        if text != self.admin_file.read_text(encoding="utf-8"):
            write_private(self.admin_file, text)


def refuse_open_start(folder: Path, given: Mapping[str, str]) -> None:
    """A cluster that was started with --secure does not become an open one by leaving it out.

    Raises:
        UsageError
    """
    if (folder / FOLDER / "ca.key").exists() and given.get("insecure") != "true":
        raise UsageError(
            f"the cluster in {folder} was started with --secure before",
            hint="give --secure; or open it with --insecure",
        )
