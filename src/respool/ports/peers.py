"""Requests to other brokers."""

from collections.abc import Callable, Mapping
from typing import Protocol

from respool.model.ids import BrokerId


class PeerUnreachable(Exception):
    """The peer did not reply; whether it processed the request is unknown."""


class PeerRefused(PeerUnreachable):
    """The peer's machine refused the connection: nothing listens at its address."""


class Peers(Protocol):
    def move_to(self, addresses: Mapping[BrokerId, tuple[str, int]]) -> None:
        """Set the brokers and their addresses. Pending requests to other addresses fail."""
        ...

    async def request(self, broker: BrokerId, frame: bytes, *, lane: int = 0) -> bytes | memoryview:
        """Send one request frame (without its size) and return the reply frame to it, which nobody changes any more.

        Requests to one peer in one lane are sent in the order of the calls and answered in that order. Lanes do not
        wait for each other: what is answered late goes in one of its own.

        Raises:
            PeerUnreachable: no connection, or it broke before the reply came. `PeerRefused` where nothing listens.
        """
        ...

    def is_on_this_host(self, broker: BrokerId, *, lane: int = 0) -> bool:
        """True if this lane has a connection and it leads to an address of this host."""
        ...

    async def hold(self, broker: BrokerId, *, on_reached: Callable[[], None], ms_max: int) -> None:
        """Connect, tell `on_reached`, and keep that connection, unused, until the peer ends it or for so long.

        Raises:
            PeerRefused: nothing listens there.
            PeerUnreachable: no connection, for another reason.
        """
        ...

    async def close(self) -> None:
        """End all connections; requests waiting there fail."""
        ...
