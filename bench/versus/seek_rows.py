"""How long it takes to find the offset of a time."""

import random
import time

from bench.report import quantile
from bench.requests import Client, ListOffsetsFrame
from bench.versus.arena import Arena
from bench.versus.contender import Contender, Contenders
from bench.versus.filled_topic import FilledTopic, fill
from bench.versus.rounds import turns
from bench.versus.row import Unit

FAMILY = "Seek by time"
WARM_UP = 50
QUANTILES = {"p50": 0.5, "p99": 0.99}


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "The offset of a random time in a log of one partition, one question at a time on one connection.",
    )
    arena.progress(f"{FAMILY}: filling")
    logs = {
        one.name: fill(one, arena.new_topic_name(), messages=arena.sizes.log_messages)
        for one in contenders.like_with_like
    }
    for number, contender in turns(contenders.like_with_like, rounds=arena.sizes.rounds):
        arena.progress(f"{FAMILY}: {contender.name}")
        # The same questions for everybody, as shares of the log's span.
        taken = _ask(arena, contender, logs[contender.name], random.Random(number))
        for row, fraction in QUANTILES.items():
            value = quantile(taken, fraction)
            arena.results.add(FAMILY, row, Unit.MILLISECONDS, contender.name, value)
    for contender in contenders.like_with_like:
        arena.remove_topic(contender, logs[contender.name].name)


def _ask(arena: Arena, contender: Contender, log: FilledTopic, rng: random.Random) -> list[float]:
    """Milliseconds of each question."""
    frame = ListOffsetsFrame(log.name)
    taken = []
    with Client(contender.broker.host, contender.broker.port) as client:
        for number in range(WARM_UP + arena.sizes.seeks):
            time_ms = rng.randrange(log.time_first_ms, log.time_end_ms)
            request = frame.at(time_ms, number)
            began = time.perf_counter()
            client.socket.sendall(request)
            client.read_frame()
            taken.append(1000 * (time.perf_counter() - began))
    return taken[WARM_UP:]
