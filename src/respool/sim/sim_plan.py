"""What kind of run a seed makes: a broker alone, or a cluster, how large, and what it promises."""

from dataclasses import dataclass

from respool.sim.runtime.seeded_random import rng_of

# How often a seed runs a broker alone.
ALONE_ODDS = 0.25
# Quartz is a hundred times better; virtual machines are not always.
DRIFT_MAX = 0.01
# How often brokers of a cluster come back without their disk.
DISK_ODDS = 0.3
# How often the brokers of a cluster are on one machine, as far as their files go.
LENDING_ODDS = 0.5
# How often somebody deletes a topic and makes it anew.
MAKING_ODDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPlan:
    broker_count: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    # respool.flush of topics; None: drawn later, when it is known what a broker alone will suffer.
    flush: str | None = None
    session_ttl_ms: int = 9_000
    replica_lag_max_ms: int = 10_000
    replica_fetch_ahead_bytes: int = 256 * 1024
    tail_bytes_max: int = 0
    # Whether brokers read from each other's files what the leader lends them.
    lends_files: bool = False
    # Whether brokers are started with another disk than their own now and then.
    changes_disks: bool = False
    # Whether a topic is deleted and made anew all the time.
    makes_topics_anew: bool = False
    # By machine; "" for none.
    racks: tuple[str, ...] = ("",)
    # How fast each machine's monotonic clock goes.
    clock_rates: tuple[float, ...] = (1.0,)

    @property
    def is_cluster(self) -> bool:
        return self.broker_count > 1


def draw_sim_plan(seed: int, *, broker_count: int | None = None) -> SimPlan:
    """`broker_count`: as many, whatever the seed would like."""
    rng = rng_of("plan", seed)
    drawn = 1 if rng.random() < ALONE_ODDS else rng.choice((3, 3, 3, 3, 4, 5))
    count = broker_count or drawn
    if count == 1:
        return SimPlan(tail_bytes_max=_tail_bytes(seed), makes_topics_anew=_makes_anew(seed))
    factor = min(count, rng.choice((2, 3, 3, 3)))
    flush = rng.choice(("always", "always", "interval", "os"))
    # With less than `always`, who is alone in sync and crashes may have lost something. Nobody leads the partition then
    # until an operator gives up what may be lost. There is none here, so more than one must be in sync.
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
        lends_files=rng_of("lending", seed).random() < LENDING_ODDS,
        changes_disks=rng_of("disks", seed).random() < DISK_ODDS,
        makes_topics_anew=_makes_anew(seed),
        racks=tuple(rng.choice("abc") if has_racks else "" for _ in range(count)),
        clock_rates=tuple(1 + DRIFT_MAX * rng.uniform(-1, 1) for _ in range(count)),
    )


def _tail_bytes(seed: int) -> int:
    """None, a few batches, or all that is appended. Its own generator leaves a seed's other draws unchanged."""
    return rng_of("tail", seed).choice((0, 5_000, 1 << 20))


def _makes_anew(seed: int) -> bool:
    return rng_of("making", seed).random() < MAKING_ODDS
