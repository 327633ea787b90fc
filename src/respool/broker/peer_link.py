"""Requests to other brokers in Kafka's protocol: takes fields, returns the decoded reply."""

from collections.abc import Mapping
from typing import Any

from respool.model.ids import BrokerId
from respool.ports.peers import Peers, PeerUnreachable
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request
from respool.wire.fetch_reply import FetchReplyView, read_fetch_reply
from respool.wire.protocol_errors import RequestMalformed

_SIZE_BYTES = 4


class PeerLink:
    def __init__(self, peers: Peers, *, client_id: str) -> None:
        self._peers = peers
        self._client_id = client_id
        self._correlation_id = 0

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        """See `Peers.is_on_this_host`."""
        return self._peers.is_on_this_host(broker, channel=channel)

    async def ask(
        self, broker: BrokerId, key: int, version: int, *, channel: int = 0, **fields: Any
    ) -> Any:
        """Send a request of this API and version, and return the reply's body; for channels see `Peers.request`.

        Raises:
            PeerUnreachable: there was no reply, or an unreadable one; the request's outcome is unknown.
        """
        reply = await self._request(broker, key, version, fields, channel)
        try:
            return decode_reply(key, version, reply)
        except RequestMalformed as error:
            raise _unreadable(broker, error) from error

    async def fetch(
        self, broker: BrokerId, version: int, *, channel: int, **fields: Any
    ) -> FetchReplyView:
        """Send a Fetch, as `ask` does; the records of the reply are not copied.

        Raises:
            PeerUnreachable: see `ask`.
        """
        reply = await self._request(broker, Api.FETCH, version, fields, channel)
        try:
            return read_fetch_reply(memoryview(reply), version)
        except RequestMalformed as error:
            raise _unreadable(broker, error) from error

    async def _request(
        self, broker: BrokerId, key: int, version: int, fields: Mapping[str, Any], channel: int
    ) -> bytes | memoryview:
        self._correlation_id = (self._correlation_id + 1) % 2**31
        frame = encode_request(
            key, version, fields, correlation_id=self._correlation_id, client_id=self._client_id
        )
        return await self._peers.request(broker, frame[_SIZE_BYTES:], channel=channel)


def _unreadable(broker: BrokerId, error: RequestMalformed) -> PeerUnreachable:
    return PeerUnreachable(f"broker {broker} answered what cannot be read: {error}")
