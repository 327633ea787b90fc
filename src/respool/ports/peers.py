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

    async def request(
        self, broker: BrokerId, frame: bytes, *, channel: int = 0
    ) -> bytes | memoryview:
        """Send one request frame (without its size) and return its reply frame, which never changes.

        Requests to a peer on one channel are sent in call order and answered in that order. Channels do not wait for
        each other: requests that are answered late use a channel of their own.

        Raises:
            PeerUnreachable: no connection, or it broke before the reply came; `PeerRefused` if nothing listens.
        """
        ...

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        """True if this channel has a connection and it leads to an address of this host."""
        ...

    async def hold(self, broker: BrokerId, *, on_reached: Callable[[], None], ms_max: int) -> None:
        """Connect, call `on_reached`, and keep that connection, unused, until the peer closes it or `ms_max` has
        passed.

        Raises:
            PeerRefused: nothing listens there.
            PeerUnreachable: no connection, for another reason.
        """
        ...

    async def close(self) -> None:
        """Close all connections; their pending requests fail."""
        ...
