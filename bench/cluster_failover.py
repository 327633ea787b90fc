"""How long nobody can write to a partition whose leader was killed: until that is noticed, and until another has it."""

import time
from collections.abc import Mapping
from statistics import median

from bench.broker_process import BrokerFailed, BrokerProcess
from bench.cluster_process import ClusterProcess, partitions_of
from bench.report import Column, Report, Table, seconds
from bench.requests import INT, Batch, Client, ProduceFrame
from bench.scale import MESSAGE_BYTES, Scale

TOPIC = "bench"
ACKS_ALL = -1
TRIES = 10
STARTS_MAX = 5
# Seconds from the kill to the first acknowledged write.
DEFAULT_TARGET_S, TUNED_TARGET_S = 5.0, 2.0
TUNED = {"session_ttl_ms": 2_000, "dead_after_refused_ms": 300}

COLUMNS = (
    Column("what", "settings"),
    Column("detection", "detection, s", seconds),
    Column("detection_max", "longest", seconds),
    Column("takeover", "takeover, s", seconds),
    Column("takeover_max", "longest", seconds),
    Column("whole", "to the first write, s", seconds),
    Column("whole_max", "longest", seconds),
    Column("target", "target", seconds),
)


def run(scale: Scale, report: Report) -> None:
    table = Table(
        "failover", "Cluster: kill -9 of a leader to the first acknowledged write", COLUMNS
    )
    tuned = ", ".join(f"{name}={value}" for name, value in TUNED.items())
    tries = 3 if scale.name == "quick" else TRIES
    for what, settings, target in (
        ("default", {}, DEFAULT_TARGET_S),
        (tuned, TUNED, TUNED_TARGET_S),
    ):
        table.rows.append(
            {"what": what, "target": target} | _takeovers(report, what, settings, tries)
        )
    table.notes.append(
        f"{tries} kills each, medians. Detection: until a broker that is left names a new leader. Takeover: from then "
        "until a write with acks=all to that leader is answered. Clients' own ways of finding out come on top. "
        "A machine that vanishes refuses no connections: then detection takes session_ttl_ms."
    )
    report.add(table)


def _takeovers(
    report: Report, what: str, settings: Mapping[str, object], tries: int
) -> dict[str, float]:
    found: list[tuple[float, float]] = []
    with ClusterProcess(settings=settings) as cluster:
        cluster.create_topic(TOPIC)
        for number in range(tries):
            report.progress(f"cluster: failover with {what}, {number + 1} of {tries}")
            found.append(_one_takeover(cluster))
            cluster.wait_until_in_sync(TOPIC)
    figures: dict[str, float] = {}
    parts = {
        "detection": [one for one, _ in found],
        "takeover": [one for _, one in found],
        "whole": [sum(one) for one in found],
    }
    for name, samples in parts.items():
        figures |= {name: median(samples), f"{name}_max": max(samples)}
    return figures


def _one_takeover(cluster: ClusterProcess) -> tuple[float, float]:
    """Kill the leader, and start it again afterwards; return the seconds of detection and of takeover."""
    with cluster.client() as client:
        old = partitions_of(client, TOPIC)[0].leader_id
        _write(cluster.brokers[old])
    victim = cluster.brokers[old]
    victim.kill()
    began = time.perf_counter()
    with cluster.client() as client:
        while (leader := partitions_of(client, TOPIC)[0].leader_id) in {old, -1}:
            time.sleep(0.002)
    detected = time.perf_counter()
    while not _write(cluster.brokers[leader]):
        time.sleep(0.002)
    written = time.perf_counter()
    _start(victim)
    return detected - began, written - detected


def _start(broker: BrokerProcess) -> None:
    """With short leases a broker is impatient with a busy etcd, and is to be started again."""
    for _ in range(STARTS_MAX - 1):
        try:
            broker.start()
        except BrokerFailed:
            time.sleep(0.5)
        else:
            return
    broker.start()


def _write(broker: BrokerProcess) -> bool:
    """One message with acks=all; whether it was taken."""
    batch = Batch.of_size(1, message_bytes=MESSAGE_BYTES, time_ms=int(time.time() * 1000))
    request = ProduceFrame(TOPIC, batch, acks=ACKS_ALL)
    with Client(broker.host, broker.port) as client:
        client.socket.sendall(request.data)
        reply = client.read_frame()
    # The frame is read without its size.
    at = request.reply_error_at - INT.size
    return reply[at : at + 2] == b"\0\0"
