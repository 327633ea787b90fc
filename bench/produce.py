"""What appending costs the broker: messages per second of its CPU, by batch size, acks and flush."""

from collections.abc import Iterator
from statistics import median_low
from typing import Any

from bench.broker_process import BrokerProcess
from bench.load_client import Measured, measure
from bench.produce_load import ProduceSpec, window_for
from bench.report import Column, Report, Table, megabytes, millions, percent, ratio
from bench.requests import Client
from bench.scale import BATCH_BYTES, KB, MB, MESSAGE_BYTES, Scale, size_text
from bench.warm_memory import WarmMemory

TOPIC = "bench"
ACKS_ALL = -1
# Messages per CPU-second of one core; for the size between them nothing was promised.
TARGETS = {16 * KB: 2e6, 1 * MB: 12e6}

COLUMNS = (
    Column("batch", "batch"),
    Column("acks", "acks"),
    Column("flush", "flush"),
    Column("connections", "conns"),
    Column("messages_per_s", "messages/s", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("messages_per_cpu_s", "messages per broker CPU-s", millions),
    Column("target", "target", millions),
    Column("of_target", "of target", ratio),
    Column("broker_cores", "broker CPU", percent),
    Column("system_share", "of it kernel", percent),
    Column("client_cores", "client CPU", percent),
)


def run(scale: Scale, report: Report) -> None:
    with WarmMemory(scale.cell_bytes_max) as memory:
        table = _table(scale, report, memory)
    report.add(table)


def _table(scale: Scale, report: Report, memory: WarmMemory) -> Table:
    table = Table("produce", "Produce: 100-byte messages, prebuilt batches, pipelined", COLUMNS)
    for batch_bytes, acks, flush, connections in _cells(scale):
        acks_text = "all" if acks == ACKS_ALL else str(acks)
        report.progress(
            f"produce {size_text(batch_bytes)} acks={acks_text} flush={flush} x{connections}"
        )
        runs = [
            one_run(
                scale,
                memory,
                batch_bytes=batch_bytes,
                acks=acks,
                flush=flush,
                connections=connections,
            )
            for _ in range(scale.repeats)
        ]
        middle = _middle(runs)
        table.rows.append(
            {
                "batch": size_text(batch_bytes),
                "acks": acks_text,
                "flush": flush,
                "connections": connections,
            }
            | figures(middle, target=TARGETS.get(batch_bytes))
        )
    table.notes.append(
        "Under way on each connection: "
        + ", ".join(f"{window_for(size)} requests of {size_text(size)}" for size in BATCH_BYTES)
        + "; one batch a request, idempotence off."
    )
    return table


def _cells(scale: Scale) -> Iterator[tuple[int, int, str, int]]:
    for batch_bytes in BATCH_BYTES:
        for flush in ("always", "os"):
            for acks in (ACKS_ALL, 1):
                # How acks and connections go together is seen at one of them.
                for connections in scale.connections if acks == ACKS_ALL else (1,):
                    yield batch_bytes, acks, flush, connections


def one_run(
    scale: Scale, memory: WarmMemory, *, batch_bytes: int, acks: int, flush: str, connections: int
) -> Measured:
    """Produce to a new topic of a new broker."""
    memory.refill()
    with BrokerProcess() as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, settings={"respool.flush": flush})
        return measure(
            broker,
            produce_spec(
                scale,
                broker,
                batch_bytes=batch_bytes,
                acks=acks,
                connections=connections,
                seconds=scale.seconds,
            ),
            memory=memory,
        )


def produce_spec(
    scale: Scale,
    broker: BrokerProcess,
    *,
    batch_bytes: int,
    acks: int,
    connections: int,
    seconds: float,
    warm_up_seconds: float | None = None,
) -> ProduceSpec:
    return ProduceSpec(
        host=broker.host,
        port=broker.port,
        topic=TOPIC,
        acks=acks,
        batch_bytes=batch_bytes,
        message_bytes=MESSAGE_BYTES,
        connections=connections,
        window=window_for(batch_bytes),
        seconds=seconds,
        bytes_max=scale.cell_bytes_max,
        warm_up_seconds=seconds / 5 if warm_up_seconds is None else warm_up_seconds,
    )


def figures(one: Measured, *, target: float | None) -> dict[str, Any]:
    return {
        "messages_per_s": one.messages_per_s,
        "bytes_per_s": one.bytes_per_s,
        "messages_per_cpu_s": one.messages_per_cpu_s,
        "target": target,
        "of_target": one.messages_per_cpu_s / target if target else None,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "system_share": one.broker_system_s / one.broker_cpu_s,
        "client_cores": one.client_cpu_s / one.seconds,
    }


def _middle(runs: list[Measured]) -> Measured:
    wanted = median_low([one.messages_per_cpu_s for one in runs])
    return next(one for one in runs if one.messages_per_cpu_s == wanted)
