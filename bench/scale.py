"""How much each row does: three sizes of the same run, so that a quick look and a long measurement share their code."""

from dataclasses import dataclass

KB = 1024
MB = 1024 * KB
GB = 1024 * MB

MESSAGE_BYTES = 100
# A topic's default limit is 1 MiB and 12 bytes a batch, so the largest fits without any setting.
BATCH_BYTES = (16 * KB, 256 * KB, 1 * MB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    # How long one figure is measured, and what it may write at the most meanwhile.
    seconds: float
    cell_bytes_max: int
    # Each produce and fetch figure is the median of this many runs.
    repeats: int
    connections: tuple[int, ...]
    fetch_log_bytes: int
    # Of which the fourth broker gets two thirds, and the fifth then half.
    moved_log_bytes: int
    growth_small_bytes: int
    growth_large_bytes: int
    partitions_many: int
    lookups: int
    idle_seconds: float
    flood_seconds: float
    flood_consumers: int
    latency_samples: int
    librdkafka_messages: int
    arrow_messages: int
    delayed_messages: int


QUICK = Scale(
    name="quick",
    seconds=1.0,
    cell_bytes_max=1 * GB,
    repeats=1,
    connections=(1,),
    fetch_log_bytes=256 * MB,
    moved_log_bytes=256 * MB,
    growth_small_bytes=10 * MB,
    growth_large_bytes=2 * GB,
    partitions_many=1_000,
    lookups=300,
    idle_seconds=5.0,
    flood_seconds=5.0,
    flood_consumers=200,
    latency_samples=200,
    librdkafka_messages=300_000,
    arrow_messages=2_000_000,
    delayed_messages=200_000,
)

DEFAULT = Scale(
    name="default",
    seconds=2.0,
    cell_bytes_max=2 * GB,
    repeats=1,
    connections=(1, 4),
    fetch_log_bytes=1 * GB,
    moved_log_bytes=3 * GB,
    growth_small_bytes=10 * MB,
    growth_large_bytes=2 * GB,
    partitions_many=1_000,
    lookups=1_000,
    idle_seconds=10.0,
    flood_seconds=10.0,
    flood_consumers=300,
    latency_samples=1_000,
    librdkafka_messages=1_000_000,
    arrow_messages=20_000_000,
    delayed_messages=10_000_000,
)

FULL = Scale(
    name="full",
    seconds=4.0,
    cell_bytes_max=4 * GB,
    repeats=3,
    connections=(1, 4),
    fetch_log_bytes=2 * GB,
    moved_log_bytes=3 * GB,
    growth_small_bytes=10 * MB,
    growth_large_bytes=20 * GB,
    partitions_many=1_000,
    lookups=2_000,
    idle_seconds=20.0,
    flood_seconds=20.0,
    flood_consumers=500,
    latency_samples=3_000,
    librdkafka_messages=3_000_000,
    arrow_messages=20_000_000,
    delayed_messages=10_000_000,
)


def size_text(count: int) -> str:
    for unit, size in (("GB", GB), ("MB", MB), ("KB", KB)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} B"
