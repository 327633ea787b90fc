"""A cluster of real brokers in one process, on simulated time: one store between them, and requests as bytes.

    @plays(brokers=2)
    async def test_a_claim(cluster: Cluster) -> None: ...

Time stands still while anything is ready, so nothing here waits for a clock on the wall. Between brokers there is no
network: a request is handed over, unless the way is cut.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial, wraps
from random import Random
from typing import Any

from broker.wire_client import decode_reply, encode_request
from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.outcome import Pipelined, Reply
from respool.broker.partitions.partition import Partition
from respool.broker.world import World
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.cluster import PartitionImage
from respool.model.errors import DiskFailed, RequestError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.ports.peers import PeerRefused, PeerUnreachable
from respool.records.batch import read_header
from respool.records.build import NewRecord, build_batch
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.net.simulated_objects import SimulatedObjects, SimulatedObjectStore
from respool.sim.net.simulated_store import SimStore, SimStoreClient
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.sim.runtime.simulated_sources import NodeClock, SimRandomSource
from respool.wire.api_table import Api
from respool.wire.codec import decode_request
from support.inline_offload import InlineOffload

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
TOPIC = "rides"

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
LATEST, EARLIEST = -1, -2

LAG_MS = 1_000
# Of simulated time. Nothing in these stories takes as long.
PATIENCE_S = 60.0


def plays(
    *, brokers: int = 2, **settings: Any
) -> Callable[[Callable[["Cluster"], Awaitable[None]]], Callable[[], None]]:
    """Run a test's story with so many brokers; at its end none may have failed."""

    def decorate(story: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
        @wraps(story)
        def test() -> None:
            loop = SimLoop()
            cluster = Cluster(loop, brokers, settings)

            async def play() -> None:
                await cluster.start()
                await story(cluster)
                cluster.check()

            loop.run(play)
            assert not loop.unhandled, loop.unhandled

        # pytest would look for a fixture of that name.
        del test.__wrapped__
        return test

    return decorate


class Node:
    """One machine, and the broker on it while it runs."""

    broker: Broker
    offload: InlineOffload
    store: SimStoreClient

    def __init__(self, cluster: "Cluster", number: BrokerId, settings: dict[str, Any]) -> None:
        self.id = number
        self.disk = SimDisk(Random(number))
        self.rng = SimRandomSource(number)
        self.process: Process | None = None
        self._cluster = cluster
        self._settings = settings

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    async def start(self, **settings: Any) -> None:
        """Start on what the last run left; return when it has its place in the cluster."""
        loop = self._cluster.loop
        self._settings |= settings
        self.disk = self.disk.reopen()
        self.process = loop.new_process(f"broker-{self.id}")
        self._gone: asyncio.Future[None] = loop.create_future()
        await self.process.spawn(self._start())

    def kill(self) -> None:
        """What was written stays; nothing of it runs any more, and its address refuses connections."""
        assert self.process is not None
        self.process.kill()
        self.disk.kill()
        self._gone.set_result(None)

    async def stop(self) -> None:
        assert self.process is not None
        await self.process.spawn(self._stop())
        self.process.kill()
        self._gone.set_result(None)

    def partition(self, number: int = 0, topic: str = TOPIC) -> Partition:
        return self.broker.partitions.find(topic, number)

    def log(self, number: int = 0) -> PartitionLog:
        return self.partition(number).log

    def values(self, number: int = 0) -> list[tuple[int, int]]:
        """The log's batches, committed or not: base offset and leader epoch of each."""
        return [(one.base_offset, one.leader_epoch) for one in batches(self.log(number))]

    def leads(self, number: int = 0) -> bool:
        try:
            return self.broker.partitions.find_leader(TOPIC, number).is_online
        except RequestError:
            return False

    def take_offline(self, number: int = 0) -> None:
        self.in_process(lambda: self.partition(number).go_offline(DiskFailed("as the test wants")))

    def in_process(self, work: Callable[[], object]) -> None:
        """Do something as this broker would: what it starts ends with it."""
        assert self.process is not None
        self.process.context.copy().run(work)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self.process is not None
        return await self.process.spawn(work)

    async def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """A client's request, and its reply."""
        reply = await self.answer(encode_request(api, version, **fields))
        return decode_reply(api, version, reply)

    async def answer(self, frame: memoryview | bytes) -> bytes:
        """Raises:
        PeerUnreachable: it died before it answered.
        """
        if not self.is_up:
            raise PeerRefused(f"broker {self.id} does not run")
        assert self.process is not None
        answering = self.process.spawn(self._answer(memoryview(frame)))
        await asyncio.wait({answering, self._gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise PeerUnreachable(f"broker {self.id} died")
        return b"".join(answering.result())

    async def _answer(self, frame: memoryview) -> Reply:
        outcome = handle(decode_request(frame), self.broker)
        if isinstance(outcome, Pipelined):
            return await outcome.wait()
        if isinstance(outcome, Coroutine):
            return await outcome
        return outcome

    async def _start(self) -> None:
        self.offload = InlineOffload()
        self.store = self._cluster.store.client(Random(self.id))
        self.broker = Broker(
            Settings.from_flat(
                broker_id=self.id,
                listen=f"127.0.0.{self.id}:9092",
                # Nobody connects there; it says that the store is not this broker's own.
                etcd="127.0.0.99:2379",
                **{"replica_lag_max_ms": LAG_MS, "session_ttl_ms": 4_000} | self._settings,
            ),
            World(
                clock=self._cluster.clock,
                disk=self.disk,
                store=self.store,
                offload=self.offload,
                metrics=SimMetrics(),
                rng=self.rng,
                peers=DirectPeers(self._cluster, self.id),
                objects=SimulatedObjectStore(self._cluster.objects),
            ),
        )
        await self.broker.start()
        await self.broker.join_cluster()

    async def _stop(self) -> None:
        await self.broker.leave_leadership()
        await self.broker.stop()
        await self.broker.leave_cluster()


class DirectPeers:
    """The other brokers, as one of them reaches them."""

    def __init__(self, cluster: "Cluster", me: BrokerId) -> None:
        self._cluster = cluster
        self._me = me

    def move_to(self, addresses: object) -> None: ...

    async def request(self, broker: BrokerId, frame: bytes, *, channel: int = 0) -> bytes:
        del channel
        self._check_way(broker)
        self._cluster.asked.append((self._me, broker, decode_request(memoryview(frame))))
        reply = await self._cluster.nodes[broker].answer(frame)
        await self._cluster.replies_may_pass.wait()
        self._check_way(broker)
        return reply[4:]

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        del broker, channel
        return self._cluster.is_one_machine

    async def hold(self, broker: BrokerId, *, on_reached: Callable[[], None], ms_max: int) -> None:
        node = self._cluster.nodes[broker]
        if not node.is_up:
            raise PeerRefused(f"broker {broker} does not run")
        on_reached()
        await asyncio.wait({node._gone}, timeout=ms_max / 1000)

    async def close(self) -> None: ...

    def _check_way(self, broker: BrokerId) -> None:
        if frozenset((self._me, broker)) in self._cluster.cuts:
            raise PeerUnreachable(f"no way from broker {self._me} to {broker}")


class Cluster:
    def __init__(self, loop: SimLoop, brokers: int, settings: dict[str, Any]) -> None:
        self.loop = loop
        self.clock = NodeClock(loop)
        self.store = SimStore(clock=self.clock)
        # The archive's bucket.
        self.objects = SimulatedObjects(rng=Random(1), clock=self.clock)
        self.cuts: set[frozenset[BrokerId]] = set()
        # Whether they read each other's files.
        self.is_one_machine = False
        # Replies between brokers wait for it.
        self.replies_may_pass = asyncio.Event()
        self.replies_may_pass.set()
        # All that brokers asked each other: from, to, request.
        self.asked: list[tuple[BrokerId, BrokerId, Any]] = []
        self.nodes = {
            number: Node(self, number, dict(settings))
            for number in map(BrokerId, range(1, brokers + 1))
        }

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()
        # Each has heard of all.
        await self.until(
            lambda: all(
                node.broker.image.brokers.keys() == self.nodes.keys()
                for node in self.nodes.values()
            )
        )

    def __getitem__(self, number: BrokerId) -> Node:
        return self.nodes[number]

    def check(self) -> None:
        for node in self.nodes.values():
            if node.is_up and node.broker.failed.done():
                raise node.broker.failed.result()

    def cut(self, one: BrokerId, other: BrokerId) -> None:
        self.cuts.add(frozenset((one, other)))

    def heal(self) -> None:
        self.cuts.clear()

    async def create(
        self, *assignment: Iterable[int], topic: str = TOPIC, at: BrokerId = ONE, **overrides: Any
    ) -> None:
        """A topic with these replicas of each partition; settings with `_` for `.`. Its leaders lead then."""
        await self[at].run(
            self[at].broker.topics.create(
                topic,
                partition_count=-1,
                replication_factor=-1,
                assignment=dict(enumerate(assignment)),
                overrides={key.replace("_", "."): str(value) for key, value in overrides.items()},
            )
        )
        for number, (first, *_) in enumerate(assignment):
            await self.until(partial(self._leads, BrokerId(first), number, topic))

    def _leads(self, broker: BrokerId, number: int, topic: str) -> bool:
        return (
            self.image(number, topic).leader == broker
            and self[broker].partition(number, topic).is_leading
        )

    def image(self, number: int = 0, topic: str = TOPIC) -> PartitionImage:
        """As a broker that runs has it."""
        node = next(one for one in self.nodes.values() if one.is_up)
        return node.broker.image.topics[topic].partitions[number]

    def leader(self, number: int = 0) -> Node:
        return next(one for one in self.nodes.values() if one.is_up and one.leads(number))

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait, in simulated time, until that is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not _holds(is_so):
                self.check()
                await asyncio.sleep(0.005)

    async def pass_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
        self.check()

    async def until_in_sync(self, *brokers: int, number: int = 0) -> None:
        await self.until(lambda: set(self.image(number).isr) == set(brokers))

    async def until_led(self, by: BrokerId, number: int = 0) -> None:
        await self.until(lambda: self[by].leads(number))

    async def produce(
        self,
        *values: bytes,
        at: BrokerId,
        number: int = 0,
        acks: int = -1,
        timeout_ms: int = 30_000,
        **batch: Any,
    ) -> Any:
        """One batch; what the leader says of it."""
        now_ms = self.clock.now_ms()
        records = [NewRecord(value=one, timestamp_ms=now_ms) for one in values or (b"v",)]
        reply = await self[at].ask(
            Api.PRODUCE,
            PRODUCE_VERSION,
            transactional_id=None,
            acks=acks,
            timeout=timeout_ms,
            topic_data=[
                {
                    "name": TOPIC,
                    "partition_data": [{"index": number, "records": build_batch(records, **batch)}],
                }
            ],
        )
        return reply.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        *,
        at: BrokerId,
        number: int = 0,
        version: int = FETCH_VERSION,
        **more: Any,
    ) -> Any:
        """A consumer's fetch, by default without waiting: the reply's partition."""
        wanted = {
            "partition": number,
            "current_leader_epoch": more.pop("leader_epoch", -1),
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        fields = {"max_wait": 0, "min_bytes": 1, "isolation_level": 0, "rack_id": ""} | more
        reply = await self[at].ask(
            Api.FETCH,
            version,
            replica_id=-1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": TOPIC, "partitions": [wanted]}],
            forgotten_topics_data=[],
            **fields,
        )
        return reply.responses[0].partitions[0]

    async def offset(self, timestamp: int, *, at: BrokerId, number: int = 0) -> Any:
        """What ListOffsets says."""
        wish = {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp}
        reply = await self[at].ask(
            Api.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": TOPIC, "partitions": [wish]}],
        )
        return reply.topics[0].partitions[0]

    async def delete_records(self, offset: int, *, at: BrokerId, timeout_ms: int = 30_000) -> Any:
        reply = await self[at].ask(
            Api.DELETE_RECORDS,
            2,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}],
            timeout=timeout_ms,
        )
        return reply.topics[0].partitions[0]


def batches(log: PartitionLog) -> list[Any]:
    """The headers of all batches in a log, whether committed or not."""
    data = bytes(
        log.read(
            ReadSpec(
                log.log_start,
                max_offset=log.log_end,
                bytes_max=1 << 26,
                with_empty=True,
            )
        )
    )
    headers = []
    while data:
        header = read_header(data)
        headers.append(header)
        data = data[header.size :]
    return headers


def _holds(is_so: Callable[[], object]) -> bool:
    try:
        return bool(is_so())
    except (RequestError, KeyError):
        # Not there yet.
        return False
