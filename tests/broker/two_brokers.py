"""Two brokers with one metadata store. Each has partitions of its own; between them are the real requests, as bytes.

They are not joined into a cluster: who leads what is written in the store, and nothing moves by itself.
"""

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from broker.running_broker import RunningBroker
from broker.transaction_client import (
    NEW,
    OLD,
    Producer,
    markers,
    settle,
    state_of,
    wait_until_loaded,
)
from respool.broker.broker import Broker
from respool.broker.peer_link import PeerLink
from respool.broker.world import World
from respool.cluster import keys
from respool.drivers.sqlite_store import SqliteStore
from respool.drivers.system_sources import SystemRandomSource
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from respool.model.internal_topics import INTERNAL_TOPICS
from respool.model.security.principal import NO_SESSION
from respool.model.settings import Settings
from respool.ports.peers import PeerUnreachable
from respool.records.markers import EndTransactionMarker
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.wire.api_table import Api
from respool.wire.codec import decode_request
from support.inline_offload import InlineOffload
from support.sim_clock import SimClock

ONE, TWO = BrokerId(1), BrokerId(2)
# Who leads each partition.
LAYOUT = {
    "rides": (ONE, TWO, TWO),
    "fares": (TWO, ONE),
    "__transaction_state": (ONE, TWO),
    "__consumer_offsets": (TWO, ONE),
}
NAMES = [
    TopicPartition(topic, number)
    for topic in ("rides", "fares")
    for number in range(len(LAYOUT[topic]))
]
OF_THE_ID = {Api.INIT_PRODUCER_ID, Api.ADD_OFFSETS_TO_TXN, Api.END_TXN}


class Network:
    """What lies between them: requests and replies may be late, or lost."""

    def __init__(self, random: Random) -> None:
        self.brokers: dict[BrokerId, RunningBroker] = {}
        self.random = random
        self.request_loss = 0.0
        self.reply_loss = 0.0
        self.delay_turns_max = 0
        self.cut_off: set[BrokerId] = set()
        # Whoever asks hears at once that there is no reply; the request is worked on all the same.
        self.is_impatient = False
        self._abandoned: list[asyncio.Task[Any]] = []
        # Replies wait for it.
        self.gate: asyncio.Event | None = None
        # All that was asked, by whom it was asked.
        self.asked: list[tuple[BrokerId, Any]] = []

    def bodies(self, api: Api) -> list[Any]:
        return [request.body for _, request in self.asked if request.api.key == api]

    async def request(self, broker: BrokerId, frame: bytes) -> bytes:
        self.asked.append((broker, decode_request(memoryview(frame))))
        await self._delay()
        if broker in self.cut_off or self.random.random() < self.request_loss:
            raise PeerUnreachable(f"broker {broker}: the request is lost")
        answering = asyncio.ensure_future(self.brokers[broker]._answer(memoryview(frame)))
        if self.is_impatient:
            self._abandoned.append(answering)
            await asyncio.sleep(0)
            raise PeerUnreachable(f"broker {broker}: there is no reply yet")
        reply = b"".join(await answering)
        if self.gate is not None:
            await self.gate.wait()
        await self._delay()
        if self.random.random() < self.reply_loss:
            raise PeerUnreachable(f"broker {broker}: the reply is lost")
        return reply[4:]

    async def _delay(self) -> None:
        for _ in range(self.random.randint(0, self.delay_turns_max)):
            await asyncio.sleep(0)


class NetworkPeers:
    def __init__(self, network: Network) -> None:
        self._network = network

    def move_to(self, addresses: Any) -> None: ...

    async def request(self, broker: BrokerId, frame: bytes, *, channel: int = 0) -> bytes:
        del channel
        return await self._network.request(broker, frame)

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        del broker, channel
        return False

    async def hold(self, broker: BrokerId, *, on_reached: Callable[[], None], ms_max: int) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class OneOfTwo(RunningBroker):
    def __init__(
        self, runner: asyncio.Runner, number: BrokerId, world: "TwoBrokers", **settings: Any
    ) -> None:
        self._runner = runner
        self._world = world
        self.session = NO_SESSION
        self.disk = SimDisk(Random(number))
        self.clock = world.clock
        self.offload = InlineOffload()
        self.store = world.store
        self.broker = runner.run(
            self._start(
                Settings.from_flat(
                    broker_id=number,
                    offsets_topic_partitions=2,
                    transactions_topic_partitions=2,
                    **settings,
                )
            )
        )

    def stop(self) -> None:
        self.run(self.broker.stop())

    async def _start(self, settings: Settings) -> Broker:
        broker = Broker(
            settings,
            World(
                clock=self.clock,
                disk=self.disk,
                store=self.store,
                offload=self.offload,
                metrics=SimMetrics(),
                rng=SystemRandomSource(),
            ),
        )
        # Only this of a cluster: nobody registers, and no controller looks after them.
        broker.link = PeerLink(NetworkPeers(self._world.network), client_id=f"broker-{broker.id}")
        await broker.start()
        return broker


class TwoBrokers:
    """Both, and clients of them: a request goes to the broker that can answer it."""

    def __init__(self, runner: asyncio.Runner, *, seed: int = 1) -> None:
        self._runner = runner
        self.network = Network(Random(seed))
        self.clock = SimClock()
        self.store = SqliteStore(":memory:", clock=self.clock, offload=InlineOffload())
        self._ids = {name: TopicId(uuid4()) for name in LAYOUT}
        runner.run(self._write_layout())
        self.one = OneOfTwo(runner, ONE, self)
        self.two = OneOfTwo(runner, TWO, self)
        self.network.brokers = {ONE: self.one, TWO: self.two}
        for broker in self:
            wait_until_loaded(broker)

    def __iter__(self) -> Iterator[RunningBroker]:
        return iter((self.one, self.two))

    @property
    def broker(self) -> Broker:
        """One of them: both have the same cluster image."""
        return self.one.broker

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def settle(self, times: int = 1) -> None:
        for _ in range(times):
            settle(self.one)

    def at(self, topic: str, partition: int = 0) -> RunningBroker:
        """The broker that leads the partition, as the store has it."""
        return self.network.brokers[self._image().topics[topic].partitions[partition].leader]

    def coordinator(self, transactional_id: str) -> RunningBroker:
        runtimes = self.one.broker.transactions.runtimes
        return self.at(runtimes.topic, runtimes.partition_of(transactional_id))

    def group_coordinator(self, group_id: str) -> RunningBroker:
        runtimes = self.one.broker.groups.runtimes
        return self.at(runtimes.topic, runtimes.partition_of(group_id))

    def transactional_id(self, at: RunningBroker, *, like: str = "bank") -> str:
        names = (f"{like}-{number}" for number in range(100))
        return next(one for one in names if self.coordinator(one) is at)

    def group_id(self, at: RunningBroker) -> str:
        return next(
            one for one in map("drivers-{}".format, range(100)) if self.group_coordinator(one) is at
        )

    async def answer(self, api: Api, version: int, **fields: Any) -> Any:
        return await self._broker_for(api, fields).answer(api, version, **fields)

    def set_leader(self, name: TopicPartition, leader: BrokerId | None) -> None:
        """Write another leader down; what it leads it must have got from the test."""
        held = self._image().topics[name.topic].partitions[name.partition]
        image = PartitionImage(
            replicas=held.replicas,
            isr=held.isr,
            leader=leader,
            leader_epoch=LeaderEpoch(held.leader_epoch + 1),
        )
        key = keys.partition_key(self._ids[name.topic], name.partition)
        self.run(self.store.transact(puts={key: keys.encode_partition(image)}))
        self.look()

    def look(self) -> None:
        """Both see what is in the store now."""

        async def look() -> None:
            for broker in self:
                await broker.broker.catalog.read_view()

        self.run(look())

    def stop(self) -> None:
        for broker in self:
            broker.stop()
        self.run(self.store.close())

    def _image(self) -> Any:
        return self.one.broker.image

    def _broker_for(self, api: Api, fields: dict[str, Any]) -> RunningBroker:
        if api in OF_THE_ID:
            return self.coordinator(fields["transactional_id"])
        if api == Api.ADD_PARTITIONS_TO_TXN:
            return self.coordinator(fields["v3_and_below_transactional_id"])
        if api == Api.TXN_OFFSET_COMMIT:
            return self.group_coordinator(fields["group_id"])
        assert api == Api.PRODUCE, api
        (topic,) = fields["topic_data"]
        (partition,) = topic["partition_data"]
        return self.at(topic["name"], partition["index"])

    async def _write_layout(self) -> None:
        puts: dict[str, bytes] = {}
        for broker in (ONE, TWO):
            endpoint = BrokerEndpoint(id=broker, host=f"broker-{broker}", port=9092)
            puts[keys.broker_key(broker)] = keys.encode_broker(
                keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=broker))
            )
        for name, leaders in LAYOUT.items():
            record = keys.TopicRecord(
                id=self._ids[name],
                overrides=INTERNAL_TOPICS.get(name, {}),
                partition_count=len(leaders),
            )
            puts[keys.topic_key(name)] = keys.encode_topic(record)
            for number, leader in enumerate(leaders):
                image = PartitionImage(
                    replicas=(leader,), isr=(leader,), leader=leader, leader_epoch=LeaderEpoch(0)
                )
                puts[keys.partition_key(record.id, number)] = keys.encode_partition(image)
        await self.store.transact(puts=puts)


both_protocols = pytest.mark.parametrize("speaks", [OLD, NEW], ids=["version 1", "version 2"])
either_way = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])


async def call(work: Callable[[], object]) -> None:
    work()


def producer_at(
    world: TwoBrokers,
    speaks: dict[str, int] = OLD,
    *,
    coordinator: RunningBroker | None = None,
    like: str = "bank",
) -> Producer:
    """One whose coordinator is that broker, by default the first."""
    name = world.transactional_id(at=coordinator or world.one, like=like)
    return Producer(world, name, speaks=speaks)  # type: ignore[arg-type]


def ends_at(world: TwoBrokers, name: TopicPartition) -> list[EndTransactionMarker]:
    return markers(world.at(*name), *name)


def state(world: TwoBrokers, producer: Producer) -> str:
    return state_of(world.coordinator(producer.transactional_id), producer.transactional_id)


def coordinator_epoch(world: TwoBrokers, producer: Producer) -> int:
    runtimes = world.coordinator(producer.transactional_id).broker.transactions.runtimes
    return runtimes.runtime_of(producer.transactional_id).leader_epoch


def end(world: TwoBrokers, producer: Producer, *, commit: bool) -> None:
    assert producer.end(commit=commit) == 0
    world.settle(3)
