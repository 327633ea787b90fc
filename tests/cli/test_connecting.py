"""What commands say when brokers cannot be reached, and what they get when one can."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.model.operator_errors import Unreachable, UsageError
from respool.operate.cluster_admin import ClusterAdmin
from support.ports import reserve_port


def connected(bootstrap: str) -> ClusterAdmin:
    return BrokerConnection(bootstrap=bootstrap).connect()


@pytest.fixture
def mute_port() -> Iterator[int]:
    """Something that accepts connections and closes them: no Kafka broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = Thread(target=_close_all, args=(server,), daemon=True)
        closing.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        closing.join()


def _close_all(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            line, _ = server.accept()
            with line:
                # Unread bytes would make the system reset the connection, which the client may see first.
                line.recv(1024)


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
    mute_port: int,
) -> None:
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


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Accepts connections, and reads nothing: a broker that is suspended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_broker_that_hangs_is_told_apart_from_something_else(
    run: Run, silent_port: int, tmp_path: Path, protocol: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol={protocol}\nrequest.timeout.ms=200\nsocket.connection.setup.timeout.ms=200\n"
    )
    address = f"127.0.0.1:{silent_port}"
    ended = run("topic", "list", "--broker", address, "--client-config", str(file))
    assert ended.code == ExitCode.UNREACHABLE
    assert f"{address} accepted the connection and did not answer within 0.2 s" in ended.err
    assert "suspended" in ended.err
    assert "security" not in ended.err


def test_a_hung_broker_among_dead_ones_is_named(run: Run, silent_port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=200\n")
    dead, hung = f"127.0.0.1:{reserve_port()}", f"127.0.0.1:{silent_port}"
    ended = run("topic", "list", "--broker", f"{hung},{dead}", "--client-config", str(file))
    assert f"{hung} accepted the connection and did not answer" in ended.err


def test_tls_where_there_is_none_is_said_with_the_property_and_its_file(
    run: Run, mock_broker: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    ended = run("topic", "list", "--broker", mock_broker, "--client-config", str(file))
    assert ended.code != ExitCode.OK
    assert "likely one without TLS" in ended.err
    assert f"security.protocol in {file}" in ended.err
    assert "if this listener has TLS" not in ended.err
    ended = run("topic", "list", "--broker", mock_broker, "--security-protocol", "SSL")
    assert "likely one without TLS: check the port, and --security-protocol" in ended.err
