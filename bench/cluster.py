"""What replication costs: three replicas beside one broker; what several brokers take; how a cluster changes."""

from statistics import median

from bench import cluster_failover, cluster_moving, cluster_rates, librdkafka
from bench.broker_process import BrokerProcess
from bench.cluster_process import ClusterProcess, partitions_of
from bench.disk_speed import disk_bytes_per_s
from bench.load_client import Measured, measure, measure_command
from bench.produce_load import ProduceSpec, window_for
from bench.report import Column, Report, Table, megabytes, millions, percent, ratio
from bench.requests import Client
from bench.scale import KB, MB, MESSAGE_BYTES, Scale
from bench.warm_memory import WarmMemory

TOPIC = librdkafka.TOPIC
ACKS_ALL = -1
PARTITIONS = 6
SHARE_TARGET = 0.4
TURNS = 3
REPLICAS = 3
# Requests under way. What two more brokers have to confirm takes longer: with three of 1 MB all would only wait.
WINDOW_MIN = 20

SHARE_COLUMNS = (
    Column("what", "load, acks=all, flush=always"),
    Column("single", "one broker, messages/s", millions),
    Column("cluster", "three brokers, messages/s", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("share", "of one broker's", ratio),
    Column("target", "target", ratio),
    Column("single_cores", "one broker, CPU", percent),
    Column("cluster_cores", "three brokers, CPU", percent),
    Column("client_cores", "client CPU", percent),
)


def run(scale: Scale, report: Report) -> None:
    # Three replicas take three times the pages.
    with WarmMemory(3 * scale.cell_bytes_max) as memory:
        _share(scale, report, memory)
    cluster_rates.run(scale, report)
    cluster_failover.run(scale, report)
    cluster_moving.run(scale, report)


def _share(scale: Scale, report: Report, memory: WarmMemory) -> None:
    table = Table(
        "replication", "Cluster: three brokers, three replicas, beside one broker", SHARE_COLUMNS
    )
    loads = ("16 KB batches", "1 MB batches", "librdkafka, idempotent")
    runs: dict[str, list[tuple[Measured, Measured]]] = {load: [] for load in loads}
    disk_rates: list[float] = []
    for turn in range(TURNS):
        for load, done in runs.items():
            report.progress(f"cluster: {load}, turn {turn + 1} of {TURNS}")
            memory.refill()
            with BrokerProcess() as broker:
                with Client(broker.host, broker.port) as client:
                    client.create_topic(TOPIC, partitions=PARTITIONS)
                single = _load(
                    scale, memory, load, measured=broker, leader=broker, address=broker.address
                )
            memory.refill()
            with ClusterProcess() as cluster:
                cluster.create_topic(TOPIC, partitions=PARTITIONS)
                together = _load(
                    scale,
                    memory,
                    load,
                    measured=cluster,
                    leader=_leader_of_first(cluster),
                    address=cluster.bootstrap,
                )
            done.append((single, together))
        disk_rates.append(disk_bytes_per_s(scale.cell_bytes_max, memory))
    for load, pairs in runs.items():
        shares = [together.messages_per_s / one.messages_per_s for one, together in pairs]
        middle = sorted(pairs, key=lambda pair: pair[1].messages_per_s / pair[0].messages_per_s)
        single, together = middle[len(middle) // 2]
        table.rows.append(
            {
                "what": load,
                "single": single.messages_per_s,
                "cluster": together.messages_per_s,
                "bytes_per_s": together.bytes_per_s,
                "share": median(shares),
                "target": SHARE_TARGET,
                "single_cores": single.broker_cpu_s / single.seconds,
                "cluster_cores": together.broker_cpu_s / together.seconds,
                "client_cores": together.client_cpu_s / together.seconds,
            }
        )
        by_turn = ", ".join(f"{share:.2f}" for share in shares)
        written = megabytes(REPLICAS * together.bytes_per_s)
        table.notes.append(
            f"{load}: {by_turn} by turn; three brokers wrote {written} MB/s together."
        )
    table.notes.append(
        "One broker and three in turn, all on this machine. Batches go to one partition, at its leader, as in Produce, "
        f"with {window_for(16 * KB)} requests of 16 KB under way, or {WINDOW_MIN} of 1 MB; "
        f"librdkafka's producer writes to {PARTITIONS} partitions, at three leaders. They share one disk here: "
        f"one process that only writes and syncs gets {megabytes(median(disk_rates))} MB/s out of it."
    )
    report.add(table)


def _leader_of_first(cluster: ClusterProcess) -> BrokerProcess:
    with cluster.client() as client:
        leader = partitions_of(client, TOPIC)[0].leader_id
    return cluster.brokers[leader]


def _load(
    scale: Scale,
    memory: WarmMemory,
    load: str,
    *,
    measured: BrokerProcess | ClusterProcess,
    leader: BrokerProcess,
    address: str,
) -> Measured:
    if load.startswith("librdkafka"):
        messages = str(scale.librdkafka_messages)
        return measure_command(
            measured, "bench.librdkafka", "produce-idempotent", address, messages
        )
    batch_bytes = 16 * KB if load.startswith("16") else 1 * MB
    return measure(
        measured,
        ProduceSpec(
            host=leader.host,
            port=leader.port,
            topic=TOPIC,
            acks=ACKS_ALL,
            batch_bytes=batch_bytes,
            message_bytes=MESSAGE_BYTES,
            connections=1,
            window=max(window_for(batch_bytes), WINDOW_MIN),
            seconds=scale.seconds,
            bytes_max=scale.cell_bytes_max,
            warm_up_seconds=scale.seconds / 5,
        ),
        memory=memory,
    )
