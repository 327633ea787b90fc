"""What is imported when, and what is said when something is not installed."""

import subprocess
import sys

import pytest

DOORS = ["Producer", "Consumer", "AsyncProducer", "AsyncConsumer"]


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_doors_bring_confluent_kafka_and_nothing_of_the_broker_or_of_arrow() -> None:
    done = run(
        "import sys, respool\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        f"[getattr(respool, door) for door in {DOORS}]\n"
        "assert 'confluent_kafka' in sys.modules\n"
        "heavy = {'numba', 'pyarrow', 'kio', 'uvloop', 'respool.broker', 'respool.node'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("door", DOORS)
def test_without_the_library_a_door_says_what_to_install(door: str) -> None:
    done = run(f"import sys; sys.modules['confluent_kafka'] = None; import respool; respool.{door}")
    assert done.returncode == 1
    assert 'pip install ".[client]"' in done.stderr
