"""The simulated world of a run: the machines of its plan, one metadata store and one network."""

from random import Random

from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.sim.access_scenario import secured_settings
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.clients.operator import Operator
from respool.sim.disk.simulated_disk import SimLocalReader
from respool.sim.faults.cluster_faults import ClusterFaults
from respool.sim.faults.disk_swaps import DiskSwaps
from respool.sim.faults.nemesis import Nemesis
from respool.sim.faults.restarter import Restarter
from respool.sim.faults.triggers import Triggers
from respool.sim.machine import Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore
from respool.sim.queue_scenario import share_settings
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock, rng_of
from respool.sim.sim_plan import SimPlan


class SimWorld:
    def __init__(self, seed: int, loop: SimLoop, *, plan: SimPlan, rng: Random) -> None:
        self.plan = plan
        self.clock = NodeClock(loop)
        self.network = SimNetwork(loop, rng_of("network", seed))
        self.store = SimStore(clock=self.clock)
        self.observer = ClusterObserver(self.store)
        self._seed = seed
        self._loop = loop
        loop.network = self.network
        self.network.is_one_machine = plan.reads_locally
        local_read_rng = rng_of("neighbours", seed)
        self.local_reader = SimLocalReader(local_read_rng) if plan.reads_locally else None
        self.network.conditions.latency_ms_max = rng.choice((1.0, 10.0))
        self.machines = [self._new_machine(one, rng) for one in range(1, plan.broker_count + 1)]
        nemesis_rng = rng_of("nemesis", seed)
        # Every fault is allowed for a single broker: its durability is drawn to match its faults.
        is_synced = plan.flush in (None, "always")
        self.restarter = Restarter(
            loop=loop,
            machines=self.machines,
            rng=nemesis_rng,
            observer=self.observer,
            is_synced=is_synced,
        )
        self.store.screens.append(self.restarter.spare_in_sync)
        self.operator = Operator(store=self.store, observer=self.observer, rng=nemesis_rng)
        self.nemesis = Nemesis(
            loop=loop,
            network=self.network,
            machines=self.machines,
            rng=nemesis_rng,
            restarter=self.restarter,
            cluster=self._cluster_faults(nemesis_rng) if plan.is_cluster else None,
            disks=self._disk_swaps(nemesis_rng) if plan.changes_disks else None,
            is_synced=is_synced,
        )

    @property
    def addresses(self) -> dict[BrokerId, tuple[str, int]]:
        return {one.id: one.address for one in self.machines}

    def _disk_swaps(self, rng: Random) -> DiskSwaps:
        return DiskSwaps(
            machines=self.machines, restarter=self.restarter, operator=self.operator, rng=rng
        )

    def _cluster_faults(self, rng: Random) -> ClusterFaults:
        return ClusterFaults(
            loop=self._loop,
            network=self.network,
            machines=self.machines,
            restarter=self.restarter,
            observer=self.observer,
            operator=self.operator,
            triggers=Triggers(self.store),
            session_ttl_ms=self.plan.session_ttl_ms,
            rng=rng,
        )

    def _new_machine(self, number: int, rng: Random) -> Machine:
        plan = self.plan
        settings = Settings.from_flat(
            broker_id=number,
            listen=f"127.0.0.{number}:9092",
            # No connection is made to this address; it only says that the metadata store is shared.
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
            tag_index_check_ms=rng_of("tags", self._seed).choice((50, 1_000, 60_000)),
            view_scan_bytes_max=rng_of("scans", self._seed).choice((1_024, 8_192, 1 << 20)),
            topic={
                "segment.bytes": str(rng.choice((1_024, 20_000, 1 << 30))),
                "index.interval.bytes": str(rng.choice((0, 4_096))),
            },
            **(share_settings(self._seed) if plan.has_queues else {}),  # type: ignore[arg-type]
        )
        if plan.has_users:
            settings = settings.with_flat(**secured_settings(number))
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
        machine.store_conditions.latency_ms_max = rng.choice((0.5, 20.0))
        # On a slow disk, a power cut finds much unsynced data.
        machine.pace.ms_max = rng.choice((1.5, 20.0, 100.0))
        return machine
