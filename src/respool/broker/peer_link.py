"""Requests from this broker to others, in Kafka's protocol: what is asked, by its fields, and what was answered."""

from typing import Any

from respool.model.ids import BrokerId
from respool.ports.peers import Peers, PeerUnreachable
from respool.wire.client_codec import decode_reply, encode_request
from respool.wire.errors import RequestMalformed

_SIZE_BYTES = 4


class PeerLink:
    def __init__(self, peers: Peers, *, me: BrokerId) -> None:
        self._peers = peers
        self._client_id = f"broker-{me}"
        self._correlation_id = 0

    async def ask(
        self, broker: BrokerId, key: int, version: int, *, lane: int = 0, **fields: Any
    ) -> Any:
        """Send a request of that kind and version, and return the reply's body; lanes: see `Peers.request`.

        Raises:
            PeerUnreachable: no reply came, or none that can be read; what became of the request is unknown.
        """
        self._correlation_id = (self._correlation_id + 1) % 2**31
        frame = encode_request(
            key, version, fields, correlation_id=self._correlation_id, client_id=self._client_id
        )
        reply = await self._peers.request(broker, frame[_SIZE_BYTES:], lane=lane)
        try:
            return decode_reply(key, version, reply)
        except RequestMalformed as error:
            raise PeerUnreachable(
                f"broker {broker} answered what cannot be read: {error}"
            ) from error
