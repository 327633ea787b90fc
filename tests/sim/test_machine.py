"""A real broker on a simulated machine, reached over a simulated network."""

import asyncio
from random import Random
from typing import Any

import pytest

from respool.drivers.tcp_peers import TcpPeers
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.ports.peers import PeerUnreachable
from respool.sim.clock import NodeClock
from respool.sim.loop import SimLoop
from respool.sim.machine import Machine
from respool.sim.network import SimNetwork
from respool.sim.store import SimStore
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request

ONE = BrokerId(1)


def new_machine(loop: SimLoop, seed: int = 1) -> Machine:
    network = SimNetwork(loop, Random(seed))
    loop.network = network
    return Machine(
        loop=loop,
        network=network,
        store=SimStore(clock=NodeClock(loop)),
        settings=Settings(broker_id=1, listen="127.0.0.1:9092"),
        seed=seed,
    )


async def ask(peers: TcpPeers, api: Api, version: int, **fields: Any) -> Any:
    frame = encode_request(api, version, fields, correlation_id=1, client_id="test")[4:]
    return decode_reply(api, version, await peers.request(ONE, frame))


def test_a_client_is_answered_by_the_broker() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        machine = new_machine(loop)
        machine.start()
        peers = TcpPeers({ONE: machine.address})
        with pytest.raises(PeerUnreachable):
            # It takes a moment to open its door.
            await ask(
                peers, Api.API_VERSIONS, 3, client_software_name="t", client_software_version="1"
            )
        await asyncio.sleep(1)
        reply = await ask(
            peers, Api.API_VERSIONS, 3, client_software_name="t", client_software_version="1"
        )
        assert reply.error_code == 0
        await peers.close()
        await machine.stop()
        assert machine.failure is None
        assert loop.unfinished_tasks() == []

    loop.run(story)
    assert loop.unhandled == []
