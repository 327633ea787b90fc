"""Transactional producers and their readers, as clients see it: requests and replies in bytes."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from broker.group_client import runtimes as group_runtimes
from broker.group_client import turns
from broker.running_broker import LATEST, LIST_OFFSETS_VERSION, RunningBroker, StartBroker
from respool.broker.coordinators.runtime import CoordinatorRuntime, _State
from respool.log.partition_log import ReadSpec
from respool.pacing.backoff import Backoff
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, read_marker
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api
from support.inline_offload import InlineOffload

UNKNOWN_TOPIC = 3
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTION_COORDINATOR_FENCED = 52
OPERATION_NOT_ATTEMPTED = 55
STORAGE_ERROR = 56
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100
TRANSACTIONAL_ID_NOT_FOUND = 105
INVALID_REGULAR_EXPRESSION = 128
TRANSACTION_ABORTABLE = 120

NO_TOPICS_ID = UUID(int=4_711)
TIMEOUT_MS = 60_000
STATE_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"

# The versions of clients before KIP-890, and of those after it.
OLD = {"produce": 11, "offsets": 4, "end": 4}
NEW = {"produce": 12, "offsets": 5, "end": 5}


def start_with_transactions(start_broker: StartBroker, **settings: Any) -> RunningBroker:
    """A broker whose coordinators have few partitions and can be used at once, and two topics."""
    broker = start_broker(
        **{
            "offsets_topic_partitions": 3,
            "transactions_topic_partitions": 3,
            "group_initial_rebalance_delay_ms": 0,
            **settings,
        }
    )
    for key_type in (0, 1):
        reply = broker.ask(Api.FIND_COORDINATOR, 2, key="any", key_type=key_type)
        assert reply.error_code == 0
    broker.create_topic("rides", partitions=3)
    broker.create_topic("fares", partitions=2)
    return broker


def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers that cannot be written, and coordinators that failed, are tried again in the next turn of the loop."""
    monkeypatch.setattr(
        "respool.broker.coordinators.marker_writer.RETRY_S", Backoff(first=0, longest=0)
    )
    monkeypatch.setattr("respool.broker.coordinators.runtimes.REOPEN_DELAY_S", 0)


def runtimes(broker: RunningBroker) -> list[CoordinatorRuntime]:
    return [runtime for _, runtime in broker.broker.transactions.runtimes]


def settle(broker: RunningBroker) -> None:
    """Let everything happen that needs no time to pass: syncs, markers, what waits for them."""

    async def wait() -> None:
        for _ in range(10):
            await turns()

    broker.run(wait())


def release(broker: RunningBroker, works: int | None = None) -> None:
    """Do so many of the works that are held back, or all of them and hold none any more."""

    async def let_go() -> None:
        broker.offload.release(works)

    broker.run(let_go())
    settle(broker)


def wait_until_loaded(broker: RunningBroker) -> None:
    async def wait() -> None:
        for _ in range(5_000):
            if all(one.is_active for one in (*runtimes(broker), *group_runtimes(broker))):
                return
            await asyncio.sleep(0)
        raise AssertionError("a coordinator does not get loaded")

    broker.run(wait())


def restart(broker: RunningBroker, *, crash: bool) -> None:
    """Also where work is held back: a dead process does not do it."""
    if crash:
        broker.offload = InlineOffload()
    broker.restart(crash=crash)
    wait_until_loaded(broker)
    settle(broker)


def begin_to_load(broker: RunningBroker) -> None:
    """As after a restart, before transactions are read."""
    for runtime in runtimes(broker):
        runtime._state = _State.LOADING


def let_pass(broker: RunningBroker, ms: int) -> None:
    """Time passes, and all coordinators notice."""

    async def ring() -> None:
        for runtime in (*runtimes(broker), *group_runtimes(broker)):
            runtime._timers._ring()
        await turns()

    broker.clock.advance(ms)
    broker.run(ring())
    settle(broker)


class Producer:
    """One client with a transactional id. It keeps what it is told, and counts its sequences, as clients do."""

    def __init__(
        self,
        broker: RunningBroker,
        transactional_id: str = "bank",
        *,
        speaks: dict[str, int] = OLD,
        timeout_ms: int = TIMEOUT_MS,
        init: bool = True,
    ) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.speaks = speaks
        self.timeout_ms = timeout_ms
        self.id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        if init:
            assert self.init().error_code == 0

    @property
    def is_new(self) -> bool:
        return self.speaks is NEW

    def zombie(self) -> "Producer":
        """Another process that believes to be this one."""
        other = Producer(self.broker, self.transactional_id, speaks=self.speaks, init=False)
        other.id, other.epoch, other._sequences = self.id, self.epoch, dict(self._sequences)
        return other

    # Inside the loop.

    async def init_(self, version: int = 5, **changes: Any) -> Any:
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self.timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        reply = await self.broker.answer(Api.INIT_PRODUCER_ID, version, **{**fields, **changes})
        if reply.error_code == 0:
            self._go_on_as(reply)
        return reply

    async def add_(self, *names: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        topics = topics_of(names)
        reply = await self.broker.answer(
            Api.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        return codes_by_partition(reply.results_by_topic_v3_and_below)

    async def send_(
        self,
        topic: str,
        partition: int = 0,
        *values: bytes,
        version: int | None = None,
        sequence: int | None = None,
        acks: int = -1,
        is_transactional: bool = True,
    ) -> Any:
        """Send a batch; its sequence counts on only when it was taken."""
        values = values or (b"v",)
        key = (topic, partition)
        first = self._sequences.get(key, 0) if sequence is None else sequence
        now_ms = self.broker.clock.now_ms()
        batch = build_batch(
            [NewRecord(value=value, timestamp_ms=now_ms) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=first,
            is_transactional=is_transactional,
        )
        data = {"index": partition, "records": batch}
        version = self.speaks["produce"] if version is None else version
        ref = {"name": topic} if version < 13 else self.broker.topic_ref(topic)
        reply = await self.broker.answer(
            Api.PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=acks,
            timeout=1000,
            topic_data=[{**ref, "partition_data": [data]}],
        )
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code == 0 and sequence is None:
            self._sequences[key] = first + len(values)
        return answer

    async def add_offsets_(self, group_id: str, version: int = 4) -> int:
        reply = await self.broker.answer(
            Api.ADD_OFFSETS_TO_TXN, version, **self._who(), group_id=group_id
        )
        return int(reply.error_code)

    async def commit_offsets_(
        self,
        group_id: str,
        *offsets: tuple[str, int, int],
        version: int | None = None,
        **changes: Any,
    ) -> list[int]:
        topics = [
            {
                "name": topic,
                "topic_id": self.topic_id(topic),
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
            for topic, partition, offset in offsets
        ]
        fields = {
            **self._who(),
            "group_id": group_id,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        reply = await self.broker.answer(
            Api.TXN_OFFSET_COMMIT,
            self.speaks["offsets"] if version is None else version,
            **{**fields, **changes},
        )
        return [int(one.error_code) for topic in reply.topics for one in topic.partitions]

    async def end_(self, *, commit: bool, version: int | None = None, keep: bool = True) -> Any:
        """End the transaction; without `keep` the reply is lost."""
        reply = await self.broker.answer(
            Api.END_TXN,
            self.speaks["end"] if version is None else version,
            **self._who(),
            committed=commit,
        )
        if keep and reply.error_code == 0 and getattr(reply, "producer_id", -1) >= 0:
            self._go_on_as(reply)
        return reply

    # From outside of it.

    def init(self, version: int = 5, **changes: Any) -> Any:
        return self.broker.run(self.init_(version, **changes))

    def add(self, *names: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        return self.broker.run(self.add_(*names, version=version))

    def send(self, topic: str, partition: int = 0, *values: bytes, **changes: Any) -> Any:
        return self.broker.run(self.send_(topic, partition, *values, **changes))

    def write(self, topic: str, partition: int = 0, *values: bytes) -> int:
        """Add the partition if need be and send a batch that must be taken; return its offset."""
        if not self.is_new:
            assert set(self.add((topic, partition)).values()) == {0}
        answer = self.send(topic, partition, *values)
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def add_offsets(self, group_id: str, version: int = 4) -> int:
        return self.broker.run(self.add_offsets_(group_id, version))

    def commit_offsets(
        self, group_id: str, *offsets: tuple[str, int, int], **changes: Any
    ) -> list[int]:
        return self.broker.run(self.commit_offsets_(group_id, *offsets, **changes))

    def write_offsets(self, group_id: str, *offsets: tuple[str, int, int]) -> None:
        if not self.is_new:
            assert self.add_offsets(group_id) == 0
        assert set(self.commit_offsets(group_id, *offsets)) == {0}

    def end(self, *, commit: bool, version: int | None = None, keep: bool = True) -> int:
        reply = self.broker.run(self.end_(commit=commit, version=version, keep=keep))
        return int(reply.error_code)

    def commit(self) -> None:
        assert self.end(commit=True) == 0
        settle(self.broker)

    def abort(self) -> None:
        assert self.end(commit=False) == 0
        settle(self.broker)

    def topic_id(self, topic: str) -> UUID:
        """Of a topic that is not there, an id that no topic has."""
        found = self.broker.broker.image.topics.get(topic)
        return NO_TOPICS_ID if found is None else found.id

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }

    def _go_on_as(self, reply: Any) -> None:
        if (self.id, self.epoch) != (reply.producer_id, reply.producer_epoch):
            self._sequences.clear()
        self.id, self.epoch = reply.producer_id, reply.producer_epoch


def topics_of(names: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in names:
        topics.setdefault(topic, []).append(partition)
    return [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]


def codes_by_partition(results: Sequence[Any]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): int(one.partition_error_code)
        for topic in results
        for one in topic.results_by_partition
    }


# --- readers


def fetch_fields(
    topic: str, partition: int = 0, offset: int = 0, *, committed: bool, wait_ms: int = 0
) -> dict[str, Any]:
    one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": int(committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [one]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def only(reply: Any) -> Any:
    (partition,) = reply.responses[0].partitions
    assert partition.error_code == 0, partition
    return partition


def fetch(broker: RunningBroker, topic: str, partition: int = 0, *, committed: bool) -> Any:
    return only(broker.ask(Api.FETCH, 12, **fetch_fields(topic, partition, committed=committed)))


def read(
    broker: RunningBroker, topic: str, partition: int = 0, *, committed: bool = True
) -> list[bytes]:
    """What an application sees of the partition."""
    return values_of(fetch(broker, topic, partition, committed=committed))


def values_of(fetched: Any) -> list[bytes]:
    """Leave out what was aborted, as clients do: from an aborted transaction's first offset to its marker."""
    aborted = sorted(
        (one.first_offset, one.producer_id) for one in fetched.aborted_transactions or ()
    )
    ignored: set[int] = set()
    values = []
    for batch in batches_of(fetched.records or b""):
        header = batch.header
        while aborted and aborted[0][0] <= header.base_offset:
            ignored.add(aborted.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                ignored.discard(marker.producer_id)
        elif not (header.is_transactional and header.producer_id in ignored):
            values += [one.value or b"" for one in read_records(batch, limit=1 << 20)]
    return values


def markers(broker: RunningBroker, topic: str, partition: int = 0) -> list[EndTransactionMarker]:
    """All ends of transactions in the partition's log."""
    log = broker.broker.partitions.find(topic, partition).log
    data = log.read(ReadSpec(log.log_start, max_offset=log.log_end, bytes_max=1 << 24))
    found = [read_marker(batch) for batch in batches_of(bytes(data)) if batch.header.is_control]
    return [one for one in found if one is not None]


def batches_of(data: bytes) -> list[RecordBatch]:
    view = memoryview(data)
    return [
        RecordBatch(header, view[position : position + header.size])
        for position, header in walk_batches(data)
    ]


def last_stable_offset(broker: RunningBroker, topic: str, partition: int = 0) -> int:
    wish = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
    reply = broker.ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=1,
        topics=[{"name": topic, "partitions": [wish]}],
    )
    return int(reply.topics[0].partitions[0].offset)


def has_open_transaction(broker: RunningBroker, topic: str, partition: int = 0) -> bool:
    return last_stable_offset(broker, topic, partition) < broker.offset(topic, partition, at=LATEST)


def fetch_offsets(
    broker: RunningBroker, group_id: str, topic: str, partition: int = 0, *, stable: bool
) -> tuple[int, int]:
    """The error code and the offset that the group has committed for the partition."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    reply = broker.ask(
        Api.OFFSET_FETCH,
        9,
        groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}],
        require_stable=stable,
    )
    (one,) = reply.groups[0].topics[0].partitions
    return int(one.error_code), int(one.committed_offset)


def describe(broker: RunningBroker, transactional_id: str = "bank") -> Any:
    (one,) = broker.ask(
        Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]
    ).transaction_states
    return one


def state_of(broker: RunningBroker, transactional_id: str = "bank") -> str:
    """Not from `describe`: what has never begun has no time, and kio cannot read that."""
    reply = broker.ask(
        Api.LIST_TRANSACTIONS,
        0,
        state_filters=[],
        producer_id_filters=[],
    )
    assert reply.error_code == 0, reply
    states = {one.transactional_id: one.transaction_state for one in reply.transaction_states}
    return str(states[transactional_id])
