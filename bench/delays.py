"""Delayed messages that wait: how fast they are taken in, and a start after a kill with very many of them."""

import random
import re
import time
import uuid
from pathlib import Path
from urllib.request import urlopen

from bench.broker_process import BrokerFailed, BrokerProcess
from bench.report import Column, Report, Table, count, mebibytes, seconds
from bench.requests import Batch, Client, ProduceFrame, read_exactly
from bench.scale import Scale
from bench.versus.ports import free_ports
from bench.waiting_log import WaitingBatch, add_waiting
from respool.model.ids import TopicPartition
from respool.model.topic_config import TopicConfig

TOPIC = "reminders"
MESSAGES_PER_BATCH = 500
# Different batches; each is sent many times.
VARIANTS = 200
VALUE = bytes(20)
# Later than the run, and over a day.
BEGIN_MS = 6 * 3_600_000
SPREAD_MS = 86_400_000
ACKS_LEADER = 1
# More are not produced: that takes a core for half an hour.
PRODUCED_MAX = 20_000_000
# Fewer are all in memory.
FILES_FROM = 1_000_000
IN_FLIGHT = 4
FEED_SECONDS_MAX = 1_800.0
CHECKPOINT_SECONDS_MAX = 90.0
POLL_SECONDS = 0.05
PENDING = re.compile(r"^respool_delay_pending (\S+)$", re.MULTILINE)

COLUMNS = (
    Column("pending", "messages that wait", count),
    Column("per_cpu_s", "taken in per broker CPU-s", count),
    Column("anonymous_before", "memory before, MB", mebibytes),
    Column("anonymous", "memory with them, MB", mebibytes),
    Column("files", "files, MB", mebibytes),
    Column("start_empty", "start without them, s", seconds),
    Column("start_empty_cpu", "its CPU, s", seconds),
    Column("start", "start after a kill, s", seconds),
    Column("start_cpu", "its CPU, s", seconds),
    Column("known", "until all are known, s", seconds),
    Column("anonymous_after", "memory after it, MB", mebibytes),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("delays", "Delayed messages that wait", COLUMNS)
    measure = _measure
    if scale.delayed_messages > PRODUCED_MAX:
        measure = _measure_added
        table.notes.append(
            "Not produced: the log's and the index's own code put them into the folder of a stopped broker, and memory "
            "with them is that after its start."
        )
    for messages in sorted({scale.delayed_messages // 10, scale.delayed_messages}):
        report.progress(f"delays, {messages:,} that wait")
        table.rows.append(measure(messages))
    small, large = table.rows[0], table.rows[-1]
    if small["pending"] >= FILES_FROM:
        grown = large["anonymous_after"] - small["anonymous_after"]
        per_message = max(0.0, grown / (large["pending"] - small["pending"]))
        table.notes.append(
            f"Memory after the start grows by {per_message:.2f} bytes a message: 100 million would take "
            f"{mebibytes(small['anonymous_after'] + per_message * 1e8)} MB."
        )
    report.add(table)


def _measure(messages: int) -> dict[str, float]:
    (port,) = free_ports(1)
    with BrokerProcess({"metrics_listen": f"127.0.0.1:{port}"}) as broker:
        start_empty, start_empty_cpu = broker.start_seconds, broker.cpu().total
        _create_topic(broker, messages)
        before = broker.memory().anonymous
        cpu = broker.cpu()
        _fill(broker, messages)
        _wait_until_known(port, messages)
        spent = (broker.cpu() - cpu).total
        _wait_for_checkpoint(broker)
        row: dict[str, float] = {
            "pending": messages,
            "per_cpu_s": messages / spent,
            "anonymous_before": before,
            "anonymous": broker.memory().anonymous,
            "files": sum(one.stat().st_size for one in _files(broker)),
            "start_empty": start_empty,
            "start_empty_cpu": start_empty_cpu,
        }
        return row | _killed(broker, port, messages)


def _measure_added(messages: int) -> dict[str, float]:
    (port,) = free_ports(1)
    with BrokerProcess({"metrics_listen": f"127.0.0.1:{port}"}) as broker:
        start_empty, start_empty_cpu = broker.start_seconds, broker.cpu().total
        topic_id = _create_topic(broker, messages)
        before = broker.memory().anonymous
        _fill(broker, MESSAGES_PER_BATCH)
        _wait_until_known(port, MESSAGES_PER_BATCH)
        broker.stop()
        add_waiting(
            broker.folder,
            TopicPartition(TOPIC, 0),
            topic_id,
            TopicConfig(respool_delay=True),
            _batches(),
            count=messages // MESSAGES_PER_BATCH - 1,
        )
        broker.start()
        _wait_until_known(port, messages)
        row: dict[str, float] = {
            "pending": messages,
            "anonymous_before": before,
            "anonymous": broker.memory().anonymous,
            "files": sum(one.stat().st_size for one in _files(broker)),
            "start_empty": start_empty,
            "start_empty_cpu": start_empty_cpu,
        }
        return row | _killed(broker, port, messages)


def _create_topic(broker: BrokerProcess, messages: int) -> uuid.UUID:
    settings = {"respool.delay": "true", "respool.flush": "os"}
    # By default as many as the largest run has; it could not go beyond.
    settings["respool.delay.pending.max"] = str(2 * messages)
    with Client(broker.host, broker.port) as client:
        client.create_topic(TOPIC, settings=settings)
        return client.topic_id(TOPIC)


def _killed(broker: BrokerProcess, port: int, messages: int) -> dict[str, float]:
    broker.kill()
    began = time.perf_counter()
    start = broker.start()
    start_cpu = broker.cpu().total
    _wait_until_known(port, messages)
    known = time.perf_counter() - began
    return {
        "start": start,
        "start_cpu": start_cpu,
        "known": known,
        "anonymous_after": broker.memory().anonymous,
    }


def _files(broker: BrokerProcess) -> list[Path]:
    return list((broker.folder / f"{TOPIC}-0" / "pending").iterdir())


def _fill(broker: BrokerProcess, messages: int) -> None:
    batches = [Batch(data=bytes(one.batch.data), messages=MESSAGES_PER_BATCH) for one in _batches()]
    frames = [ProduceFrame(TOPIC, batch, acks=ACKS_LEADER) for batch in batches]
    with Client(broker.host, broker.port) as client:
        for number in range(messages // MESSAGES_PER_BATCH):
            client.socket.sendall(frames[number % VARIANTS].data)
            if number >= IN_FLIGHT:
                _take_reply(client)
        for _ in range(min(IN_FLIGHT, messages // MESSAGES_PER_BATCH)):
            _take_reply(client)


def _take_reply(client: Client) -> None:
    read_exactly(client.socket, int.from_bytes(read_exactly(client.socket, 4), "big"))


def _batches() -> list[WaitingBatch]:
    rng = random.Random(1)
    now_ms = int(time.time() * 1000)
    due_ms = [
        [now_ms + BEGIN_MS + rng.randrange(SPREAD_MS) for _ in range(MESSAGES_PER_BATCH)]
        for _ in range(VARIANTS)
    ]
    return [WaitingBatch.of(VALUE, one, now_ms=now_ms) for one in due_ms]


def _wait_until_known(port: int, messages: int) -> None:
    deadline = time.monotonic() + FEED_SECONDS_MAX
    while (known := _pending(port)) < messages:
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the broker knows of {known:,.0f} messages of {messages:,}")
        time.sleep(POLL_SECONDS)


def _pending(port: int) -> float:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            found = PENDING.search(reply.read().decode())
    except OSError:
        return -1.0
    return float(found[1]) if found else -1.0


def _wait_for_checkpoint(broker: BrokerProcess) -> None:
    """The next start reads what came after it."""
    began_s = time.time()
    deadline = time.monotonic() + CHECKPOINT_SECONDS_MAX
    path = broker.folder / f"{TOPIC}-0" / "pending" / "checkpoint"
    while not path.exists() or path.stat().st_mtime < began_s:
        if time.monotonic() > deadline:
            raise BrokerFailed(f"no {path} within {CHECKPOINT_SECONDS_MAX:.0f} s")
        time.sleep(1.0)
