"""Producers and consumers at once: one follows the other, or catches up with a log that others write to."""

from functools import partial

from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.filled_topic import fill
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.together import rate, run_together

FAMILY = "Produce and consume"
LOAD = "bench.versus.librdkafka_load"
MESSAGE_BYTES = 100


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "librdkafka, 100 B, acks=all, one partition. Catch-up: a cold log is read from its start while a producer "
        "appends to the same partition as fast as it can.",
    )
    for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
        with arena.topic(contender) as topic:
            load = partial(_follow, arena, contender, topic)
            arena.measure(FAMILY, "librdkafka, a consumer follows a producer", contender, load)
    if not arena.sizes.is_quick:
        for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
            _catch_up(arena, contender)
    arena.finish_family(FAMILY)


def _follow(arena: Arena, contender: Contender, topic: str) -> Done:
    messages = arena.sizes.librdkafka_messages
    made, taken = run_together(
        [_produce(contender, topic, messages), _consume(contender, topic, messages)]
    )
    # Both have done all of it when the slower has.
    seconds = max(made["seconds"], taken["seconds"])
    return Done(messages=messages, messages_per_s=messages / seconds)


def _catch_up(arena: Arena, contender: Contender) -> None:
    arena.progress(f"{FAMILY}: catch-up: {contender.name}")
    name, messages = arena.new_topic_name(), arena.sizes.librdkafka_messages
    log = fill(contender, name, messages=messages)
    contender.broker.forget_cached()
    made, taken = run_together(
        [_produce(contender, name, messages), _consume(contender, name, log.messages)]
    )
    arena.remove_topic(contender, name)
    for row, result in (("the consumer", taken), ("the producer", made)):
        arena.results.add(
            FAMILY,
            f"librdkafka, catch-up: {row}",
            Unit.MESSAGES_PER_S,
            contender.name,
            rate(result),
        )


def _produce(contender: Contender, topic: str, messages: int) -> tuple[str, ...]:
    return (LOAD, "produce", contender.broker.address, topic, str(messages), str(MESSAGE_BYTES))


def _consume(contender: Contender, topic: str, messages: int) -> tuple[str, ...]:
    return (LOAD, "consume", contender.broker.address, topic, str(messages))
