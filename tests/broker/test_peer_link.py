"""Requests to other brokers: real bytes there and back, and what cannot be read is no answer."""

import asyncio
from typing import Any

import pytest

from respool.broker.peer_link import PeerLink
from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api
from respool.wire.codec import decode_request, encode_reply

TWO = BrokerId(2)
ASKED: dict[str, Any] = {
    "replica_id": 1,
    "isolation_level": 0,
    "topics": [
        {
            "name": "rides",
            "partitions": [{"partition_index": 3, "current_leader_epoch": 4, "timestamp": -1}],
        }
    ],
}


class Peer:
    """Answers as the test says."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.channels: list[int] = []
        self.damage = 0

    def move_to(self, addresses: object) -> None: ...

    async def request(self, broker: BrokerId, frame: bytes, *, channel: int = 0) -> bytes:
        assert broker == TWO
        request = decode_request(memoryview(frame))
        self.requests.append(request)
        self.channels.append(channel)
        answer = {
            "partition_index": 3,
            "error_code": 0,
            "timestamp": -1,
            "offset": 77,
            "leader_epoch": 4,
        }
        topics = [{"name": "rides", "partitions": [answer]}]
        reply = bytes(encode_reply(request, {"throttle_time": 0, "topics": topics}))[4:]
        return reply[: len(reply) - self.damage]

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        raise NotImplementedError

    async def hold(self, broker: BrokerId, **_: Any) -> None: ...

    async def close(self) -> None: ...


def test_what_is_asked_by_its_fields_is_answered_by_its_fields() -> None:
    async def story() -> None:
        peer = Peer()
        link = PeerLink(peer, client_id="broker-1")
        reply = await link.ask(TWO, Api.LIST_OFFSETS, 8, channel=5, **ASKED)
        assert reply.topics[0].partitions[0].offset == 77
        (request,) = peer.requests
        assert request.client_id == "broker-1"
        assert request.body.topics[0].partitions[0].current_leader_epoch == 4
        assert peer.channels == [5]

    asyncio.run(story())


def test_every_request_has_a_number_of_its_own() -> None:
    async def story() -> None:
        peer = Peer()
        link = PeerLink(peer, client_id="broker-1")
        for _ in range(3):
            await link.ask(TWO, Api.LIST_OFFSETS, 8, **ASKED)
        assert len({one.correlation_id for one in peer.requests}) == 3
        link._correlation_id = 2**31 - 1
        await link.ask(TWO, Api.LIST_OFFSETS, 8, **ASKED)
        assert peer.requests[-1].correlation_id == 0

    asyncio.run(story())


@pytest.mark.parametrize("damage", [1, 8, 20])
def test_a_reply_that_cannot_be_read_is_none(damage: int) -> None:
    """What became of the request is unknown, as when no reply came."""

    async def story() -> None:
        peer = Peer()
        peer.damage = damage
        with pytest.raises(PeerUnreachable):
            await PeerLink(peer, client_id="broker-1").ask(TWO, Api.LIST_OFFSETS, 8, **ASKED)

    asyncio.run(story())
