"""A broker with listeners of every kind, certificates of an authority made for it, and users."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme

from respool.broker.broker import Broker as ServingBroker
from respool.cluster.access.user_requests import CredentialChange, remove_user
from respool.model.security.scram_credential import salted_password
from respool.server.listener import Listener
from respool.testing import Broker

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "wonderland"
SALT = b"salted in tests"


@dataclass(frozen=True)
class SecuredBroker:
    """Listeners: `client` in the clear, `sasl` by SASL_SSL, `sasl_clear` by SASL_PLAINTEXT, `mtls` and `tls` by SSL."""

    broker: Broker
    authority: trustme.CA
    folder: Path

    @property
    def listener(self) -> Listener:
        found: Listener = self._backend._runner._listener
        return found

    @property
    def serving(self) -> ServingBroker:
        found: ServingBroker = self._backend._runner._broker
        return found

    @property
    def _backend(self) -> Any:
        return self.broker._backend

    def address(self, listener: str) -> str:
        host, port = self.listener.addresses[listener]
        return f"{host}:{port}"

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    def client_certificate(self, name: str, *, expired: bool = False, **how: Any) -> str:
        """A file with a key and a certificate for a client."""
        if expired:
            how["not_after"] = datetime.now(UTC) - timedelta(hours=1)
            how["not_before"] = datetime.now(UTC) - timedelta(hours=2)
        issued = how.pop("authority", self.authority).issue_cert(
            f"{name}.example.org", common_name=name, **how
        )
        return write_certificate(self.folder / f"{name}.pem", issued)

    def do(self, work: Any) -> Any:
        """Run a coroutine on the broker's event loop."""
        loop = self._backend.loop
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    def add_user(self, name: str, password: str = PASSWORD) -> None:
        changes = [
            CredentialChange(
                user=name,
                mechanism=one,
                salted_password=salted_password(one, password, salt=SALT, iterations=4_096),
                salt=SALT,
                iterations=4_096,
            )
            for one in SCRAM
        ]
        errors = self.do(self.serving.login_changes.change_users({name: changes}))
        assert errors == {name: None}

    def remove_user(self, name: str) -> None:
        self.do(self.serving.login_changes.write(lambda view: remove_user(view, name)))


def write_certificate(path: Path, issued: trustme.LeafCert) -> str:
    path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    os.chmod(path, 0o600)
    return str(path)


def listener_settings(folder: Path) -> dict[str, Any]:
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    return {
        "listener.sasl.listen": "127.0.0.1:0",
        "listener.sasl.protocol": "SASL_SSL",
        "listener.sasl.sasl_enabled_mechanisms": mechanisms,
        "listener.clear.listen": "127.0.0.1:0",
        "listener.clear.protocol": "SASL_PLAINTEXT",
        "listener.clear.sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.mtls.listen": "127.0.0.1:0",
        "listener.mtls.protocol": "SSL",
        "listener.mtls.ssl_client_auth": "required",
        "listener.mtls.ssl_principal_mapping_rules": "RULE:^CN=([^,]*).*$/$1/",
        "listener.tls.listen": "127.0.0.1:0",
        "listener.tls.protocol": "SSL",
        "ssl_certificate_file": str(folder / "broker.pem"),
        "ssl_ca_file": str(folder / "ca.pem"),
        "connection_failed_authentication_delay_ms": 10,
    }


@contextmanager
def secured(
    folder: Path, *, settings: Mapping[str, Any] | None = None, **how: Any
) -> Iterator[SecuredBroker]:
    """A broker with the topic rides and the user alice."""
    authority = trustme.CA()
    write_certificate(folder / "broker.pem", authority.issue_cert("127.0.0.1"))
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    given = {**listener_settings(folder), **(settings or {})}
    with Broker(topics={"rides": 1}, settings=given, **how) as broker:
        made = SecuredBroker(broker, authority, folder)
        made.add_user("alice")
        yield made
