"""What all simulated clients share: a process of their own, connections to brokers, known leaders and coordinators.

A client sends bytes over the simulated network and retries as real clients do. It looks up leaders and
coordinators, and does so again when a broker returns NOT_LEADER or NOT_COORDINATOR, or does not reply.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from respool.drivers.tcp_peers import TcpPeers
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.clock import Clock
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.history import History
from respool.sim.runtime.sim_loop import SimLoop
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request

OK = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
NOT_CONTROLLER = 41
OUT_OF_ORDER_SEQUENCE = 45
DUPLICATE_SEQUENCE = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
CONCURRENT_TRANSACTIONS = 51
STORAGE_ERROR = 56
PRODUCER_FENCED = 90

# Transient errors: a retry may succeed, maybe with another broker.
RETRIABLE = frozenset(
    {
        UNKNOWN_TOPIC,
        5,  # LEADER_NOT_AVAILABLE
        NOT_LEADER,
        REQUEST_TIMED_OUT,
        8,  # BROKER_NOT_AVAILABLE
        9,  # REPLICA_NOT_AVAILABLE
        13,  # NETWORK_EXCEPTION
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        19,  # NOT_ENOUGH_REPLICAS
        20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        NOT_CONTROLLER,
        CONCURRENT_TRANSACTIONS,
        STORAGE_ERROR,
        74,  # FENCED_LEADER_EPOCH
        75,  # UNKNOWN_LEADER_EPOCH
        78,  # OFFSET_NOT_AVAILABLE
        88,  # UNSTABLE_OFFSET_COMMIT
        100,  # UNKNOWN_TOPIC_ID
    }
)
Coordinator = Literal["group", "transaction"]
_KEY_TYPES: Mapping[Coordinator, int] = {"group": 0, "transaction": 1}


class SimClient:
    """One client process. Subclasses implement `work`."""

    def __init__(
        self,
        name: str,
        *,
        loop: SimLoop,
        clock: Clock,
        rng: Random,
        history: History,
        brokers: Mapping[BrokerId, tuple[str, int]],
        request_timeout_ms: int = 5_000,
    ) -> None:
        self.name = name
        self.loop = loop
        self.clock = clock
        self.rng = rng
        self.history = history
        self.process = loop.new_process(name)
        # True when no new work may begin.
        self.is_winding_down = False
        self._brokers = brokers
        self._request_timeout_ms = request_timeout_ms
        self._peers = self._new_peers()
        # JoinGroup replies only when all members have joined.
        self._patient_peers = TcpPeers(brokers, connect_timeout_ms=2_000, request_timeout_ms=45_000)
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._coordinators: dict[tuple[Coordinator, str], BrokerId] = {}
        # A18: the newest leader epoch of each partition in replies.
        self._epochs: dict[TopicPartition, int] = {}
        # A single broker knows the newest state. One of several may be behind the others.
        self.is_cluster = len(brokers) > 1
        self._correlation_id = 0

    def start(self) -> "asyncio.Task[None]":
        return self.process.spawn(self._run(), name=self.name)

    async def work(self) -> None:
        raise NotImplementedError

    async def _run(self) -> None:
        try:
            await self.work()
        finally:
            await self.close()

    def _new_peers(self) -> TcpPeers:
        return TcpPeers(
            self._brokers, connect_timeout_ms=2_000, request_timeout_ms=self._request_timeout_ms
        )

    async def lose_connections(self) -> None:
        """As a process that dies: brokers see its connections end."""
        peers, self._peers = self._peers, self._new_peers()
        await peers.close()

    async def close(self) -> None:
        await self._peers.close()
        await self._patient_peers.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def ask(
        self,
        broker: BrokerId,
        api: Api,
        version: int,
        *,
        patiently: bool = False,
        channel: int = 0,
        **fields: Any,
    ) -> Any:
        """Send a request and return the reply. Each channel is a connection of its own.

        Raises:
            PeerUnreachable: the request's outcome is unknown.
        """
        self._correlation_id += 1
        self.history.counts["requests"] += 1
        frame = encode_request(
            api, version, fields, correlation_id=self._correlation_id, client_id=self.name
        )
        peers = self._patient_peers if patiently else self._peers
        number = self._correlation_id
        self._tell(f"#{number} {api.name} to {broker}")
        try:
            reply = await peers.request(broker, frame[4:], channel=channel)
        except PeerUnreachable as error:
            self._tell(f"#{number} {api.name}: {error}")
            raise
        self._tell(f"#{number} {api.name} is answered, {len(reply)} bytes")
        return decode_reply(api, version, reply)

    def _tell(self, text: str) -> None:
        if self.loop.trace.is_shown:
            self.loop.trace.tell(self.loop.time(), f"{self.name}: {text}")

    async def ask_leader(self, name: TopicPartition, api: Api, version: int, **fields: Any) -> Any:
        """Send a request to the leader we know; forget the leader if it does not reply."""
        broker = await self.leader_of(name)
        try:
            return await self.ask(broker, api, version, **fields)
        except PeerUnreachable:
            self._leaders.pop(name, None)
            raise

    async def ask_coordinator(
        self, kind: Coordinator, key: str, api: Api, version: int, **fields: Any
    ) -> Any:
        broker = self._coordinators.get((kind, key))
        if broker is None:
            broker = await self._find_coordinator(kind, key)
        try:
            return await self.ask(broker, api, version, **fields)
        except PeerUnreachable:
            self._coordinators.pop((kind, key), None)
            raise

    def on_code(
        self,
        code: int,
        *,
        leader: TopicPartition | None = None,
        coordinator: tuple[Coordinator, str] | None = None,
    ) -> None:
        """Forget a leader or coordinator that this error shows to be wrong, so that it is looked up again."""
        if code and leader is not None:
            self._leaders.pop(leader, None)
        if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR) and coordinator is not None:
            self._coordinators.pop(coordinator, None)

    async def leader_of(self, name: TopicPartition) -> BrokerId:
        while name not in self._leaders:
            await self._look_up(name)
        return self._leaders[name]

    async def _look_up(self, name: TopicPartition) -> None:
        topics = [{"topic_id": None, "name": name.topic}]
        try:
            reply = await self.ask(
                self.any_broker(),
                Api.METADATA,
                12,
                topics=topics,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        except PeerUnreachable:
            await self.pause()
            return
        for topic in reply.topics:
            for one in topic.partitions:
                found = TopicPartition(topic.name, one.partition_index)
                if not self.on_epoch(found, one.leader_epoch):
                    continue
                if one.leader_id >= 0:
                    self._leaders[found] = BrokerId(one.leader_id)
                else:
                    # Do not use the former leader in the new epoch: it may know the epoch, and yet be behind.
                    self._leaders.pop(found, None)
        if name not in self._leaders:
            await self.pause()

    def on_epoch(self, name: TopicPartition, epoch: int) -> bool:
        """Learn a leader epoch. False if it is outdated, so that the client ignores this reply."""
        before = self._epochs.get(name, -1)
        if epoch < before and not self.is_cluster:
            self.history.violate("A18", f"{self.name}: {name} has epoch {epoch}, {before} before")
        self._epochs[name] = max(before, epoch)
        return epoch >= before

    def epoch_of(self, name: TopicPartition) -> int:
        """The leader epoch to send in requests; -1 if none is known."""
        return self._epochs.get(name, -1)

    async def _find_coordinator(self, kind: Coordinator, key: str) -> BrokerId:
        while True:
            try:
                reply = await self.ask(
                    self.any_broker(),
                    Api.FIND_COORDINATOR,
                    4,
                    key_type=_KEY_TYPES[kind],
                    coordinator_keys=[key],
                )
            except PeerUnreachable:
                await self.pause()
                continue
            (found,) = reply.coordinators
            if int(found.error_code) == OK:
                broker = self._coordinators[kind, key] = BrokerId(found.node_id)
                return broker
            await self.pause()

    def any_broker(self) -> BrokerId:
        return self.rng.choice(list(self._brokers))

    # -- time --------------------------------------------------------------------------------------------------------

    async def pause(self, ms_max: float = 200.0) -> None:
        """Sleep for a while before the next attempt."""
        await asyncio.sleep((0.1 + 0.9 * self.rng.random()) * ms_max / 1000)

    def has_passed(self, since_s: float, ms: float) -> bool:
        return (self.loop.time() - since_s) * 1000 > ms

    def unexpected(self, what: str, code: int) -> None:
        """Report an error code that brokers may not return for this request."""
        self.history.violate("unexpected", f"{self.name}: {what} was answered with {code}")
