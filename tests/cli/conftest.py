"""A command line to run in this process, librdkafka's own broker, and a cluster of dictionaries."""

import io
import logging
import signal
import sys
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from cli.fake_cluster import FakeCluster
from cli.json_shape import check_shape
from cli.running import Ended, Run
from respool.cli import output
from respool.cli.main import main
from respool.operate.cluster_admin import ClusterAdmin
from support.etcd_process import EtcdCluster


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command line, with pipes for standard input, output and error."""

    def run(*arguments: str, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        on_ctrl_c = signal.getsignal(signal.SIGINT)
        code = main(list(arguments))
        # Whatever runs next in this process must be able to be ended.
        assert signal.getsignal(signal.SIGINT) == on_ctrl_c
        out, err = capsysbinary.readouterr()
        return Ended(int(code), out.decode("utf-8", "backslashreplace"), err.decode())

    return run


@pytest.fixture(scope="session")
def mock_broker() -> Iterator[str]:
    """librdkafka's own broker: it keeps messages in memory, and makes any topic with four partitions on first use."""
    logger = logging.getLogger("tests.cli.mock_broker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"}, logger=logger)
    broker = next(iter(host.list_topics(timeout=10).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    # The broker lives as long as this client does.
    del host


@pytest.fixture
def fake_cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What commands get when they connect: the parts of a cluster that the mock broker does not have."""
    cluster = FakeCluster()
    monkeypatch.setattr(ClusterAdmin, "connect", cluster.connected_to)
    return cluster


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture(autouse=True)
def _json_of_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a command prints as JSON has the shape of docs/json.md."""
    print_json, json_line = output.print_json, output.json_line

    def checked_print(document: Mapping[str, object]) -> None:
        check_shape(document)
        print_json(document)

    def checked_line(document: Mapping[str, object]) -> str:
        check_shape(document)
        return json_line(document)

    monkeypatch.setattr(output, "print_json", checked_print)
    monkeypatch.setattr(output, "json_line", checked_line)
