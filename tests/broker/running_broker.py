"""A broker on a simulated disk, clock, thread pool and random source; requests and replies are real bytes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeAlias, TypeVar
from uuid import UUID, uuid5

from broker.wire_client import decode_reply, encode_request
from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.outcome import Pipelined, Reply
from respool.broker.world import World
from respool.drivers.sqlite_store import SqliteStore
from respool.drivers.system_sources import SystemRandomSource
from respool.model.errors import DiskFailed
from respool.model.security.acl import AclBinding, AclFilter
from respool.model.security.principal import (
    NO_SESSION,
    AuthenticationMethod,
    ClientSession,
    Principal,
)
from respool.model.settings import Settings
from respool.records.build import NewRecord, build_batch
from respool.sim.disk.simulated_disk import SimDisk, SimLocalReader
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.wire.api_table import Api
from respool.wire.codec import decode_request
from support.inline_offload import InlineOffload
from support.sim_clock import SimClock

T = TypeVar("T")

PRODUCE_VERSION = 9
LIST_OFFSETS_VERSION = 7
LATEST = -1
EARLIEST = -2

# Makes up ids of topics that do not exist.
NOWHERE = UUID(int=1)


class RunningBroker:
    """A started broker and a client of it. Between calls time stands still."""

    def __init__(self, runner: asyncio.Runner, settings: Settings) -> None:
        self._runner = runner
        # Of the requests that follow; by default they are the broker's own, which may do everything.
        self.session = NO_SESSION
        self.disk = SimDisk(Random(7), name="broker")
        # Who says that it is on this machine is lent files.
        self.local_reader = SimLocalReader()
        self.local_reader.add("broker", lambda: self.disk)
        self.clock = SimClock()
        self.metrics = SimMetrics()
        self.offload = InlineOffload()
        self.store = SqliteStore(":memory:", clock=self.clock, offload=InlineOffload())
        self.broker = runner.run(self._start(settings))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """Send a request as bytes and read the reply's bytes."""
        reply = self.run(self._answer(encode_request(api, version, **fields)))
        return decode_reply(api, version, b"".join(reply))

    async def answer(self, api: Api, version: int, **fields: Any) -> Any:
        """The same inside the loop, for members of a group that wait for each other."""
        reply = await self._answer(encode_request(api, version, **fields))
        return decode_reply(api, version, b"".join(reply))

    def frame(self, api: Api, version: int, **fields: Any) -> bytes:
        """The reply's bytes, without their size."""
        return b"".join(self.run(self._answer(encode_request(api, version, **fields))))[4:]

    def ask_at_once(self, *requests: tuple[Api, int, dict[str, Any]]) -> list[Any]:
        """Send requests on as many connections at the same time."""

        async def answer_all() -> list[Reply]:
            frames = [encode_request(api, version, **fields) for api, version, fields in requests]
            return await asyncio.gather(*map(self._answer, frames))

        return [
            decode_reply(api, version, b"".join(reply))
            for (api, version, _), reply in zip(requests, self.run(answer_all()), strict=True)
        ]

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin something and go as far with it as it goes without waiting for the outside."""

        async def begin() -> asyncio.Task[T]:
            task = asyncio.ensure_future(work)
            for _ in range(20):
                await asyncio.sleep(0)
            return task

        return self.run(begin())

    def finish(self, task: "asyncio.Task[T]") -> T:
        async def wait() -> T:
            return await task

        return self.run(wait())

    def log_in(self, principal: str = "User:alice", *, host: str = "10.0.0.7") -> None:
        """Send the requests that follow as this client, which is no broker."""
        self.session = ClientSession(
            principal=Principal.parse(principal),
            host=host,
            method=AuthenticationMethod.SCRAM_SHA_512,
            is_broker=False,
        )

    def enforce(self, mode: str = "enforce") -> None:
        self.set_for_broker("", {"respool.authorization": mode})

    def set_acls(self, *acls: AclBinding) -> None:
        """Let there be these ACLs, and no others."""

        async def change() -> None:
            await self.broker.access_changes.delete([AclFilter()])
            results = await self.broker.access_changes.create(acls)
            assert not any(results), results

        self.run(change())

    def set_for_broker(self, name: str, overrides: Mapping[str, str]) -> None:
        """What is set for a broker while it runs, or without a name for all."""
        self.run(self.broker.broker_configs.change(name, lambda _: overrides))

    def set_for_group(self, group_id: str, overrides: Mapping[str, str]) -> None:
        self.run(self.broker.broker_configs.change_group(group_id, lambda _: overrides))

    def create_topic(self, name: str, *, partitions: int = 1, **overrides: str) -> Any:
        """Create a topic behind the handlers' back; settings with `_` for `.`."""
        return self.run(
            self.broker.topics.create(
                name,
                partition_count=partitions,
                overrides={key.replace("_", "."): value for key, value in overrides.items()},
            )
        )

    def create_view(self, name: str, *, of: str, where: str, listed: bool = False) -> Any:
        """The same for a view."""
        settings = {
            "respool.view.of": of,
            "respool.view.where": where,
            "respool.view.listed": str(listed).lower(),
        }
        return self.run(self.broker.topics.create(name, overrides=settings))

    def topic_ref(self, name: str) -> dict[str, Any]:
        """A topic as requests name it: by name in older versions, by id in newer ones."""
        known = self.broker.image.readable(name)
        return {
            "name": name,
            "topic_id": uuid5(NOWHERE, name) if known is None else known.id,
        }

    def topic_name(self, ref: Any) -> str:
        """The name of a topic in a reply, whose id is known here if it has no name."""
        if hasattr(ref, "name"):
            return str(ref.name)
        known = self.broker.image.readable_by_id(ref.topic_id)
        return f"unknown {ref.topic_id}" if known is None else known.name

    def produce(
        self, topic: str, partition: int = 0, *, values: tuple[bytes, ...] = (b"v",), **batch: Any
    ) -> int:
        """Append one batch with acks=all and return its base offset."""
        now_ms = self.clock.now_ms()
        records = [NewRecord(value=value, timestamp_ms=now_ms) for value in values]
        data = {"index": partition, "records": build_batch(records, **batch)}
        reply = self.ask(
            Api.PRODUCE,
            PRODUCE_VERSION,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [data]}],
        )
        (answer,) = reply.responses[0].partition_responses
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def offset(self, topic: str, partition: int = 0, *, at: int) -> int:
        """The offset ListOffsets gives for LATEST or EARLIEST."""
        wish = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": at}
        reply = self.ask(
            Api.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [wish]}],
        )
        return int(reply.topics[0].partitions[0].offset)

    def take_offline(self, topic: str, partition: int = 0) -> None:
        found = self.broker.partitions.find(topic, partition)
        self.run(self._call(lambda: found.go_offline(DiskFailed("as the test wants it"))))

    def forget_tails(self) -> None:
        """Let nothing be read but from the disk, as if much had been appended since."""
        for partition in self.broker.partitions:
            partition.log._parts.tail.clear()

    def restart(self, *, crash: bool = False, kill: bool = False) -> None:
        """Stop the broker, cut its power, or kill its process, and start it again on what is left."""
        if crash or kill:
            if crash:
                self.disk.crash()
            # A dead process has no timers.
            self.broker.stop_coordinators()
            self.broker.deliveries.cancel()
        else:
            self.run(self.broker.stop())
        settings = self.broker.settings
        self.disk = self.disk.reopen()
        self.broker = self._runner.run(self._start(settings))

    def stop(self) -> None:
        self.run(self.broker.stop())
        self.run(self.store.close())

    async def _start(self, settings: Settings) -> Broker:
        broker = Broker(
            settings,
            World(
                clock=self.clock,
                disk=self.disk,
                store=self.store,
                offload=self.offload,
                metrics=self.metrics,
                rng=SystemRandomSource(),
                local_reader=self.local_reader,
                # The world has the key, not the file.
                token_secret=settings.security.delegation_token_secret_key_file.encode(),
            ),
        )
        await broker.start()
        return broker

    async def _answer(self, frame: memoryview) -> Reply:
        request = decode_request(frame)
        request.session = self.session
        outcome = handle(request, self.broker)
        if isinstance(outcome, Pipelined):
            return await outcome.wait()
        if isinstance(outcome, Coroutine):
            return await outcome
        return outcome

    async def _call(self, work: Callable[[], T]) -> T:
        return work()


StartBroker: TypeAlias = Callable[..., RunningBroker]
