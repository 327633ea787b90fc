"""What 1, 2 and 3 brokers take together on this machine, and which resource bound that."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from bench.broker_process import BrokerProcess
from bench.cluster_process import ClusterProcess, partitions_of
from bench.disk_speed import disk_bytes_per_s
from bench.load_client import LoadClient
from bench.produce_load import ProduceSpec, window_for
from bench.report import Column, Report, Table, megabytes, millions, percent, ratio
from bench.scale import MB, MESSAGE_BYTES, Scale
from bench.warm_memory import WarmMemory

TOPIC = "rates"
ACKS_ALL = -1
BATCH_BYTES = 1 * MB
WINDOW_MIN = 20
BROKERS = (1, 2, 3)
# From this share of a resource on, it counts as what bound the rate.
BOUND_FROM = 0.8

COLUMNS = (
    Column("brokers", "brokers"),
    Column("messages_per_s", "messages/s, all together", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("scaling", "of one broker's", ratio),
    Column("broker_cores", "brokers' CPU", percent),
    Column("client_cores", "clients' CPU", percent),
    Column("machine", "of the machine's CPU", percent),
    Column("disk", "of the disk's rate", percent),
    Column("bound_by", "bound by"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What brokers and clients did in one measurement, one client for each broker."""

    brokers: int
    messages_per_s: float
    bytes_per_s: float
    # In cores.
    broker_cores: float
    client_cores: float
    # Of all cores, also by other processes and the kernel.
    machine_share: float


def bound_by(rate: Rate, *, disk_bytes_per_s: float) -> str:
    """Name the resource that was used up; with several, the one that was used most."""
    shares = {
        "the machine's CPU": rate.machine_share,
        "the disk": rate.bytes_per_s / disk_bytes_per_s,
        "the clients": rate.client_cores / rate.brokers,
    }
    name = max(shares, key=lambda one: shares[one])
    return name if shares[name] >= BOUND_FROM else "none of them: replies are waited for"


def run(scale: Scale, report: Report) -> None:
    cores = os.cpu_count() or 1
    rates = []
    with WarmMemory(scale.cell_bytes_max) as memory:
        for count in BROKERS:
            report.progress(f"cluster: {count} brokers together")
            memory.refill()
            rates.append(_measure(count, scale, memory))
        disk = disk_bytes_per_s(scale.cell_bytes_max, memory)
    report.add(table_of(rates, cores=cores, disk=disk))


def table_of(rates: list[Rate], *, cores: int, disk: float) -> Table:
    table = Table("aggregate", "Cluster: 1, 2 and 3 brokers together, one machine", COLUMNS)
    for rate in rates:
        table.rows.append(
            {
                "brokers": rate.brokers,
                "messages_per_s": rate.messages_per_s,
                "bytes_per_s": rate.bytes_per_s,
                "scaling": rate.messages_per_s / rates[0].messages_per_s,
                "broker_cores": rate.broker_cores,
                "client_cores": rate.client_cores,
                "machine": rate.machine_share,
                "disk": rate.bytes_per_s / disk,
                "bound_by": bound_by(rate, disk_bytes_per_s=disk),
            }
        )
    table.notes.append(
        "A topic of one partition and one replica at each broker, a client of its own for each broker; acks=all, "
        f"flush=always, 1 MB batches. All of it on this one machine with {cores} cores and one disk, which one "
        f"process that only writes and syncs gets {megabytes(disk)} MB/s out of: more brokers share them. On machines "
        "of their own, each broker has its own."
    )
    return table


def _measure(count: int, scale: Scale, memory: WarmMemory) -> Rate:
    settings: Mapping[str, object] = {
        "default_replication_factor": 1,
        "topic.min.insync.replicas": 1,
    }
    with ClusterProcess(brokers=count, settings=settings) as cluster:
        topics = [f"{TOPIC}-{number}" for number in range(count)]
        for topic in topics:
            # Each gets the broker that has the fewest so far.
            cluster.create_topic(topic, replicas=1)
        clients = [
            LoadClient.of(_spec(topic, _leader_of(cluster, topic), scale, share=count))
            for topic in topics
        ]
        try:
            for client in clients:
                client.wait_until_ready()
            before, began = cluster.cpu(), time.perf_counter()
            # From here on.
            psutil.cpu_percent()
            with memory.released_during(cluster.written_bytes):
                for client in clients:
                    client.go()
                results = [client.wait_for_result() for client in clients]
            machine_share = psutil.cpu_percent() / 100
            seconds = time.perf_counter() - began
            spent = cluster.cpu() - before
        finally:
            for client in clients:
                client.end()
    return Rate(
        brokers=count,
        messages_per_s=sum(one["messages"] / one["seconds"] for one in results),
        bytes_per_s=sum(one["bytes"] / one["seconds"] for one in results),
        broker_cores=spent.total / seconds,
        client_cores=sum(one["cpu_s"] for one in results) / seconds,
        machine_share=machine_share,
    )


def _leader_of(cluster: ClusterProcess, topic: str) -> BrokerProcess:
    with cluster.client() as client:
        (partition,) = partitions_of(client, topic)
    return cluster.brokers[partition.leader_id]


def _spec(topic: str, leader: BrokerProcess, scale: Scale, *, share: int) -> ProduceSpec:
    return ProduceSpec(
        host=leader.host,
        port=leader.port,
        topic=topic,
        acks=ACKS_ALL,
        batch_bytes=BATCH_BYTES,
        message_bytes=MESSAGE_BYTES,
        window=max(window_for(BATCH_BYTES), WINDOW_MIN),
        seconds=scale.seconds,
        bytes_max=scale.cell_bytes_max // share,
        warm_up_seconds=scale.seconds / 5,
    )
