"""Work for brokers before the first figure: a JVM compiles what it runs often, and every server fills its caches."""

from bench.load_client import measure_command
from bench.versus.arena import Arena
from bench.versus.contender import Contenders
from bench.versus.filled_topic import fill


def warm_up(arena: Arena, contenders: Contenders) -> None:
    """Some ten thousand requests of each of the two kinds that matter."""
    for contender in contenders.like_with_like:
        arena.progress(f"warming up: {contender.name}")
        broker = contender.broker
        log = fill(contender, arena.new_topic_name(), messages=arena.sizes.warm_up_messages)
        measure_command(
            broker,
            "bench.versus.librdkafka_load",
            "consume",
            broker.address,
            log.name,
            str(log.messages),
        )
        arena.remove_topic(contender, log.name)
