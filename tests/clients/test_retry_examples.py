"""The programs of examples/retries: with the topics and headers of `respool.Consumer`, on other clients."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import respool
from respool.model.retry.failure_headers import FailureRecord, read_failure
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.quick_broker import quick_broker
from support.waiting import wait_until

FOLDER = Path(__file__).parents[2] / "examples" / "retries"
VALUES = (b"1:paid", b"3:late", b"9:never", b"broken")
_numbers = count()

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("retry-examples")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker({"group_initial_rebalance_delay_ms": 0}) as running:
        yield running


class Invoices:
    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.group = f"billing-{next(_numbers)}"
        self.topic = broker.new_topic("invoices")
        self.printed = folder / "printed"
        with respool.Producer(broker.bootstrap) as producer:
            for value in VALUES:
                producer.send(self.topic, value, key=b"customer-7")

    @contextmanager
    def running(self, words: Sequence[object], **environment: str) -> Iterator[None]:
        """A program of the folder, until the block ends."""
        with self.printed.open("ab") as out:
            process = subprocess.Popen(
                [str(word) for word in words],
                cwd=FOLDER,
                stdout=out,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            )
        try:
            yield
            assert process.poll() is None, process.communicate()[1].decode()
        finally:
            process.kill()
            process.communicate()

    def plain_consumer(self) -> list[object]:
        return [
            sys.executable,
            "plain_consumer.py",
            self.broker.bootstrap,
            self.topic,
            self.group,
        ]

    def lines(self) -> list[str]:
        return self.printed.read_text().splitlines() if self.printed.exists() else []

    def letters(self) -> dict[bytes | None, FailureRecord]:
        place = (f"dlq.{self.group}", 0)
        found = ConfluentClient().read(self.broker.bootstrap, [place])[place]
        return {one.value: read_failure(one.headers) for one in found}

    def wait_for_all(self) -> None:
        wait_until(lambda: "3 late" in self.lines(), "the last attempt of 3:late")
        wait_until(lambda: len(self.letters()) == 2, "two dead letters")

    def check(self) -> None:
        assert sorted(self.lines()) == ["1 paid", "3 late"]
        letters = self.letters()
        assert letters[b"9:never"].deliveries == 3
        assert letters[b"broken"].deliveries == 1
        assert letters[b"9:never"].topic == self.topic
        assert (letters[b"9:never"].offset, letters[b"broken"].offset) == (2, 3)
        assert letters[b"9:never"].error_class == "TimeoutError"


@pytest.fixture
def invoices(broker: Broker, tmp_path: Path) -> Invoices:
    return Invoices(broker, tmp_path)


def test_the_plain_consumer_retries_and_buries(invoices: Invoices) -> None:
    with invoices.running(invoices.plain_consumer()):
        invoices.wait_for_all()
    invoices.check()


def test_each_client_handles_what_another_one_has_sent_on(invoices: Invoices) -> None:
    failed: list[bytes | None] = []
    with respool.Consumer(
        invoices.topic,
        group=invoices.group,
        bootstrap=invoices.broker.bootstrap,
        retry=respool.Retry(delays=["1s", "1s"], give_up=ValueError),
    ) as consumer:
        for message in consumer:
            with consumer.handling(message):
                failed.append(message.value)
                raise ValueError if message.value == b"broken" else TimeoutError
            if len(failed) == len(VALUES):
                break
    with invoices.running(invoices.plain_consumer()):
        invoices.wait_for_all()
        wait_until(lambda: len(invoices.lines()) == 2, "what is paid")
    assert sorted(invoices.lines()) == ["2 paid", "3 late"]
    assert invoices.letters()[b"9:never"].deliveries == 3


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
def test_the_faststream_application_retries_and_buries(invoices: Invoices, tmp_path: Path) -> None:
    """In an environment of its own, with what its requirements name."""
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    requirements = FOLDER / "requirements.txt"
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    with invoices.running(
        [python.with_name("faststream"), "run", "faststream_app:app"],
        BROKER=invoices.broker.bootstrap,
        TOPIC=invoices.topic,
        GROUP=invoices.group,
    ):
        invoices.wait_for_all()
    invoices.check()
