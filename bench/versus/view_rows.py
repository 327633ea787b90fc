"""Views: what a stock consumer of a few messages takes, beside one that reads everything to find them."""

import time
from dataclasses import dataclass
from functools import partial

from bench.load_client import LoadFailed, measure_command
from bench.requests import Client
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.together import run_together
from bench.versus.topics import delete_topics
from bench.versus.view_load import TAGS, TaggedLog, fill_tagged

FAMILY = "Views"
LOAD = "bench.versus.view_load"
LATENCY_LOAD = "bench.versus.latency_load"
SEGMENTS = {"segment.bytes": str(64 * 1024 * 1024)}
INDEX_SECONDS_MAX = 120.0
WARM_UP_ATTEMPTS = 4
TAIL_RATE = 1_000
TAIL_WARM_UP = 1_000
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What a consumer reads, of which log, and how many messages that is."""

    name: str
    topic: str
    log: TaggedLog
    count: int


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "librdkafka, 100 B messages with a tag, in batches of 16 KB that are compressed with zstd. Messages/s are "
        "those of the log: a consumer of a view of 1 % is done when it has that hundredth. Kafka has no views: its "
        "consumer reads everything, and would filter it. Every round reads a view that no one has read before.",
    )
    logs = {one.name: _fill(arena, one) for one in contenders.like_with_like}
    (topic, log) = logs[contenders.respool.name]
    _warm_up(contenders.respool, topic)
    for number, contender in turns(contenders.like_with_like, rounds=arena.sizes.rounds):
        everything, _ = logs[contender.name]
        reading = _Reading(name="all of it", topic=everything, log=log, count=log.messages)
        _measure(arena, contender, reading)
        if contender is contenders.kafka:
            continue
        for tag, odds in TAGS.items():
            view = f"{topic}.{tag}.{number}"
            _create_view(contender, view, of=topic, where=f"tag = '{tag}' and run != '{number}'")
            name = f"view of {100 / odds:g} %"
            reading = _Reading(name=name, topic=view, log=log, count=log.tagged[tag])
            _measure(arena, contender, reading)
    _wait_for_index(contenders.respool, topic)
    for number in range(arena.sizes.rounds):
        for tag, odds in TAGS.items():
            view = f"{topic}.{tag}.indexed.{number}"
            where = f"tag = '{tag}' and run != 'indexed-{number}'"
            _create_view(contenders.respool, view, of=topic, where=where)
            name = f"view of {100 / odds:g} %, indexed"
            reading = _Reading(name=name, topic=view, log=log, count=log.tagged[tag])
            _measure(arena, contenders.respool, reading)
    for contender in contenders.like_with_like:
        delete_topics(contender.broker.address, [logs[contender.name][0]])
    _measure_tail(arena, contenders.respool)
    arena.finish_family(FAMILY)


def _fill(arena: Arena, contender: Contender) -> tuple[str, TaggedLog]:
    arena.progress(f"{FAMILY}: filling {contender.name}")
    topic = arena.new_topic_name()
    broker = contender.broker
    with Client(broker.host, broker.port) as client:
        client.create_topic(topic, settings={**contender.topic_settings, **SEGMENTS})
    return topic, fill_tagged(broker.host, broker.port, topic, log_bytes=arena.sizes.view_log_bytes)


def _warm_up(contender: Contender, topic: str) -> None:
    """The first reader of a view waits until the kernels are loaded; after a change of the source, compiled."""
    view = f"{topic}.warm-up"
    _create_view(contender, view, of=topic, where="exists(tag) and run != 'warm-up'")
    for attempt in range(WARM_UP_ATTEMPTS, 0, -1):
        try:
            measure_command(contender.broker, LOAD, "consume", contender.broker.address, view, "1")
        except LoadFailed:
            if attempt == 1:
                raise
        else:
            return


def _create_view(contender: Contender, name: str, *, of: str, where: str) -> None:
    settings = {"respool.view.of": of, "respool.view.where": where}
    with Client(contender.broker.host, contender.broker.port) as client:
        client.create_topic(name, partitions=-1, settings=settings)


def _measure(arena: Arena, contender: Contender, reading: _Reading) -> None:
    load = partial(_consume, arena, contender, reading)
    arena.measure(FAMILY, f"librdkafka, {reading.name}", contender, load)


def _consume(arena: Arena, contender: Contender, reading: _Reading) -> Done:
    address = contender.broker.address
    command = (LOAD, "consume", address, reading.topic, str(reading.count))
    taken = measure_command(contender.broker, *command)
    received = taken.bytes / MILLION
    name = f"received by the client, {reading.name}"
    arena.results.add(FAMILY, name, Unit.MEGABYTES, contender.name, received)
    messages = reading.log.messages
    return Done(messages=messages, messages_per_s=messages / taken.seconds)


def _wait_for_index(contender: Contender, topic: str) -> None:
    """Every finished segment has its file; the active one is indexed in memory soon after."""
    folder = contender.broker.folder / f"{topic}-0"
    deadline = time.monotonic() + INDEX_SECONDS_MAX
    while time.monotonic() < deadline:
        if len(list(folder.glob("*.tagindex"))) >= len(list(folder.glob("*.log"))) - 1:
            time.sleep(2.0)
            return
        time.sleep(0.2)


def _measure_tail(arena: Arena, contender: Contender) -> None:
    """A view that shows everything: it adds to the way of a message what sifting takes."""
    count = str(TAIL_WARM_UP + int(TAIL_RATE * arena.sizes.latency_seconds))
    address = contender.broker.address
    for number in range(arena.sizes.rounds):
        for what in ("parent", "view"):
            with arena.topic(contender) as topic:
                read = topic
                if what == "view":
                    read = f"{topic}.v.{number}"
                    _create_view(contender, read, of=topic, where="absent(tag)")
                arena.progress(f"{FAMILY}: tail of a {what}")
                _, taken = run_together(
                    [
                        (LATENCY_LOAD, "produce", address, topic, count, str(TAIL_RATE)),
                        (LATENCY_LOAD, "consume", address, read, count, str(TAIL_WARM_UP)),
                    ]
                )
            name = f"tail of a {what}, p50 at {TAIL_RATE:,} messages/s"
            arena.results.add(FAMILY, name, Unit.MILLISECONDS, contender.name, taken["p50"])
