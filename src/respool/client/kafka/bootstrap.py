"""Where the brokers are when a caller does not say, and the words for an address at which there are none.

The command line, the Python clients and Spark's options share both: `RESPOOL_BROKER` means the same everywhere, and a
broker that is not running is reported in the same sentence.
"""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from respool.model.addresses import parse_address

ENVIRONMENT = "RESPOOL_BROKER"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# As long as no broker has ever answered, a wrong address is likelier than brokers that are all away. A user waits no
# longer than this for the error.
FIRST_CONTACT_MS = 1_000
# Instead, for a job that makes clients again and again and must outlive a broker's restart.
LASTING_CONTACT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """HOST:PORT of one broker or of several, with commas, and where that text came from."""

    servers: str
    # The name of an option or of a variable; empty for the default address.
    origin: str
    # What a caller sets for another address.
    option: str = "bootstrap="

    @classmethod
    def resolve(cls, given: "str | Bootstrap | None", *, option: str = "bootstrap=") -> "Bootstrap":
        """`given`, or else RESPOOL_BROKER as it is set now, or else this machine's own broker."""
        if isinstance(given, Bootstrap):
            return given
        if given is not None:
            return cls(given, option, option)
        if set_now := os.environ.get(ENVIRONMENT):
            return cls(set_now, ENVIRONMENT, option)
        return cls(DEFAULT_BOOTSTRAP, "", option)

    @classmethod
    def chosen(cls, servers: str, *, option: str) -> Self:
        """`servers` as the command line's parser chose it: from the option, the environment or the default."""
        if servers == os.environ.get(ENVIRONMENT):
            return cls(servers, ENVIRONMENT, option)
        return cls(
            servers, "" if servers == DEFAULT_BOOTSTRAP else option.split(maxsplit=1)[0], option
        )

    def no_broker(self, reasons: Iterable[str]) -> str:
        """The sentence for an address that nobody listens at; `reasons` has one entry for each of the servers."""
        origin = f"from {self.origin.rstrip('=')}" if self.origin else "the default address"
        return f"no broker at {self.servers}, {origin} ({'; '.join(reasons)})"

    @property
    def hint(self) -> str:
        """What to do about it."""
        return f"start one with: respool serve. Another address: {self.option} or {ENVIRONMENT}"


def failed_connections(bootstrap: Bootstrap, *, timeout_s: float) -> list[str]:
    """Why none of the servers accepts a TCP connection; empty when one does.

    Raises:
        SettingsError: one of them is no HOST:PORT.
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
    """Why no connection to HOST:PORT could be made, in the words of a user, not of the system's call."""
    if isinstance(error, socket.gaierror):
        return f"the name {address.rpartition(':')[0]!r} is unknown"
    if isinstance(error, TimeoutError):
        return f"{address} did not answer within {waited_s:g} seconds"
    return f"{address}: {(error.strerror or str(error)).lower()}"
