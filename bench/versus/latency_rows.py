"""End-to-end latency at given rates: p50, p99 and p99.9."""

from bench.versus.arena import Arena
from bench.versus.contender import Contender, Contenders
from bench.versus.latency_load import LINGER_MS
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.together import run_together

FAMILY = "End-to-end latency"
LOAD = "bench.versus.latency_load"
WARM_UP_SECONDS = 1.0
QUANTILES = ("p50", "p99", "p99.9")


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "From the moment a message is due to be sent until a consumer has it: librdkafka, 100 B, acks=all, "
        f"linger.ms={LINGER_MS}, one partition, a producer and a consumer in processes of their own.",
    )
    for rate in arena.sizes.latency_rates:
        for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
            _measure(arena, contender, rate)


def _measure(arena: Arena, contender: Contender, rate: int) -> None:
    arena.progress(f"{FAMILY}: {rate:,} messages/s: {contender.name}")
    warm_up = int(rate * WARM_UP_SECONDS)
    count = str(warm_up + int(rate * arena.sizes.latency_seconds))
    address = contender.broker.address
    with arena.topic(contender) as topic:
        _, taken = run_together(
            [
                (LOAD, "produce", address, topic, count, str(rate)),
                (LOAD, "consume", address, topic, count, str(warm_up)),
            ]
        )
    for quantile in QUANTILES:
        arena.results.add(
            FAMILY,
            f"{quantile} at {rate:,} messages/s",
            Unit.MILLISECONDS,
            contender.name,
            taken[quantile],
        )
