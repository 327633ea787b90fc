"""The default bootstrap servers, and the error messages for an address without a broker.

The command line, the Python clients and Spark's options share both: `RESPOOL_BROKER` means the same everywhere, and
a broker that is not running is reported with the same message.
"""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from respool.model.addresses import parse_address

ENVIRONMENT = "RESPOOL_BROKER"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# While no broker has ever answered, a wrong address is likelier than an outage of all brokers, so the user waits at
# most this long for the error.
FIRST_CONTACT_MS = 1_000
# The limit at an address that drops packets; it is tried once. TCP sends its SYN again after a second, so one may be
# lost, and a round trip may take a second.
FIRST_CONNECT_MS = 2_000
# Used instead for jobs that create clients repeatedly and must survive a broker restart.
LASTING_CONTACT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """HOST:PORT of one broker or of several, separated by commas, and the source of that text."""

    servers: str
    # The name of an option or an environment variable; empty for the default address.
    origin: str
    # The option with which a caller sets another address.
    option: str = "bootstrap="

    @classmethod
    def resolve(cls, given: "str | Bootstrap | None", *, option: str = "bootstrap=") -> "Bootstrap":
        """Return `given`, or else RESPOOL_BROKER from the environment, or else this machine's own broker."""
        if isinstance(given, Bootstrap):
            return given
        if given is not None:
            return cls(given, option, option)
        if set_now := os.environ.get(ENVIRONMENT):
            return cls(set_now, ENVIRONMENT, option)
        return cls(DEFAULT_BOOTSTRAP, "", option)

    @classmethod
    def chosen(cls, servers: str, *, option: str) -> Self:
        """Wrap `servers` as parsed by the command line, whether from the option, the environment or the default."""
        if servers == os.environ.get(ENVIRONMENT):
            return cls(servers, ENVIRONMENT, option)
        return cls(
            servers, "" if servers == DEFAULT_BOOTSTRAP else option.split(maxsplit=1)[0], option
        )

    def no_broker(self, reasons: Iterable[str]) -> str:
        """The error message for an address that refuses connections; `reasons` has one entry per server."""
        origin = f"from {self.origin.rstrip('=')}" if self.origin else "the default address"
        return f"no broker at {self.servers}, {origin} ({'; '.join(reasons)})"

    @property
    def hint(self) -> str:
        """Advice on how to fix the error."""
        return f"start one with: respool serve. Another address: {self.option} or {ENVIRONMENT}"


def failed_connections(bootstrap: Bootstrap, *, timeout_s: float) -> list[str]:
    """Return for each server why it accepts no TCP connection; empty if one accepts.

    Raises:
        SettingsError: one of them is not HOST:PORT.
    """
    reasons: list[str] = []
    name = bootstrap.origin or bootstrap.option
    for text in bootstrap.servers.split(","):
        address = parse_address(name, text.strip())
        try:
            socket.create_connection(address, timeout=timeout_s).close()
        except OSError as error:
            reasons.append(why_no_connection(text.strip(), error, waited_s=timeout_s))
        else:
            return []
    return reasons


def why_no_connection(address: str, error: OSError, *, waited_s: float) -> str:
    """Describe in plain words why the connection to HOST:PORT failed."""
    if isinstance(error, socket.gaierror):
        return f"the name {address.rpartition(':')[0]!r} is unknown"
    if isinstance(error, TimeoutError):
        return f"{address} did not answer within {waited_s:g} seconds"
    return f"{address}: {(error.strerror or str(error)).lower()}"
