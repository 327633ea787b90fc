"""Producers in Java and Go write while their topic is shrunk and grown. `make interop-kafka` runs it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.versus.java import java_command

import respool
from respool.client.kafka.admin import change_layout, create_partitions
from respool.client.kafka.cluster import Cluster
from respool.testing import Broker
from respool.wire.layout_change import LayoutChangeKind
from support.java_process import OPTIONS, PROGRAMS, interop_jars
from support.quick_broker import quick_broker

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOPIC = "shrinking"
KEYS = 24
COUNTS = (6, 3, 1, 6, 2)
ROUNDS_EACH = 3
GO_MODULE = PROGRAMS.with_name("go")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with quick_broker({"transactions_topic_partitions": 3}) as running:
        running.create_topic(TOPIC, partitions=6, respool_shrink_barrier_ms="0")
        yield running


@contextmanager
def running(command: list[str], folder: Path) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            yield program
        finally:
            assert program.stdin is not None
            program.stdin.close()
            program.wait(60)
    assert program.returncode == 0


def send_through_changes(broker: Broker, command: list[str], folder: Path) -> None:
    """Each round must be acknowledged, whatever the topic is made to be between two rounds."""
    with Cluster(broker.bootstrap) as cluster, running(command, folder) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        turn = 0
        for count in COUNTS:
            if turn and count == max(COUNTS):
                create_partitions(cluster, TOPIC, count=count)
            elif turn:
                change_layout(cluster, TOPIC, LayoutChangeKind.SHRINK, count=count)
            for _ in range(ROUNDS_EACH):
                program.stdin.write(f"{turn}\n")
                program.stdin.flush()
                assert program.stdout.readline() == f"sent {turn}\n"
                turn += 1


def check(broker: Broker) -> None:
    """Every message is there once, and each key's are in order within each partition."""
    rows = respool.read_table(TOPIC, bootstrap=broker.bootstrap).to_pylist()
    seen: dict[int, list[int]] = {number: [] for number in range(KEYS)}
    last: dict[tuple[int, int], int] = {}
    for row in rows:
        key, turn = map(int, row["value"].split(b":"))
        assert turn > last.get((row["partition"], key), -1)
        last[row["partition"], key] = turn
        seen[key].append(turn)
    turns = list(range(len(COUNTS) * ROUNDS_EACH))
    assert {key: sorted(found) for key, found in seen.items()} == dict.fromkeys(range(KEYS), turns)
    newest = {row["partition"] for row in rows if int(row["value"].split(b":")[1]) == turns[-1]}
    assert newest <= {0, 1}


@pytest.mark.parametrize(
    "transactional_id", [(), ("shrinking",)], ids=["idempotent", "transactional"]
)
def test_a_producer_in_java_notices_nothing(
    broker: Broker, tmp_path: Path, transactional_id: tuple[str, ...]
) -> None:
    program = (str(PROGRAMS / "RoundSender.java"), broker.bootstrap, TOPIC, *transactional_id)
    command = java_command(interop_jars(), *program, options=OPTIONS)
    send_through_changes(broker, command, tmp_path)
    check(broker)


def test_a_producer_in_go_notices_nothing(broker: Broker, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH; franz-go needs it")
    program = tmp_path / "shrinking"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "./shrinking"],
        cwd=GO_MODULE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    send_through_changes(broker, [str(program), broker.bootstrap, TOPIC], tmp_path)
    check(broker)
