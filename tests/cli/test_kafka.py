import builtins
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.errors import BrokerUnreachable, ExitCode, NobodyLeads, TopicExists
from respool.cli.kafka import Cluster, OffsetRange, TopicInfo
from respool.cli.kafka_library import KafkaError, KafkaException, reason, to_cli_error
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from support.ports import reserve_port


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
    cluster = Cluster.connect(
        BrokerConnection(bootstrap=f"127.0.0.1:{reserve_port()},{mock_broker}")
    )
    assert isinstance(cluster.topics(), dict)


def test_what_does_not_speak_kafka_is_told_apart_from_nobody(
    mute_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.cli.kafka.CONNECT_SECONDS", 1.0)
    with pytest.raises(BrokerUnreachable, match="does not answer as a Kafka broker"):
        Cluster.connect(BrokerConnection(bootstrap=f"127.0.0.1:{mute_port}"))


@pytest.mark.parametrize("address", ["localhost", "host:port", ":9092", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="not HOST:PORT"):
        Cluster.connect(BrokerConnection(bootstrap=address))


def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(BrokerUnreachable, match="the name 'nowhere' is unknown"):
        Cluster.connect(BrokerConnection(bootstrap="nowhere:9092"))


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound),
        (KafkaError._UNKNOWN_TOPIC, NotFound),
        (KafkaError.TOPIC_ALREADY_EXISTS, TopicExists),
        (KafkaError._TRANSPORT, BrokerUnreachable),
        (KafkaError._TIMED_OUT, BrokerUnreachable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, NobodyLeads),
        (KafkaError.LEADER_NOT_AVAILABLE, NobodyLeads),
        (KafkaError.POLICY_VIOLATION, OperatorError),
    ],
)
def test_kafka_s_errors_become_ours_and_keep_their_words(
    code: int, family: type[OperatorError]
) -> None:
    error = to_cli_error(KafkaError(code, "because of that"), "127.0.0.1:9092")
    assert type(error) is family
    assert "because of that" in error.message


def test_a_reason_names_the_error_s_code() -> None:
    assert reason(KafkaError(KafkaError.POLICY_VIOLATION, "no")) == "no (POLICY_VIOLATION)"


def test_without_the_client_library_the_error_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_client(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError(name)
        return real_import(name, *arguments, **named)

    monkeypatch.delitem(sys.modules, "respool.cli.kafka")
    monkeypatch.delitem(sys.modules, "respool.cli.kafka_library")
    monkeypatch.setattr(builtins, "__import__", without_client)
    ended = run("topic", "list")
    assert ended.code == 1
    assert "pip install 'respool[client]'" in ended.err


def test_offsets_of_every_partition_are_asked_for(run: Run, mock_broker: str) -> None:
    run("produce", "ranged", "-b", mock_broker, "-m", "a", "-m", "b", "-p", "3")
    cluster = Cluster.connect(BrokerConnection(bootstrap=mock_broker))
    topic = cluster.topic("ranged")
    assert topic.partitions == [0, 1, 2, 3]
    ranges = cluster.ranges([topic])
    assert [ranges["ranged", number].messages for number in topic.partitions] == [0, 0, 0, 2]


class HalfLed:
    """The client library's admin, at brokers of which one leads partition 0 and nobody partition 1."""

    def list_offsets(self, asked: Any, **_: object) -> dict[Any, "Future[Any]"]:
        answers: dict[Any, Future[Any]] = {}
        for key in asked:
            answers[key] = Future()
            if key.partition:
                error = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
                answers[key].set_exception(error)
            else:
                answers[key].set_result(SimpleNamespace(offset=7))
        return answers


def test_a_leader_that_leads_no_more_is_told_in_words_or_left_out() -> None:
    cluster = Cluster(BrokerConnection(bootstrap="127.0.0.1:9092"), HalfLed())
    # As the broker's metadata still says.
    topic = TopicInfo(name="rides", leaders={0: 1, 1: 2})
    with pytest.raises(NobodyLeads, match="nobody leads the partition now") as caught:
        cluster.ranges([topic])
    assert "respool cluster status" in caught.value.hint
    assert cluster.ranges([topic], led_only=True) == {("rides", 0): OffsetRange(start=7, end=7)}
