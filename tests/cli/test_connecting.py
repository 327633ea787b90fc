"""What commands say when brokers cannot be reached, and what they get when one can."""

import socket
from collections.abc import Iterator

import pytest

from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.model.operator_errors import Unreachable, UsageError
from respool.operate import cluster_admin
from respool.operate.cluster_admin import ClusterAdmin
from support.ports import reserve_port


def connected(bootstrap: str) -> ClusterAdmin:
    return BrokerConnection(bootstrap=bootstrap).connect()


@pytest.fixture
def mute_port() -> Iterator[int]:
    """Something that accepts connections and closes them: no Kafka broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_when_nobody_listens_the_error_says_so_and_how_to_start_one(run: Run) -> None:
    port = reserve_port()
    for command in (
        ["topic", "list"],
        ["consume", "rides"],
        ["produce", "rides", "-m", "x"],
    ):
        ended = run(*command, "--broker", f"127.0.0.1:{port}")
        assert ended.code == ExitCode.UNREACHABLE
        assert f"no broker at 127.0.0.1:{port}" in ended.err
        assert "connection refused" in ended.err
        assert "respool serve" in ended.err


def test_the_broker_comes_from_the_environment_too(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = reserve_port()
    monkeypatch.setenv("RESPOOL_BROKER", f"127.0.0.1:{port}")
    assert f"no broker at 127.0.0.1:{port}" in run("topic", "list").err


def test_one_of_several_brokers_is_enough(mock_broker: str) -> None:
    with connected(f"127.0.0.1:{reserve_port()},{mock_broker}") as cluster:
        assert isinstance(cluster.topics(), dict)


def test_what_does_not_speak_kafka_is_told_apart_from_nobody(
    mute_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_admin, "CONNECT_SECONDS", 1.0)
    with pytest.raises(Unreachable, match="does not answer as a Kafka broker"):
        connected(f"127.0.0.1:{mute_port}")


@pytest.mark.parametrize("address", ["localhost", "host:port", ":9092", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="not HOST:PORT"):
        connected(address)


def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(Unreachable, match="the name 'nowhere' is unknown"):
        connected("nowhere:9092")


def test_offsets_of_every_partition_are_asked_for(run: Run, mock_broker: str) -> None:
    run("produce", "ranged", "-b", mock_broker, "-m", "a", "-m", "b", "-p", "3")
    with connected(mock_broker) as cluster:
        topic = cluster.topic("ranged")
        assert list(topic.leaders) == [0, 1, 2, 3]
        ranges = cluster.ranges([topic])
    assert [ranges["ranged", number].messages for number in topic.leaders] == [0, 0, 0, 2]
