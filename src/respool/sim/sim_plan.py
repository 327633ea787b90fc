"""What a seed runs: a single broker or a cluster, the cluster's size, and the durability of its topics."""

from dataclasses import dataclass

from respool.sim.runtime.simulated_sources import rng_of

# How often a seed runs a single broker instead of a cluster.
ALONE_ODDS = 0.25
# A hundred times the drift of a quartz clock; virtual machines can be as bad.
DRIFT_MAX = 0.01
# How often brokers of a cluster restart without their disk.
DISK_ODDS = 0.3
# How often brokers of a cluster can read each other's files.
LOCAL_READ_ODDS = 0.5
# How often there are views.
VIEW_ODDS = 0.5
# How often topics are deleted and recreated.
RECREATION_ODDS = 0.3
# How often there is a topic with delays.
DELAY_ODDS = 0.3
# How often a group retries what its handlers failed at.
RETRY_ODDS = 0.2
# How often a topic is shrunk and grown, in runs without any of these.
LAYOUT_ODDS = 0.8
# How often there are users with rights.
USER_ODDS = 0.25
# How often there are share groups, in runs without delays, retries, layouts and users.
QUEUE_ODDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPlan:
    broker_count: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    # respool.flush of topics; None: drawn later, when the faults of a single broker are known.
    flush: str | None = None
    session_ttl_ms: int = 9_000
    replica_lag_max_ms: int = 10_000
    replica_fetch_ahead_bytes: int = 256 * 1024
    tail_bytes_max: int = 0
    # Whether followers read from the leader's files.
    reads_locally: bool = False
    # Whether brokers are sometimes started with a disk that is not their own.
    changes_disks: bool = False
    # Whether topics are deleted and recreated all the time.
    recreates_topics: bool = False
    # Whether some consumers read views.
    has_views: bool = False
    # Whether records are delayed.
    has_delays: bool = False
    # Whether there is a group with retries.
    has_retries: bool = False
    # Whether there is a topic that is shrunk and grown all the time.
    has_layouts: bool = False
    # Whether there are users with rights that come and go.
    has_users: bool = False
    # Whether there are share groups.
    has_queues: bool = False
    # The rack of each machine; "" for none.
    racks: tuple[str, ...] = ("",)
    # The rate of each machine's monotonic clock.
    clock_rates: tuple[float, ...] = (1.0,)

    @property
    def is_cluster(self) -> bool:
        return self.broker_count > 1


def draw_sim_plan(seed: int, *, broker_count: int | None = None) -> SimPlan:
    """Draw the plan of a seed; `broker_count` replaces the number of brokers that the seed draws."""
    rng = rng_of("plan", seed)
    drawn = 1 if rng.random() < ALONE_ODDS else rng.choice((3, 3, 3, 3, 4, 5))
    count = broker_count or drawn
    if count == 1:
        return SimPlan(
            tail_bytes_max=_tail_bytes(seed),
            recreates_topics=_recreates(seed),
            has_views=_has_views(seed),
            has_delays=_has_delays(seed),
            has_retries=_has_retries(seed),
            has_layouts=_has_layouts(seed),
            has_users=_has_users(seed),
            has_queues=_has_queues(seed),
        )
    factor = min(count, rng.choice((2, 3, 3, 3)))
    flush = rng.choice(("always", "always", "interval", "os"))
    # With less than `always`, the last in-sync replica may lose data when it crashes. Then the partition has no leader
    # until an operator accepts the loss. The simulation has no such operator, so at least two replicas must be in sync.
    isr_min = rng.choice((1, 2, 2, 2)) if flush == "always" else 2
    has_racks = rng.random() < 0.4
    return SimPlan(
        broker_count=count,
        replication_factor=factor,
        min_insync_replicas=min(factor, isr_min),
        flush=flush,
        session_ttl_ms=rng.choice((2_000, 3_000, 6_000)),
        replica_lag_max_ms=rng.choice((500, 2_000, 6_000)),
        replica_fetch_ahead_bytes=rng.choice((1, 500, 256 * 1024)),
        tail_bytes_max=_tail_bytes(seed),
        reads_locally=rng_of("lending", seed).random() < LOCAL_READ_ODDS,
        changes_disks=rng_of("disks", seed).random() < DISK_ODDS,
        recreates_topics=_recreates(seed),
        has_views=_has_views(seed),
        has_delays=_has_delays(seed),
        has_retries=_has_retries(seed),
        has_layouts=_has_layouts(seed),
        has_users=_has_users(seed),
        has_queues=_has_queues(seed),
        racks=tuple(rng.choice("abc") if has_racks else "" for _ in range(count)),
        clock_rates=tuple(1 + DRIFT_MAX * rng.uniform(-1, 1) for _ in range(count)),
    )


def _tail_bytes(seed: int) -> int:
    """Draw 0, room for some batches, or room for all. Its own random source keeps the seed's other draws unchanged."""
    return rng_of("tail", seed).choice((0, 5_000, 1 << 20))


def _has_views(seed: int) -> bool:
    return rng_of("views", seed).random() < VIEW_ODDS


def _has_delays(seed: int) -> bool:
    return rng_of("delayed", seed).random() < DELAY_ODDS


def _has_retries(seed: int) -> bool:
    return rng_of("retried", seed).random() < RETRY_ODDS


def _has_layouts(seed: int) -> bool:
    """Only where nothing else is special: it adds several clients, and a run should stay short."""
    is_plain = not any(draw(seed) for draw in (_has_views, _has_delays, _has_retries, _recreates))
    return is_plain and rng_of("resized", seed).random() < LAYOUT_ODDS


def _has_users(seed: int) -> bool:
    """Without delays, views and layouts: a run should stay short."""
    is_plain = not any(draw(seed) for draw in (_has_views, _has_delays, _has_layouts))
    return is_plain and rng_of("accounts", seed).random() < USER_ODDS


def _has_queues(seed: int) -> bool:
    """One of these scenarios at a time keeps runs short."""
    drawn = (_has_delays, _has_retries, _has_layouts, _has_users)
    is_free = not any(draw(seed) for draw in drawn)
    return is_free and rng_of("queued", seed).random() < QUEUE_ODDS


def _recreates(seed: int) -> bool:
    return rng_of("making", seed).random() < RECREATION_ODDS
