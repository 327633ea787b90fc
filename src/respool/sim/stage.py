"""Where a simulated run takes place: the machines of its plan, one metadata store, one network."""

from random import Random

from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.sim.cluster_sight import ClusterSight
from respool.sim.cluster_troubles import ClusterTroubles
from respool.sim.disk_troubles import DiskTroubles
from respool.sim.loop import SimLoop
from respool.sim.machine import Machine
from respool.sim.moments import Moments
from respool.sim.nemesis import Nemesis
from respool.sim.network import SimNetwork
from respool.sim.operator import Operator
from respool.sim.plan import Plan
from respool.sim.restarter import Restarter
from respool.sim.seeded_random import rng_of
from respool.sim.simulated_clock import NodeClock
from respool.sim.simulated_local_reader import SimLocalReader
from respool.sim.store import SimStore


class Stage:
    def __init__(self, seed: int, loop: SimLoop, *, plan: Plan, rng: Random) -> None:
        self.plan = plan
        self.clock = NodeClock(loop)
        self.network = SimNetwork(loop, rng_of("network", seed))
        self.store = SimStore(clock=self.clock)
        self.sight = ClusterSight(self.store)
        self._seed = seed
        self._loop = loop
        loop.network = self.network
        self.network.is_one_machine = plan.lends_files
        lending_rng = rng_of("neighbours", seed)
        self.local_reader = SimLocalReader(lending_rng) if plan.lends_files else None
        self.network.manners.latency_ms_max = rng.choice((1.0, 10.0))
        self.machines = [self._new_machine(one, rng) for one in range(1, plan.broker_count + 1)]
        nemesis_rng = rng_of("nemesis", seed)
        # A broker alone is spared nothing: what it promises is drawn to fit what it will suffer.
        is_synced = plan.flush in (None, "always")
        self.restarter = Restarter(
            loop=loop,
            machines=self.machines,
            rng=nemesis_rng,
            sight=self.sight,
            is_synced=is_synced,
        )
        self.store.screens.append(self.restarter.spare_in_sync)
        self.operator = Operator(store=self.store, sight=self.sight, rng=nemesis_rng)
        self.nemesis = Nemesis(
            loop=loop,
            network=self.network,
            machines=self.machines,
            rng=nemesis_rng,
            restarter=self.restarter,
            cluster=self._cluster_troubles(nemesis_rng) if plan.is_cluster else None,
            disks=self._disk_troubles(nemesis_rng) if plan.changes_disks else None,
            is_synced=is_synced,
        )

    @property
    def addresses(self) -> dict[BrokerId, tuple[str, int]]:
        return {one.id: one.address for one in self.machines}

    def _disk_troubles(self, rng: Random) -> DiskTroubles:
        return DiskTroubles(
            machines=self.machines, restarter=self.restarter, operator=self.operator, rng=rng
        )

    def _cluster_troubles(self, rng: Random) -> ClusterTroubles:
        return ClusterTroubles(
            loop=self._loop,
            network=self.network,
            machines=self.machines,
            restarter=self.restarter,
            sight=self.sight,
            operator=self.operator,
            moments=Moments(self.store),
            session_ttl_ms=self.plan.session_ttl_ms,
            rng=rng,
        )

    def _new_machine(self, number: int, rng: Random) -> Machine:
        plan = self.plan
        settings = Settings.from_flat(
            broker_id=number,
            listen=f"127.0.0.{number}:9092",
            # Nobody connects there; it says that the store is not this broker's own.
            etcd="127.0.0.99:2379" if plan.is_cluster else "",
            session_ttl_ms=plan.session_ttl_ms,
            replica_lag_max_ms=plan.replica_lag_max_ms,
            replica_fetch_ahead_bytes=plan.replica_fetch_ahead_bytes,
            tail_bytes_max=plan.tail_bytes_max,
            rack=plan.racks[number - 1],
            offsets_topic_partitions=2,
            transactions_topic_partitions=2,
            group_initial_rebalance_delay_ms=rng.choice((0, 500)),
            checkpoint_ms=rng.choice((300, 2_000, 60_000)),
            retention_check_ms=rng.choice((1_000, 60_000)),
            compaction_check_ms=rng.choice((1_000, 15_000)),
            io_threads=rng.choice((1, 2, 4)),
            topic={
                "segment.bytes": str(rng.choice((1_024, 20_000, 1 << 30))),
                "index.interval.bytes": str(rng.choice((0, 4_096))),
            },
        )
        machine = Machine(
            loop=self._loop,
            network=self.network,
            store=self.store,
            settings=settings,
            seed=f"{self._seed}.{number}",
            is_in_cluster=plan.is_cluster,
            clock_rate=plan.clock_rates[number - 1],
            local_reader=self.local_reader,
        )
        machine.shuffles_tasks = rng.random() < 0.3
        machine.store_manners.latency_ms_max = rng.choice((0.5, 20.0))
        # On a slow disk much is unsynced when the power goes.
        machine.pace.ms_max = rng.choice((1.5, 20.0, 100.0))
        return machine
