"""A real broker on a simulated machine, reached over a simulated network."""

import asyncio
from random import Random
from typing import Any

import pytest

from respool.drivers.tcp_peers import TcpPeers
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.machine import Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock
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
        settings=Settings.from_flat(broker_id=1, listen="127.0.0.1:9092"),
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


async def create_and_describe(peers: TcpPeers) -> Any:
    topic = {"name": "rides", "num_partitions": 1, "replication_factor": 1}
    await ask(peers, Api.CREATE_TOPICS, 7, topics=[{**topic, "assignments": [], "configs": []}])
    return await describe(peers)


async def produce(peers: TcpPeers) -> Any:
    """A topic is only in the metadata store; its first record goes to the disk."""
    records = build_batch([NewRecord(value=b"v", timestamp_ms=0)])
    data = [{"name": "rides", "partition_data": [{"index": 0, "records": records}]}]
    return await ask(
        peers, Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=500, topic_data=data
    )


async def describe(peers: TcpPeers) -> Any:
    reply = await ask(
        peers,
        Api.METADATA,
        12,
        topics=[{"topic_id": None, "name": "rides"}],
        include_topic_authorized_operations=False,
    )
    (partition,) = reply.topics[0].partitions
    return partition


@pytest.mark.parametrize("how", ["kill", "power cut", "clean stop"])
def test_a_broker_comes_back_with_what_it_had(how: str) -> None:
    loop = SimLoop(1)

    async def story() -> None:
        machine = new_machine(loop)
        machine.start()
        await asyncio.sleep(1)
        peers = TcpPeers({ONE: machine.address}, connect_timeout_ms=500, request_timeout_ms=1_000)
        before = await create_and_describe(peers)
        if how == "kill":
            machine.kill()
        elif how == "power cut":
            machine.cut_power()
        else:
            await machine.stop()
        assert not machine.is_up
        with pytest.raises(PeerUnreachable):
            await describe(peers)
        machine.start()
        await asyncio.sleep(1)
        after = await describe(peers)
        # A new leadership, where something may have been lost.
        assert after.leader_epoch == before.leader_epoch + (how != "clean stop")
        await peers.close()
        await machine.stop()
        assert machine.failure is None
        assert loop.unfinished_tasks() == []

    loop.run(story)
    assert loop.unhandled == []


def test_a_paused_broker_answers_when_it_goes_on() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        machine = new_machine(loop)
        machine.start()
        await asyncio.sleep(1)
        peers = TcpPeers({ONE: machine.address})
        await create_and_describe(peers)
        machine.pause()
        waiting = asyncio.ensure_future(describe(peers))
        await asyncio.sleep(20)
        assert not waiting.done()
        machine.resume()
        assert (await waiting).leader_id == 1
        await peers.close()
        await machine.stop()

    loop.run(story)


def test_power_lost_in_the_middle_of_a_write_ends_the_process_at_once() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        machine = new_machine(loop)
        machine.start()
        await asyncio.sleep(1)
        peers = TcpPeers({ONE: machine.address}, connect_timeout_ms=500, request_timeout_ms=1_000)
        machine.disk.faults.cut_power_after(0)
        await create_and_describe(peers)
        with pytest.raises(PeerUnreachable):
            await produce(peers)
        assert not machine.is_up
        machine.start()
        await asyncio.sleep(1)
        await create_and_describe(peers)
        await peers.close()
        await machine.stop()
        assert machine.failure is None

    loop.run(story)
    assert loop.unhandled == []
