"""Retries and dead letters: failures a second that wait in the retry topic, and how fast dead letters are put back.

Kafka has them for share groups only, without a delay. RocketMQ has them in its broker: measured beside us if it can be
had.
"""

import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.broker_process import ROOT, SERVE, BrokerFailed
from bench.load_client import LoadFailed, Measured, measure_command
from bench.requests import Client
from bench.versus.arena import MILLION, Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.rocketmq import RocketMqProcess, RocketMqUnavailable, rocketmq_started
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.topics import delete_topics
from respool.model.retry.group_topics import dead_letter_topic, retry_topic

FAMILY = "Retries"
CLIENT_CPU = f"{FAMILY}: client CPU"
LOAD = "bench.versus.retry_load"
ROWS = {
    "again": "failures that wait in the retry topic",
    "again-exactly-once": "the same, in transactions",
    "until-handled": "failed once, handled a second later",
    "bury": "failures that become dead letters",
}
REPLAYED = "dead letters put back by `respool dlq replay`"
REPLAY_SECONDS_MAX = 300.0
ROCKETMQ = "RocketMQ"


def run(arena: Arena, contenders: Contenders) -> None:
    sizes = arena.sizes
    arena.results.note(
        FAMILY,
        f"{sizes.failed_messages:,} messages of 100 B, for dead letters {sizes.dead_letters:,}, and a handler that "
        "fails, in one process: `respool.Consumer(retry=...)`, or RocketMQ's push consumer. A failure counts when its "
        "retry or dead letter is acknowledged. 'Handled a second later' counts that second, too. "
        "Kafka's groups have no retries.",
    )
    ours = (contenders.respool, contenders.synced)
    with ExitStack() as stack:
        other = _start_other(arena, stack)
        for number, contender in turns(ours, rounds=arena.sizes.rounds):
            _measure(arena, contender, number)
        if other is not None:
            for number in range(arena.sizes.rounds):
                _measure_other(arena, other, number)
    arena.finish_family(FAMILY)


def _measure(arena: Arena, contender: Contender, number: int) -> None:
    sizes = arena.sizes
    counts = dict.fromkeys(ROWS, sizes.failed_messages) | {"bury": sizes.dead_letters}
    group = f"bench-{contender.name.split()[-1].lower()}-{number}"
    groups = [f"{group}-{name}" for name in ROWS]
    with arena.topic(contender) as topic, _group_topics(contender, groups):
        most = str(max(counts.values()))
        measure_command(contender.broker, LOAD, "fill", contender.broker.address, topic, most)
        for name, row in ROWS.items():
            _measure_load(arena, contender, row, (name, topic, f"{group}-{name}"), counts[name])
        _measure_replay(arena, contender, f"{group}-bury", counts["bury"])


@contextmanager
def _group_topics(contender: Contender, groups: Sequence[str]) -> Iterator[None]:
    """Made beforehand with the contender's settings: a consumer would make them with the broker's defaults."""
    names = []
    with Client(contender.broker.host, contender.broker.port) as client:
        for group in groups:
            retries, letters = retry_topic(group), dead_letter_topic(group)
            names += [retries, letters]
            settings = contender.topic_settings
            client.create_topic(retries, settings={**settings, "respool.delay": "true"})
            client.create_topic(letters, settings=settings)
    try:
        yield
    finally:
        delete_topics(contender.broker.address, names)


def _measure_load(
    arena: Arena, contender: Contender, row: str, command: tuple[str, str, str], count: int
) -> None:
    name, topic, group = command

    def load() -> Done:
        address = contender.broker.address
        done = measure_command(contender.broker, LOAD, name, address, topic, str(count), group)
        _add_client_cpu(arena, row, contender, done)
        return Done(messages=done.messages, messages_per_s=done.messages_per_s)

    arena.measure(FAMILY, row, contender, load)


def _measure_replay(arena: Arena, contender: Contender, group: str, count: int) -> None:
    """As an operator has it: with the start of the command."""
    with Client(contender.broker.host, contender.broker.port) as client:
        before = client.end_offset(retry_topic(group))

    def load() -> Done:
        began, cpu_began = time.perf_counter(), _children_cpu_s()
        done = subprocess.run(
            [*SERVE, "dlq", "replay", group, "--broker", contender.broker.address],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=REPLAY_SECONDS_MAX,
            check=False,
        )
        seconds, cpu_s = time.perf_counter() - began, _children_cpu_s() - cpu_began
        if done.returncode:
            raise LoadFailed(
                f"respool dlq replay ended with {done.returncode}: {done.stderr.strip()}"
            )
        with Client(contender.broker.host, contender.broker.port) as client:
            copied = client.end_offset(retry_topic(group)) - before
        if copied != count:
            raise LoadFailed(f"respool dlq replay copied {copied:,} letters of {count:,}")
        arena.results.add(FAMILY, f"{count:,} {REPLAYED}", Unit.SECONDS, contender.name, seconds)
        cpu = cpu_s / count * MILLION
        arena.results.add(CLIENT_CPU, REPLAYED, Unit.CPU_S_PER_MILLION, contender.name, cpu)
        return Done(messages=count, messages_per_s=count / seconds)

    arena.measure(FAMILY, REPLAYED, contender, load)


def _children_cpu_s() -> float:
    """Of child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# -- RocketMQ


def _start_other(arena: Arena, stack: ExitStack) -> RocketMqProcess | None:
    try:
        return stack.enter_context(rocketmq_started())
    except (RocketMqUnavailable, BrokerFailed) as error:
        arena.results.note(FAMILY, f"{ROCKETMQ} is left out: {str(error).splitlines()[0]}")
        return None


def _measure_other(arena: Arena, other: RocketMqProcess, number: int) -> None:
    count = arena.sizes.failed_messages
    contender = Contender(name=ROCKETMQ, broker=other, topic_settings={})
    topic, group = f"bench-retries-{number}", f"bench-retrying-{number}"
    row = ROWS["until-handled"]
    other.run("fill", topic, str(count))

    def load() -> Done:
        done = other.run("until-handled", topic, str(count), group)
        _add_client_cpu(arena, row, contender, done)
        return Done(messages=count, messages_per_s=done.messages_per_s)

    arena.measure(FAMILY, row, contender, load)


def _add_client_cpu(arena: Arena, row: str, contender: Contender, done: Measured) -> None:
    cpu = done.client_cpu_s / done.messages * MILLION
    arena.results.add(CLIENT_CPU, row, Unit.CPU_S_PER_MILLION, contender.name, cpu)
