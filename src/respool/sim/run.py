"""One simulated run, fully determined by its seed; the report says whether the broker kept its guarantees.

    report = simulate(seed)
    report.violations           # empty if all guarantees held

A run has three parts. Clients work while the nemesis injects faults. Then all faults end, and every client must finish
within a time limit. Then new readers read everything, all machines lose power once more, and everything is read again.
"""

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.sim.access_scenario import AccessScenario
from respool.sim.checks.checker import FinalReads, check
from respool.sim.checks.history import History, Violation
from respool.sim.checks.invariants import Inside, compare, look_inside, transactions_under_way
from respool.sim.checks.replica_agreement import ReplicaAgreement
from respool.sim.checks.replica_watch import ReplicaWatch
from respool.sim.clients.consumers import SimConsumer
from respool.sim.clients.final_reader import FinalReader
from respool.sim.clients.sim_client import INVALID_TOPIC, OK, TOPIC_ALREADY_EXISTS, SimClient
from respool.sim.clients.topic_recreator import TopicRecreator
from respool.sim.clients.view_consumer import SimView, draw_view
from respool.sim.clients.workload import TRANSACTION_TIMEOUT_MS, Workload, WorkloadFactory
from respool.sim.delay_scenario import DelayScenario
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.layout_scenario import LayoutScenario
from respool.sim.queue_scenario import QueueScenario
from respool.sim.retry_scenario import RetryScenario
from respool.sim.runtime.sim_loop import SimLoop, SimulationStuck
from respool.sim.runtime.simulated_sources import rng_of
from respool.sim.runtime.trace import Trace
from respool.sim.sim_plan import SimPlan, draw_sim_plan
from respool.sim.sim_world import SimWorld
from respool.wire.api_table import Api

Scenario: TypeAlias = (
    DelayScenario | RetryScenario | LayoutScenario | AccessScenario | QueueScenario
)

# How long clients may take to finish after the faults, and coordinators to end open transactions.
WIND_DOWN_S = 120.0
# The topics, and how many partitions they have.
SIZES = {"rides": 2, "fares": 1}
# Virtual time limit of a run.
VIRTUAL_S_MAX = 1_800.0


@dataclass(slots=True)
class SimReport:
    seed: int
    broker_count: int
    violations: list[Violation]
    # What clients did and saw, and which faults were injected.
    counts: Counter[str]
    faults: Counter[str]
    digest: int
    steps: int
    virtual_s: float


def simulate(
    seed: int,
    *,
    show: Callable[[str], None] | None = None,
    broker_count: int | None = None,
) -> SimReport:
    """Run the simulation of this seed; `broker_count` replaces the number of brokers that the seed draws."""
    trace = Trace(show=show)
    loop = SimLoop(seed, trace=trace)
    run = Run(seed, loop, draw_sim_plan(seed, broker_count=broker_count))
    with LogCapture(loop) as log_capture:
        try:
            loop.run(run.play)
        except SimulationStuck as error:
            run.history.violate("D", f"the simulation is stuck: {error}")
        except Exception as error:  # noqa: BLE001 - any failure is reported for this seed
            where = traceback.extract_tb(error.__traceback__)[-1]
            run.history.violate("crashed", f"{error!r} at {where.filename}:{where.lineno}")
    for unhandled in loop.unhandled:
        # Errors of a disk without power are not failures of the process.
        if not isinstance(unhandled, ProcessGone):
            run.history.violate("unhandled", repr(unhandled))
    for text in log_capture.heard:
        run.history.violate("log", text)
    return SimReport(
        seed=seed,
        broker_count=run.plan.broker_count,
        violations=run.history.violations,
        counts=run.history.counts,
        faults=run.faults,
        digest=trace.digest,
        steps=trace.steps,
        virtual_s=loop.time(),
    )


class Run:
    def __init__(self, seed: int, loop: SimLoop, plan: SimPlan) -> None:
        self.history = History()
        self.history.on_violation = lambda one: loop.trace.tell(loop.time(), f"VIOLATION {one}")
        self._seed = seed
        self._loop = loop
        self.plan = plan
        self._rng = rng_of("run", seed)
        loop.virtual_s_max = VIRTUAL_S_MAX
        self._world = SimWorld(seed, loop, plan=plan, rng=self._rng)
        self._machines = self._world.machines
        self._names: list[TopicPartition] = []
        self._views: list[SimView] = []
        self._scenarios: list[Scenario] = []
        self._flush = plan.flush or "always"
        self._agreement = ReplicaAgreement(
            machines=self._machines, observer=self._world.observer, history=self.history
        )

    @property
    def faults(self) -> Counter[str]:
        return self._world.nemesis.counts

    async def play(self) -> None:
        nemesis = self._world.nemesis
        self._factory = WorkloadFactory(
            loop=self._loop,
            clock=self._world.clock,
            history=self.history,
            brokers=self._world.addresses,
            seed=self._seed,
            racks=self.plan.racks,
        )
        self._loop.trace.tell(self._loop.time(), str(self.plan))
        for machine in self._machines:
            machine.start()
        if self.plan.flush is None:
            # Weaker durability can be checked only if no fault loses unsynced data.
            flushes = ("always",) if nemesis.is_forgetful else ("always", "interval", "os")
            self._flush = self._rng.choice(flushes)
        watching = self._watch_replicas()
        if self.plan.has_views:
            rng = rng_of("view", self._seed)
            self._views = [draw_view(topic, rng) for topic in SIZES]
        self._scenarios = self._draw_scenarios()
        self._names = await self._create_topics()
        if self.plan.is_cluster:
            self._world.operator.client = self._factory.new_client(SimClient, "operator")
        workload = self._draw_workload()
        nemesis.set_targets([one.process for one in workload.clients])
        tasks = [client.start() for client in workload.clients]
        await nemesis.inject_faults(self._rng.choice((5.0, 15.0, 30.0)))
        await nemesis.heal()
        if self.plan.is_cluster:
            await self._world.operator.finish()
        self.history.counts["crashes spared"] += self._world.restarter.spared
        if (local_reader := self._world.local_reader) is not None:
            self.history.counts["local reads"] += local_reader.reads
            self.history.counts["local reads of deleted files"] += local_reader.failed_reads
        await self._wind_down(workload, tasks)
        # Late replies, which no client waits for, must arrive before the checks.
        await asyncio.sleep(5)
        reader = FinalReader(
            loop=self._loop,
            history=self.history,
            factory=self._factory,
            names=self._names,
            # Timers use the wall clock: those set before it jumped back fire late.
            patience_s=(TRANSACTION_TIMEOUT_MS + nemesis.clock_jumps_ms) / 1000 + 20,
        )
        if self.plan.is_cluster:
            await self._agreement.reach("in the end")
        final = await reader.read_all(workload)
        if self._views:
            await reader.read_views(self._views)
        check(self.history, final, workload.groups)
        await self._read_after_power_cut(reader, final)
        for scenario in self._scenarios:
            await scenario.finish(self._factory, final)
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await self._stop()

    def _draw_scenarios(self) -> list[Scenario]:
        scenarios: list[Scenario] = []
        shared: dict[str, Any] = {"machines": self._machines, "history": self.history}
        if self.plan.has_delays:
            scenarios.append(DelayScenario(self._seed, **shared))
        if self.plan.has_retries:
            scenarios.append(RetryScenario(self._seed, **shared))
        if self.plan.has_layouts:
            scenarios.append(LayoutScenario(self._seed, observer=self._world.observer, **shared))
        if self.plan.has_users:
            scenarios.append(AccessScenario(self._seed, plan=self.plan, **shared))
        if self.plan.has_queues:
            scenarios.append(QueueScenario(self._seed, **shared))
        return scenarios

    def _draw_workload(self) -> Workload:
        # With replicas, acks=1 promises nothing: the next leader may not have the record. Without, it is as acks=all.
        is_kept_by_one = self._flush == "always" or not self._world.nemesis.is_forgetful
        workload = self._factory.draw_workload(
            self._names,
            is_leader_enough=is_kept_by_one and not self.plan.is_cluster,
            views=self._views,
        )
        if self.plan.recreates_topics:
            # Two topics, so that requests for one wait while a broker works on the other.
            for name in ("moods", "tempers"):
                topic = self._topic(name, 1)
                workload.clients.append(
                    self._factory.new_client(TopicRecreator, f"maker-{name}", topic=topic)
                )
        for scenario in self._scenarios:
            workload.clients += scenario.start(self._factory)
        return workload

    def _watch_replicas(self) -> "asyncio.Task[None] | None":
        if not self.plan.is_cluster:
            return None
        watch = ReplicaWatch(
            machines=self._machines,
            store=self._world.store,
            observer=self._world.observer,
            has_everything=self._world.restarter.has_everything,
            history=self.history,
            is_synced=self._flush == "always",
            tell=lambda text: self._loop.trace.tell(self._loop.time(), text),
        )
        return asyncio.ensure_future(watch.watch())

    # -- setup -------------------------------------------------------------------------------------------------------

    async def _create_topics(self) -> list[TopicPartition]:
        client = self._factory.new_client(SimClient, "admin")
        task = client.process.spawn(self._create(client))
        names: list[TopicPartition] = await task
        return names

    async def _create(self, client: SimClient) -> list[TopicPartition]:
        await self._create_all(client, [self._topic(name, count) for name, count in SIZES.items()])
        await self._create_all(client, [self._view(one) for one in self._views])
        for scenario in self._scenarios:
            for name, (count, configs) in scenario.topics().items():
                await self._create_all(client, [self._topic(name, count, configs)])
        await client.close()
        return [
            TopicPartition(name, number) for name, count in SIZES.items() for number in range(count)
        ]

    async def _create_all(self, client: SimClient, topics: list[dict[str, Any]]) -> None:
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
            if INVALID_TOPIC in codes:
                client.unexpected("CreateTopics", INVALID_TOPIC)
                return
            if created < len(topics):
                # Some brokers may not have registered yet.
                await client.pause()

    def _view(self, view: SimView) -> dict[str, Any]:
        configs = {"respool.view.of": view.parent, "respool.view.where": view.where}
        return {
            "name": view.name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }

    def _topic(
        self, name: str, partition_count: int, configs: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A CreateTopics topic with the durability that this run checks."""
        configs = {"respool.flush": self._flush, **(configs or {})}
        if self.plan.is_cluster:
            configs["min.insync.replicas"] = str(self.plan.min_insync_replicas)
        return {
            "name": name,
            "num_partitions": partition_count,
            "replication_factor": self.plan.replication_factor,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }

    # -- checks ------------------------------------------------------------------------------------------------------

    async def _wind_down(self, workload: Workload, tasks: Sequence["asyncio.Task[None]"]) -> None:
        for client in workload.clients:
            client.is_winding_down = True
        _, late = await asyncio.wait(tasks, timeout=WIND_DOWN_S)
        for client, task in zip(workload.clients, tasks, strict=True):
            if task in late:
                self.history.violate("D", f"{client.name} cannot finish though all is well")
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _read_after_power_cut(self, reader: FinalReader, before: FinalReads) -> None:
        """Check that a power cut loses nothing when no fault is active and no client writes."""
        await self._wait_for_coordinators(reader.patience_s)
        known = self._look_inside()
        for machine in self._machines:
            if self._flush == "always":
                machine.cut_power()
            elif not self.plan.is_cluster:
                machine.kill()
            elif machine.is_up:
                # This stops all in-sync replicas at once, and only a clean stop keeps unsynced data.
                await machine.stop()
        for machine in self._machines:
            machine.start()
        await asyncio.sleep(2)
        if self.plan.is_cluster:
            await self._agreement.reach("after all were restarted")
        client = self._factory.new_client(
            SimConsumer, "after", names=self._names, is_committed=False
        )
        after = await client.process.spawn(reader.read_to_the_end(client))
        compare(known, self._look_inside(), self.history)
        for name in self._names:
            if after[name] != before.uncommitted[name]:
                self.history.violate(
                    "A19", f"{name} is not the same after a power cut in a quiet time"
                )

    async def _wait_for_coordinators(self, patience_s: float) -> None:
        """Wait until coordinators have ended all transactions, including empty ones, for which no reader waits."""
        until_s = self._loop.time() + patience_s
        while left := [
            one
            for machine in self._machines
            if machine.broker is not None
            for one in transactions_under_way(machine.broker)
        ]:
            if self._loop.time() > until_s:
                self.history.violate("D", f"not ended though all is well: {left}")
                return
            await asyncio.sleep(0.25)

    def _look_inside(self) -> dict[tuple[str, TopicPartition], Inside]:
        inside: dict[tuple[str, TopicPartition], Inside] = {}
        for machine in self._machines:
            if machine.broker is not None:
                found = look_inside(machine.broker, self._names, self.history)
                inside.update({(machine.host, name): one for name, one in found.items()})
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


class LogCapture(logging.Handler):
    """Collects log records with an exception: failures that the code does not expect."""

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
