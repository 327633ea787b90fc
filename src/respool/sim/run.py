"""One simulated run: a seed decides everything, and what comes out says whether the broker kept its promises.

    report = simulate(seed)
    report.violations           # empty when all is well

A run has three parts. Clients work while the nemesis makes trouble. Then all is healed, and everybody must be able to
finish within a while. Then fresh readers read everything, the power is cut once more, and they read it again.
"""

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from respool.model.ids import BrokerId, TopicPartition
from respool.model.settings import Settings
from respool.ports.peers import PeerUnreachable
from respool.sim.checker import FinalReads, check
from respool.sim.client import OK, TOPIC_ALREADY_EXISTS, SimClient
from respool.sim.clock import NodeClock
from respool.sim.consumers import AssignedConsumer, Consumer, OffsetWatcher
from respool.sim.dice import dice_of
from respool.sim.disk_faults import ProcessGone
from respool.sim.group_member import GroupMember, GroupView
from respool.sim.history import History, Violation
from respool.sim.invariants import Inside, compare, look_inside
from respool.sim.loop import SimLoop, SimulationStuck
from respool.sim.machine import Machine
from respool.sim.nemesis import CLOCK_JUMP_MS_MAX, Nemesis
from respool.sim.network import SimNetwork
from respool.sim.producers import ACKS_ALL, IdempotentProducer, PlainProducer
from respool.sim.store import SimStore
from respool.sim.trace import Trace
from respool.sim.transactional import TransactionalProducer
from respool.wire.api_table import Api

TRANSACTION_TIMEOUT_MS = 15_000
# How long clients may take to finish once all is well, and coordinators to end what was left open.
WIND_DOWN_S = 120.0
# Nothing in a run waits so long.
VIRTUAL_S_MAX = 1_800.0
GROUP = "riders"


@dataclass(slots=True)
class Report:
    seed: int
    violations: list[Violation]
    # What was done and seen, and which troubles there were.
    counts: Counter[str]
    faults: Counter[str]
    digest: int
    steps: int
    virtual_s: float


@dataclass(slots=True)
class _Cast:
    """Who takes part."""

    clients: list[SimClient] = field(default_factory=list)
    transactional: list[TransactionalProducer] = field(default_factory=list)
    groups: dict[str, GroupView] = field(default_factory=dict)


def simulate(seed: int, *, show: Callable[[str], None] | None = None) -> Report:
    trace = Trace(show=show)
    loop = SimLoop(seed, trace=trace)
    run = Run(seed, loop)
    with _Ears(loop) as ears:
        try:
            loop.run(run.play)
        except SimulationStuck as error:
            run.history.violate("D", f"the simulation is stuck: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this seed's and not the next one's
            where = traceback.extract_tb(error.__traceback__)[-1]
            run.history.violate("crashed", f"{error!r} at {where.filename}:{where.lineno}")
    for unhandled in loop.unhandled:
        # What a disk without power refuses a process is no failure of the process.
        if not isinstance(unhandled, ProcessGone):
            run.history.violate("unhandled", repr(unhandled))
    for text in ears.heard:
        run.history.violate("log", text)
    return Report(
        seed=seed,
        violations=run.history.violations,
        counts=run.history.counts,
        faults=run.faults,
        digest=trace.digest,
        steps=trace.steps,
        virtual_s=loop.time(),
    )


class Run:
    def __init__(self, seed: int, loop: SimLoop) -> None:
        self.history = History()
        self.history.on_violation = lambda one: loop.trace.tell(loop.time(), f"VIOLATION {one}")
        self.faults: Counter[str] = Counter()
        self._seed = seed
        self._loop = loop
        self._dice = dice_of("run", seed)
        self._network = SimNetwork(loop, dice_of("network", seed))
        loop.network = self._network
        loop.virtual_s_max = VIRTUAL_S_MAX
        self._network.manners.latency_ms_max = self._dice.choice((1.0, 10.0))
        self._clock = NodeClock(loop)
        self._store = SimStore(clock=self._clock)
        self._machines: list[Machine] = []
        self._names: list[TopicPartition] = []
        self._patience_s = 0.0
        self._flush = "always"

    async def play(self) -> None:
        self._machines = [self._new_machine(1)]
        for machine in self._machines:
            machine.start()
        nemesis = Nemesis(
            loop=self._loop,
            network=self._network,
            machines=self._machines,
            dice=dice_of("nemesis", self._seed),
        )
        # A weaker promise can be checked only where nothing takes what was not synced.
        flushes = ("always",) if nemesis.is_forgetful else ("always", "interval", "os")
        self._flush = self._dice.choice(flushes)
        self._names = await self._create_topics()
        cast = self._new_cast(keeps_unsynced=not nemesis.is_forgetful)
        nemesis.clients = [one.process for one in cast.clients]
        tasks = [client.start() for client in cast.clients]
        await nemesis.rage(self._dice.choice((5.0, 15.0, 30.0)))
        await nemesis.heal()
        self.faults = nemesis.counts
        await self._wind_down(cast, tasks, nemesis)
        final = await self._read_all(cast)
        check(self.history, final, cast.groups)
        await self._read_after_power_cut(final)
        await self._stop()

    # -- before ------------------------------------------------------------------------------------------------------

    def _new_machine(self, number: int) -> Machine:
        dice = self._dice
        settings = Settings(
            broker_id=number,
            listen=f"127.0.0.{number}:9092",
            offsets_topic_partitions=2,
            transactions_topic_partitions=2,
            group_initial_rebalance_delay_ms=dice.choice((0, 500)),
            checkpoint_ms=dice.choice((300, 2_000, 60_000)),
            retention_check_ms=dice.choice((1_000, 60_000)),
            compaction_check_ms=dice.choice((1_000, 15_000)),
            io_threads=dice.choice((1, 2, 4)),
            topic={
                "segment.bytes": str(dice.choice((1_024, 20_000, 1 << 30))),
                "index.interval.bytes": str(dice.choice((0, 4_096))),
            },
        )
        machine = Machine(
            loop=self._loop,
            network=self._network,
            store=self._store,
            settings=settings,
            seed=f"{self._seed}.{number}",
        )
        machine.shuffles_tasks = dice.random() < 0.3
        machine.store_manners.latency_ms_max = dice.choice((0.5, 20.0))
        # On a slow disk much is unsynced when the power goes.
        machine.pace.ms_max = dice.choice((1.5, 20.0, 100.0))
        return machine

    async def _create_topics(self) -> list[TopicPartition]:
        client = self._new_client(SimClient, "admin")
        task = client.process.spawn(self._create(client))
        names: list[TopicPartition] = await task
        return names

    async def _create(self, client: SimClient) -> list[TopicPartition]:
        sizes = {"rides": 2, "fares": 1}
        topics = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": "respool.flush", "value": self._flush}],
            }
            for name, count in sizes.items()
        ]
        created = 0
        while created < len(topics):
            try:
                reply = await client.ask(
                    client.any_broker(), Api.CREATE_TOPICS, 7, topics=topics, timeout=5_000
                )
            except PeerUnreachable:
                await client.pause()
                continue
            codes = [int(one.error_code) for one in reply.topics]
            created = sum(code in (OK, TOPIC_ALREADY_EXISTS) for code in codes)
        await client.close()
        return [
            TopicPartition(name, number) for name, count in sizes.items() for number in range(count)
        ]

    def _new_client(self, kind: type[SimClient], name: str, **more: object) -> SimClient:
        return kind(
            name,
            loop=self._loop,
            clock=self._clock,
            dice=dice_of(name, self._seed),
            history=self.history,
            brokers={BrokerId(one.settings.broker_id): one.address for one in self._machines},
            **more,  # type: ignore[arg-type]
        )

    def _new_cast(self, *, keeps_unsynced: bool) -> _Cast:
        dice, cast, names = self._dice, _Cast(), self._names
        for number in range(dice.randint(0, 2)):
            cast.clients.append(self._new_client(IdempotentProducer, f"idem-{number}", names=names))
        for number in range(dice.randint(0, 2)):
            cast.clients.append(
                self._new_client(
                    PlainProducer,
                    f"plain-{number}",
                    names=names,
                    acks=dice.choice((1, ACKS_ALL)),
                    keeps_unsynced=keeps_unsynced,
                )
            )
        for number in range(dice.randint(0, 3)):
            producer = self._new_client(
                TransactionalProducer,
                f"txn-{number}",
                names=names,
                version=dice.choice((1, 2)),
                timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            assert isinstance(producer, TransactionalProducer)
            cast.clients.append(producer)
            cast.transactional.append(producer)
        if not cast.clients:
            cast.clients.append(self._new_client(IdempotentProducer, "idem-0", names=names))
        for number in range(dice.randint(1, 3)):
            cast.clients.append(
                self._new_client(
                    AssignedConsumer,
                    f"reader-{number}",
                    names=names,
                    is_committed=dice.random() < 0.5,
                )
            )
        if cast.transactional:
            groups = {one.group: one.name for one in cast.transactional}
            cast.clients.append(
                self._new_client(OffsetWatcher, "watcher", groups=groups, position_of=names[0])
            )
        if dice.random() < 0.5:
            view = cast.groups[GROUP] = GroupView()
            for number in range(dice.randint(1, 3)):
                cast.clients.append(
                    self._new_client(
                        GroupMember,
                        f"member-{number}",
                        names=names,
                        is_committed=True,
                        group=GROUP,
                        view=view,
                    )
                )
        return cast

    # -- after -------------------------------------------------------------------------------------------------------

    async def _wind_down(
        self, cast: _Cast, tasks: Sequence["asyncio.Task[None]"], nemesis: Nemesis
    ) -> None:
        for client in cast.clients:
            client.is_winding_down = True
        _, late = await asyncio.wait(tasks, timeout=WIND_DOWN_S)
        for client, task in zip(cast.clients, tasks, strict=True):
            if task in late:
                self.history.violate("D", f"{client.name} cannot finish though all is well")
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        # Timers run on the wall clock: what was set before it was set back rings late.
        self._patience_s = (
            TRANSACTION_TIMEOUT_MS + min(nemesis.clock_jumps_ms, 10 * CLOCK_JUMP_MS_MAX)
        ) / 1000 + 20

    async def _read_all(self, cast: _Cast) -> FinalReads:
        final = FinalReads()
        for is_committed, reads in ((False, final.uncommitted), (True, final.committed)):
            reader = self._new_client(
                Consumer, f"final-{is_committed}", names=self._names, is_committed=is_committed
            )
            assert isinstance(reader, Consumer)
            reads.update(await reader.process.spawn(self._read_to_the_end(reader)))
        groups = {one.group: one.name for one in cast.transactional}
        watcher = self._new_client(
            OffsetWatcher, "final-watcher", groups=groups, position_of=self._names[0]
        )
        assert isinstance(watcher, OffsetWatcher)
        final.group_offsets = await watcher.process.spawn(self._look_at_offsets(watcher, groups))
        return final

    async def _look_at_offsets(
        self, watcher: OffsetWatcher, groups: dict[str, str]
    ) -> dict[str, int]:
        offsets: dict[str, int] = {}
        for group, producer in groups.items():
            until_s = self._loop.time() + self._patience_s
            while producer not in offsets and self._loop.time() < until_s:
                try:
                    offset = await watcher.look(group, is_stable=True)
                except PeerUnreachable:
                    offset = None
                if offset is not None:
                    offsets[producer] = offset
                else:
                    await watcher.pause()
            if producer not in offsets:
                self.history.violate("D", f"the offsets of {group} cannot be had")
        await watcher.close()
        return offsets

    async def _read_to_the_end(self, reader: Consumer) -> dict[TopicPartition, dict[int, bytes]]:
        """Everything there is; and no transaction may stay open for ever."""
        reads: dict[TopicPartition, dict[int, bytes]] = {}
        for name in self._names:
            seen = reads.setdefault(name, {})
            position = 0
            until_s = self._loop.time() + self._patience_s
            while True:
                try:
                    polled = await reader.poll(name, position)
                except PeerUnreachable as error:
                    self.history.violate("D", f"{name} cannot be read: {error}")
                    break
                if polled.code == OK:
                    for offset, record in polled.records:
                        self.history.on_read(name, offset, record, is_committed=reader.is_committed)
                        seen[offset] = record.value or b""
                    position = polled.next_offset
                    if position == polled.high_watermark == polled.stable_offset:
                        break
                if self._loop.time() > until_s:
                    self.history.violate(
                        "D",
                        f"{name} does not come to its end: {polled.code}, {position}, "
                        f"{polled.high_watermark}, {polled.stable_offset}",
                    )
                    break
                if polled.code or not polled.batches:
                    await reader.pause()
        await reader.close()
        return reads

    async def _read_after_power_cut(self, before: FinalReads) -> None:
        """All was quiet, so nothing may be lost."""
        known = self._look_inside()
        for machine in self._machines:
            if machine.is_up and self._flush == "always":
                machine.cut_power()
            elif machine.is_up:
                machine.kill()
            machine.start()
        await asyncio.sleep(2)
        reader = self._new_client(Consumer, "after", names=self._names, is_committed=False)
        assert isinstance(reader, Consumer)
        after = await reader.process.spawn(self._read_to_the_end(reader))
        compare(known, self._look_inside(), self.history)
        for name in self._names:
            if after[name] != before.uncommitted[name]:
                self.history.violate(
                    "A19", f"{name} is not the same after a power cut in a quiet time"
                )

    def _look_inside(self) -> dict[TopicPartition, Inside]:
        inside: dict[TopicPartition, Inside] = {}
        for machine in self._machines:
            if machine.broker is not None:
                inside.update(look_inside(machine.broker, self._names, self.history))
        return inside

    async def _stop(self) -> None:
        for machine in self._machines:
            if machine.is_up:
                await machine.stop()
            if machine.failure is not None:
                self.history.violate("failed", f"{machine.host}: {machine.failure!r}")
        await asyncio.sleep(1)
        for task in self._loop.unfinished_tasks():
            self.history.violate("D4", f"left behind: {task}")


class _Ears(logging.Handler):
    """Hears what must never be said: that something failed which nobody foresaw."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []
        self._loop = loop
        self._logger = logging.getLogger("respool")

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._was_propagating, self._logger.propagate = self._logger.propagate, False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._was_propagating

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._loop.trace.tell(self._loop.time(), f"log: {text}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ProcessGone):
            self.heard.append(f"{text}: {error!r}")
