"""From Python: the clients that people have against both brokers."""

from bench.load_client import measure_command
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.rounds import turns

FAMILY = "From Python"
LOAD = "bench.versus.python_load"
# How many times the messages of the slowest client each gets.
CLIENTS = {"confluent-kafka": 5, "kafka-python": 1, "aiokafka": 1}


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "100 B, acks as the client's default is, one message at a time: the client is what bounds these rates. "
        "Columnar clients have a table of their own.",
    )
    for client, factor in CLIENTS.items():
        for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
            with arena.topic(contender) as topic:
                messages = arena.sizes.python_messages * factor
                for command in ("produce", "consume"):
                    _measure(arena, contender, client, command, topic, messages=messages)
    arena.finish_family(FAMILY)


def _measure(
    arena: Arena, contender: Contender, client: str, command: str, topic: str, *, messages: int
) -> None:
    def load() -> Done:
        broker = contender.broker
        done = measure_command(broker, LOAD, client, command, broker.address, topic, str(messages))
        return Done(messages=done.messages, messages_per_s=done.messages_per_s)

    arena.measure(FAMILY, f"{client}, {command}", contender, load)
