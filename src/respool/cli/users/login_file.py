"""Files with a login, as client properties, and with how to reach the brokers where that is known."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from respool.cli.connection_options import BrokerConnection


def write_login(path: Path, login: Sequence[str], connection: BrokerConnection) -> None:
    """Write a new file that others cannot read, not even for a moment; an existing one is not overwritten."""
    lines = [*_connection_lines(connection), *login]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def _connection_lines(connection: BrokerConnection) -> list[str]:
    """Address, protocol and authority of a connection with a login, for another user of the same listener."""
    from respool.client.kafka.security_properties import PROTOCOL, properties_of

    security = connection.security
    if security.login is None:
        # The new user cannot log in where this command has connected to.
        return []
    tls = security.tls
    # The certificate and its key are those of who runs this command.
    shared = None if tls is None else replace(tls, certificate=None, key=None, key_password=None)
    named = {
        "bootstrap.servers": connection.bootstrap,
        **properties_of(replace(security, tls=shared)),
    }
    wanted = ("bootstrap.servers", PROTOCOL, "ssl.ca.location", "ssl.ca.pem")
    return [f"{name}={escaped(named[name])}" for name in wanted if name in named]


def escaped(text: str) -> str:
    """A value in the format of Java properties."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
