"""How much is measured: everything for the record, or a part of it in a few minutes."""

from dataclasses import dataclass

from bench.scale import GB, MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    name: str
    is_quick: bool
    # And of starts with a large log, which take long by themselves.
    rounds: int
    rounds_start: int
    disk_bytes_min: int
    # Before the first figure.
    warm_up_messages: int
    # A produce figure writes this much, the first part of it unmeasured.
    produce_bytes: int
    warm_up_share: float
    # For consumers.
    log_messages: int
    librdkafka_messages: int
    python_messages: int
    columnar_messages: int
    latency_rates: tuple[int, ...]
    latency_seconds: float
    start_log_bytes: int
    # Before it is compressed.
    view_log_bytes: int
    delayed_messages: int
    failed_messages: int
    dead_letters: int
    topics: int
    topics_in_turn: int
    seeks: int
    idle_seconds: float

    def produce_messages(self, message_bytes: int) -> int:
        # Small messages cost by their number, large ones by their bytes.
        return self.produce_bytes // max(message_bytes, 100)


QUICK = Sizes(
    name="quick",
    is_quick=True,
    rounds=3,
    rounds_start=1,
    disk_bytes_min=8 * GB,
    warm_up_messages=1_500_000,
    produce_bytes=80 * MB,
    warm_up_share=0.4,
    log_messages=1_500_000,
    librdkafka_messages=300_000,
    python_messages=30_000,
    columnar_messages=1_000_000,
    latency_rates=(10_000,),
    latency_seconds=2.0,
    start_log_bytes=1 * GB,
    view_log_bytes=200 * MB,
    delayed_messages=50_000,
    failed_messages=20_000,
    dead_letters=100_000,
    topics=100,
    topics_in_turn=30,
    seeks=200,
    idle_seconds=2.0,
)

FULL = Sizes(
    name="full",
    is_quick=False,
    rounds=3,
    rounds_start=3,
    disk_bytes_min=24 * GB,
    warm_up_messages=5_000_000,
    produce_bytes=200 * MB,
    warm_up_share=0.25,
    log_messages=5_000_000,
    librdkafka_messages=4_000_000,
    python_messages=200_000,
    columnar_messages=20_000_000,
    latency_rates=(1_000, 10_000, 100_000),
    latency_seconds=10.0,
    start_log_bytes=10 * GB,
    view_log_bytes=1 << 30,
    delayed_messages=500_000,
    failed_messages=100_000,
    dead_letters=100_000,
    topics=1_000,
    topics_in_turn=100,
    seeks=2_000,
    idle_seconds=10.0,
)
