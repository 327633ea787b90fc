"""What is imported when, and what is said when something is not installed."""

import subprocess
import sys

import pytest

CLIENTS = ["Producer", "Consumer", "AsyncProducer", "AsyncConsumer"]


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_clients_bring_confluent_kafka_and_nothing_of_the_broker_or_of_arrow() -> None:
    done = run(
        "import sys, respool\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        f"[getattr(respool, name) for name in {CLIENTS}]\n"
        "assert 'confluent_kafka' in sys.modules\n"
        "heavy = {'numba', 'pyarrow', 'kio', 'uvloop', 'respool.broker', 'respool.node'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CLIENTS)
def test_without_the_library_a_client_says_what_to_install(name: str) -> None:
    done = run(f"import sys; sys.modules['confluent_kafka'] = None; import respool; respool.{name}")
    assert done.returncode == 1
    assert 'pip install ".[client]"' in done.stderr
