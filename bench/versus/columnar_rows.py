"""Respool's columnar client: tables written, read, and both at once. It speaks to Kafka's broker as well."""

from bench.load_client import measure_command
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.rounds import turns
from bench.versus.together import run_together

FAMILY = "Columnar client"
BOTH = "bench.versus.columnar_load"
ONE = "bench.arrow_load"
CODEC = "none"


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "respool.ArrowProducer and respool.stream_batches, 100 B values in batches of 1 MiB, acks=all, idempotent, "
        "one partition. At once: the slower of both counts.",
    )
    for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
        with arena.topic(contender) as topic:
            _one_way(arena, contender, "write", topic)
            _one_way(arena, contender, "read", topic)
        with arena.topic(contender) as topic:
            _at_once(arena, contender, topic)
    arena.finish_family(FAMILY)


def _one_way(arena: Arena, contender: Contender, command: str, topic: str) -> None:
    def load() -> Done:
        broker, count = contender.broker, str(arena.sizes.columnar_messages)
        done = measure_command(broker, ONE, command, broker.address, topic, count, CODEC)
        return Done(messages=done.messages, messages_per_s=done.messages_per_s)

    arena.measure(FAMILY, command, contender, load)


def _at_once(arena: Arena, contender: Contender, topic: str) -> None:
    count, address = arena.sizes.columnar_messages, contender.broker.address

    def load() -> Done:
        made, taken = run_together(
            [
                (BOTH, "write", address, topic, str(count)),
                (BOTH, "follow", address, topic, str(count)),
            ]
        )
        seconds = max(made["seconds"], taken["seconds"])
        return Done(messages=count, messages_per_s=count / seconds)

    arena.measure(FAMILY, "write and read at once", contender, load)
