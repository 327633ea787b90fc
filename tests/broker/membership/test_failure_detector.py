"""A broker whose process is gone loses its lease; one that is silent, stopping, or back again keeps it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

from respool.broker.membership.failure_detector import FailureDetector
from respool.cluster import keys
from respool.drivers.tcp_peers import TcpPeers
from respool.model.cluster import BrokerEndpoint, ClusterImage
from respool.model.ids import BrokerId
from respool.ports.metadata_store import StoredValue
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
DEAD_AFTER_MS = 1_000
# Far longer than it takes to notice anything.
LONG_S = 60.0


class Stage:
    """This broker, and another that is registered and listens, in virtual time."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = loop.network = SimNetwork(loop, Random(7))
        self.clock = NodeClock(loop)
        self.store = SimStore(clock=self.clock)
        self.client = self.store.client()
        self.here = loop.new_process("here")
        self.peers = TcpPeers(connect_timeout_ms=500)
        self.visits = 0
        self.may_act = True
        self.controller = ME
        self.other = BrokerEndpoint(id=OTHER, host="there", port=9092)

    def watch(self, *, dead_after_ms: int = DEAD_AFTER_MS) -> None:
        self.watching = FailureDetector(
            me=ME,
            dead_after_ms=dead_after_ms,
            store=self.client,
            peers=self.peers,
            clock=self.clock,
            may_act=lambda: self.may_act,
            spawn=self.here.spawn,
        )
        self.tell()

    def tell(self) -> None:
        """What the store has, as the broker's image would show it."""
        me = BrokerEndpoint(id=ME, host="here", port=9092)
        brokers = {ME: me}
        stored = self.registration
        if stored is not None:
            read = keys.decode_broker(OTHER, stored.value, revision=stored.revision)
            brokers[OTHER] = read.endpoint
        self.peers.move_to({one.id: (one.host, one.port) for one in brokers.values()})
        self.watching.on_image(
            ClusterImage(cluster_id="c", brokers=brokers, controller=self.controller)
        )

    def register(self, **changes: Any) -> None:
        self.other = replace(self.other, **changes)
        lease = self.store.grant_lease(1_000_000)
        registration = keys.BrokerRegistration(
            endpoint=self.other, incarnation=UUID(int=lease), lease=lease
        )
        self.put(registration)

    def put(self, registration: keys.BrokerRegistration) -> None:
        self.store.transact(
            guards=(),
            puts={keys.broker_key(OTHER): keys.encode_broker(registration)},
            deletes=(),
            lease=registration.lease,
        )

    @property
    def registration(self) -> StoredValue | None:
        return self.store.get(keys.broker_key(OTHER))

    async def start_other(self) -> Process:
        process = self.loop.new_process("other", host="there")

        async def listen() -> Any:
            return await self.loop.create_server(self._accept, "there", 9092)

        await process.spawn(listen())
        return process

    def _accept(self) -> asyncio.Protocol:
        self.visits += 1
        return asyncio.Protocol()

    def kill(self, process: Process, *, power_cut: bool = False) -> None:
        process.kill()
        self.network.on_process_gone(process, power_cut=power_cut)


def play(story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop(1)

    async def run() -> None:
        await story(Stage(loop))

    loop.run(run)
    assert loop.unhandled == []


async def watched(stage: Stage, **settings: int) -> Process:
    """The other runs, and its connection is held."""
    process = await stage.start_other()
    stage.register()
    stage.watch(**settings)
    await asyncio.sleep(1)
    assert stage.visits == (1 if settings.get("dead_after_ms", 1) else 0)
    return process


def test_a_killed_broker_s_lease_is_ended() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.kill(process)
        await asyncio.sleep(DEAD_AFTER_MS / 1000 - 0.1)
        assert stage.registration is not None
        await asyncio.sleep(0.5)
        assert stage.registration is None

    play(story)


def test_a_broker_that_runs_costs_a_connection_now_and_then_and_keeps_its_lease() -> None:
    async def story(stage: Stage) -> None:
        await watched(stage)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None
        assert stage.visits <= 3

    play(story)


def test_a_machine_without_power_and_a_cut_network_are_left_to_the_lease() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.network.cut("here", "there")
        await asyncio.sleep(LONG_S)
        stage.network.heal()
        stage.kill(process, power_cut=True)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_one_that_is_back_in_time_keeps_its_lease() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.kill(process)
        await asyncio.sleep(DEAD_AFTER_MS / 2000)
        await stage.start_other()
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_one_that_registers_anew_at_an_address_that_refuses_is_not_pushed_out_again() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.kill(process)
        await asyncio.sleep(2)
        assert stage.registration is None
        stage.tell()
        stage.register()
        stage.tell()
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_one_that_is_about_to_stop_leaves_by_itself() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stored = stage.registration
        assert stored is not None
        read = keys.decode_broker(OTHER, stored.value, revision=stored.revision)
        stage.put(replace(read, endpoint=replace(read.endpoint, is_draining=True)))
        stage.kill(process)
        # Not yet seen here, or seen: it makes no difference.
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None
        stage.tell()
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_a_registration_that_names_no_lease_is_left_alone() -> None:
    async def story(stage: Stage) -> None:
        process = await stage.start_other()
        stage.put(
            keys.BrokerRegistration(
                endpoint=BrokerEndpoint(id=OTHER, host="there", port=9092), incarnation=UUID(int=1)
            )
        )
        stage.watch()
        await asyncio.sleep(1)
        stage.kill(process)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_the_registration_after_the_dead_one_is_not_touched() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.kill(process)
        # The image lags: here nobody has heard of it.
        stage.register()
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_who_is_not_the_controller_tells_of_nobody_but_the_controller() -> None:
    async def story(stage: Stage) -> None:
        stage.controller = THIRD
        process = await watched(stage)
        stage.kill(process)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None
        # It has known for long, so it tells at once.
        stage.controller = OTHER
        stage.tell()
        await asyncio.sleep(0.3)
        assert stage.registration is None

    play(story)


def test_who_may_not_act_tells_of_nobody() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.may_act = False
        stage.kill(process)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)


def test_a_store_that_does_not_answer_is_told_later() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        stage.client.conditions.is_disconnected = True
        stage.kill(process)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None
        stage.client.conditions.is_disconnected = False
        await asyncio.sleep(5)
        assert stage.registration is None

    play(story)


def test_one_that_refuses_is_suspected_until_it_is_gone_or_takes_connections_again() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage)
        assert stage.watching.suspects == set()
        stage.kill(process)
        await asyncio.sleep(0.1)
        assert stage.watching.suspects == {OTHER}
        again = await stage.start_other()
        await asyncio.sleep(0.5)
        assert stage.watching.suspects == set()
        stage.kill(again)
        await asyncio.sleep(2)
        assert stage.registration is None
        assert stage.watching.suspects == {OTHER}
        stage.tell()
        assert stage.watching.suspects == set()

    play(story)


def test_one_that_refuses_only_here_is_not_suspected_for_ever() -> None:
    async def story(stage: Stage) -> None:
        stage.controller = THIRD
        process = await watched(stage)
        stage.kill(process)
        await asyncio.sleep(DEAD_AFTER_MS / 1000)
        assert stage.watching.suspects == {OTHER}
        await asyncio.sleep(LONG_S)
        assert stage.watching.suspects == set()

    play(story)


def test_nobody_is_watched_when_it_is_switched_off() -> None:
    async def story(stage: Stage) -> None:
        process = await watched(stage, dead_after_ms=0)
        stage.kill(process)
        await asyncio.sleep(LONG_S)
        assert stage.registration is not None

    play(story)
