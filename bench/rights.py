"""What ACLs and quotas add to a produce of 16 KB: the broker's whole CPU per request, with and without them.

One broker, and rounds in which each variant has a turn, so that what else the machine does strikes all alike.
"""

from collections.abc import Callable
from statistics import median

from bench.broker_process import BrokerProcess
from bench.load_client import measure
from bench.produce import TOPIC, produce_spec
from bench.report import Column, Report, Table, microseconds, percent_fine
from bench.requests import CLIENT_ID, Client
from bench.scale import KB, Scale
from respool.client.kafka.acls import alter_quota, create_acls
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, alter_configs
from respool.model.broker_config import ALL_BROKERS, AUTHORIZATION
from respool.model.security.acl import (
    ANY,
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclResource,
    ResourcePattern,
)

BATCH_BYTES = 16 * KB
ACLS = 1_000
ROUNDS = 5
# Of the whole CPU of a produce.
TARGET = 0.03
# Never reached.
QUOTA_BYTES_PER_S = 100e9
_ANONYMOUS = "User:ANONYMOUS"

COLUMNS = (
    Column("with", "with"),
    Column("cpu_s", "broker CPU per request", microseconds),
    Column("more", "more", percent_fine),
    Column("target", "target", percent_fine),
)


def run(scale: Scale, report: Report) -> None:
    spent: dict[str, list[float]] = {}
    with BrokerProcess() as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, settings={"respool.flush": "os"})
        with Cluster(f"{broker.host}:{broker.port}") as cluster:
            _create_acls(cluster)
            variants = _variants(cluster)
            # The first round warms up.
            for number in range(ROUNDS + 1):
                for name, turn in variants.items():
                    report.progress(f"rights: round {number}, {name}")
                    turn()
                    spec = produce_spec(
                        scale,
                        broker,
                        batch_bytes=BATCH_BYTES,
                        acks=1,
                        connections=1,
                        seconds=scale.seconds,
                    )
                    measured = measure(broker, spec)
                    if number:
                        spent.setdefault(name, []).append(measured.cpu_s_per_request)
    report.add(_table(spent))


def _table(spent: dict[str, list[float]]) -> Table:
    table = Table("rights", "ACLs and quotas: produce of 16 KB, acks=1, flush=os", COLUMNS)
    base = median(spent["nothing"])
    for name, samples in spent.items():
        row: dict[str, object] = {"with": name, "cpu_s": median(samples)}
        if name != "nothing":
            row |= {"more": median(samples) / base - 1, "target": TARGET}
        table.rows.append(row)
    table.notes.append(
        f"Medians of {ROUNDS} rounds on one broker, in which the variants take turns; {ACLS:,} ACLs, and a quota that "
        "is not reached."
    )
    return table


def _variants(cluster: Cluster) -> dict[str, Callable[[], None]]:
    def switch(mode: str, rate: float | None) -> Callable[[], None]:
        def turn() -> None:
            alter_configs(cluster, ConfigResource.BROKER, ALL_BROKERS, values={AUTHORIZATION: mode})
            alter_quota(cluster, {"client-id": CLIENT_ID}, {"producer_byte_rate": rate})

        return turn

    return {
        "nothing": switch("off", None),
        "nothing again": switch("off", None),
        "ACLs": switch("enforce", None),
        "a quota": switch("off", QUOTA_BYTES_PER_S),
        "both": switch("enforce", QUOTA_BYTES_PER_S),
    }


def _create_acls(cluster: Cluster) -> None:
    alter_configs(cluster, ConfigResource.BROKER, ALL_BROKERS, values={AUTHORIZATION: "observe"})
    everything = [
        AclBinding(
            ResourcePattern(AclResource.CLUSTER, CLUSTER_NAME),
            AclEntry(_ANONYMOUS, AclOperation.ALL),
        ),
        AclBinding(ResourcePattern(AclResource.TOPIC, ANY), AclEntry(_ANONYMOUS, AclOperation.ALL)),
    ]
    others = [
        AclBinding(
            ResourcePattern(AclResource.TOPIC, f"topic-{number}"),
            AclEntry(_ANONYMOUS, AclOperation.WRITE),
        )
        for number in range(ACLS - len(everything))
    ]
    create_acls(cluster, [*everything, *others])
