"""Where the brokers are when a caller does not say, and what is said of an address at which there are none."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, NoReturn

import pyarrow as pa
import pytest

import respool
from respool.client.kafka.bootstrap import (
    DEFAULT_BOOTSTRAP,
    ENVIRONMENT,
    FIRST_CONTACT_MS,
    LASTING_CONTACT_MS,
    Bootstrap,
    failed_connections,
)
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument, BrokerUnreachable, NoBroker
from respool.client.kafka.retries import RetryTimer
from respool.client.kafka.security import Security, Tls
from respool.client.messages import library
from respool.model.addresses import parse_address
from respool.model.errors import SettingsError
from respool.pipeline.job_settings import PipelineSettings
from respool.spark.client_options import ClientOptions
from respool.spark.option_values import Options
from respool.testing import Broker
from support.ports import reserve_port


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that refuses connections, in the environment."""
    address = f"127.0.0.1:{reserve_port()}"
    monkeypatch.setenv(ENVIRONMENT, address)
    return address


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One in this process, with its address in the environment."""
    with Broker() as broker:
        monkeypatch.setenv(ENVIRONMENT, broker.bootstrap)
        yield broker


class CountingClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps = 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1

    def retry_timer(self, limit_ms: int) -> RetryTimer:
        return RetryTimer(limit_ms, sleep=self.sleep, monotonic=lambda: self.now)


# -- where the address comes from --------------------------------------------------------------------------------------


def test_an_argument_comes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "elsewhere:1")
    assert Bootstrap.resolve("here:2") == Bootstrap("here:2", "bootstrap=")
    assert Bootstrap.resolve(None) == Bootstrap("elsewhere:1", ENVIRONMENT)
    monkeypatch.setenv(ENVIRONMENT, "")
    assert Bootstrap.resolve(None) == Bootstrap(DEFAULT_BOOTSTRAP, "")
    monkeypatch.delenv(ENVIRONMENT)
    assert Bootstrap.resolve(None) == Bootstrap(DEFAULT_BOOTSTRAP, "")


def test_the_environment_is_read_when_a_client_is_made_and_not_when_the_module_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "elsewhere:1")
    with Cluster() as cluster:
        assert cluster.bootstrap == "elsewhere:1"
    assert PipelineSettings(data=tmp_path).bootstrap == "elsewhere:1"


def test_tables_and_messages_go_to_the_broker_of_the_environment(broker: Broker) -> None:
    broker.create_topic("rides")
    with respool.Producer() as producer:
        producer.send_and_wait("rides", b"by message")
    with respool.Consumer("rides", group="g") as consumer:
        message = consumer.poll(60)
        assert message is not None
        assert message.value == b"by message"
    respool.write_table(pa.table({"value": [b"by table"]}), "rides")
    assert respool.read_table("rides")["value"].to_pylist() == [b"by message", b"by table"]


def test_text_that_is_no_address_is_refused_with_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "nowhere")
    with pytest.raises(BadArgument, match=r"RESPOOL_BROKER = 'nowhere' is not HOST:PORT"):
        Cluster()


# -- an address at which there is nobody -------------------------------------------------------------------------------


def test_the_error_names_the_address_where_it_came_from_and_what_to_do() -> None:
    reasons = ["a:1: connection refused", "the name 'b' is unknown"]
    of_variable = NoBroker(Bootstrap("a:1,b:2", ENVIRONMENT), reasons)
    assert str(of_variable) == (
        "no broker at a:1,b:2, from RESPOOL_BROKER (a:1: connection refused; the name 'b' is unknown); "
        "start one with: respool serve. Another address: bootstrap= or RESPOOL_BROKER"
    )
    assert NoBroker(Bootstrap.resolve("a:1"), reasons[:1]).what == (
        "no broker at a:1, from bootstrap (a:1: connection refused)"
    )
    assert "no broker at 127.0.0.1:9092, the default address (" in str(
        NoBroker(Bootstrap(DEFAULT_BOOTSTRAP, ""), reasons)
    )


def test_the_command_line_tells_option_variable_and_default_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "elsewhere:1")
    found = [
        Bootstrap.chosen(servers, option="--broker HOST:PORT").origin
        for servers in ("elsewhere:1", "here:2", DEFAULT_BOOTSTRAP)
    ]
    assert found == [ENVIRONMENT, "--broker", ""]


@pytest.mark.parametrize(
    "use",
    [
        lambda: respool.read_table("rides"),
        lambda: respool.write_table(pa.table({"value": [b"x"]}), "rides"),
        lambda: respool.Consumer("rides", group="g"),
        lambda: respool.Producer().send("rides", b"x"),
        lambda: respool.Producer(delivery="exactly-once", transactional_id="t"),
    ],
    ids=["read_table", "write_table", "Consumer", "Producer", "transactional Producer"],
)
def test_every_client_reports_no_broker_in_the_same_words(
    nobody: str, use: Callable[[], object]
) -> None:
    """Each waited for ten seconds, or a minute, and some said only `Local: Broker transport failure`."""
    words = rf"no broker at {nobody}, from RESPOOL_BROKER \({nobody}: connection refused\); start one with: respool"
    with pytest.raises(NoBroker, match=words):
        use()


def test_a_first_contact_is_retried_for_a_second_and_later_ones_for_as_long_as_was_said() -> None:
    clock = CountingClock()
    with Cluster("127.0.0.1:1", retry_ms=60_000) as cluster:
        limits = [cluster.retry_timer().limit_ms]
        cluster._metadata.brokers = {1: ("127.0.0.1", 1)}
        limits.append(cluster.retry_timer().limit_ms)
    assert limits == [FIRST_CONTACT_MS, 60_000]
    retry = clock.retry_timer(FIRST_CONTACT_MS)
    with pytest.raises(NoBroker):
        library.check_reachable(Bootstrap("127.0.0.1:1", ""), retry=retry)
    assert clock.now == pytest.approx(FIRST_CONTACT_MS / 1000, abs=0.01)
    assert clock.sleeps > 1, "a broker that starts within that time is found"


class SilentSocket(socket.socket):
    """Its SYNs are dropped: connecting takes as long as the socket may wait, on a clock of its own."""

    waits: ClassVar[list[float | None]] = []
    clock: ClassVar[CountingClock]

    def connect(self, address: object) -> None:
        waited = self.gettimeout()
        self.waits.append(waited)
        self.clock.now += waited or 0.0
        raise TimeoutError("timed out")


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long each connection waited for an address that does not answer."""
    clock = CountingClock()

    def retry_timer(limit_ms: int, **_: object) -> RetryTimer:
        return clock.retry_timer(limit_ms)

    monkeypatch.setattr(SilentSocket, "waits", [])
    monkeypatch.setattr(SilentSocket, "clock", clock, raising=False)
    monkeypatch.setattr("respool.client.kafka.cluster.RetryTimer", retry_timer)
    monkeypatch.setattr("respool.client.messages.library.RetryTimer", retry_timer)
    monkeypatch.setattr("socket.socket", SilentSocket)
    return SilentSocket.waits


@pytest.mark.parametrize(
    "use",
    [
        lambda: respool.read_table("rides", bootstrap="127.0.0.1:1"),
        lambda: respool.Consumer("rides", group="g", bootstrap="127.0.0.1:1"),
        lambda: respool.Producer(bootstrap="127.0.0.1:1").send("rides", b"x"),
    ],
    ids=["read_table", "Consumer", "Producer"],
)
def test_an_address_that_does_not_answer_is_tried_for_two_seconds(
    silence: list[float | None], use: Callable[[], object]
) -> None:
    """Packets to the address are dropped, instead of refused. It was tried twice, Consumer for ten seconds each."""
    with pytest.raises(NoBroker, match=r"127\.0\.0\.1:1 did not answer within 2 seconds"):
        use()
    assert silence == [2.0]


def test_a_spark_driver_tries_it_for_two_seconds_and_a_task_for_ten(
    silence: list[float | None],
) -> None:
    """A task runs after a broker has answered the driver."""
    options = ClientOptions.of(Options({"bootstrap": "127.0.0.1:1"}))
    for first_contact_ms in (options.first_contact_ms, LASTING_CONTACT_MS):
        with (
            options.cluster(first_contact_ms=first_contact_ms) as cluster,
            pytest.raises(NoBroker),
        ):
            cluster.topic("rides")
    assert silence == [2.0, 10.0]


def test_a_connection_that_is_silent_after_tcp_is_said_to_have_taken_the_time_for_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for TCP was named, which is shorter at first contact."""

    def silent(*_: object) -> NoReturn:
        raise TimeoutError("timed out")

    monkeypatch.setattr("respool.client.kafka.tls.wrap_tls", silent)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            Cluster(address, first_contact_ms=0, security=Security(tls=Tls())) as cluster,
            pytest.raises(BrokerUnreachable, match="and TLS did not begin within 10 s"),
        ):
            cluster.refresh_brokers()


def test_who_wants_to_wait_longer_for_a_connection_does(silence: list[float | None]) -> None:
    as_said = Cluster("127.0.0.1:1", connect_timeout_ms=30_000, first_contact_ms=0)
    through_restarts = Cluster("127.0.0.1:1", first_contact_ms=LASTING_CONTACT_MS, retry_ms=0)
    for cluster in (as_said, through_restarts):
        with cluster, pytest.raises(NoBroker):
            cluster.refresh_brokers()
    assert silence == [30.0, 10.0]


def test_a_broker_that_is_known_may_take_longer_to_connect(silence: list[float | None]) -> None:
    cluster = Cluster("127.0.0.1:1", retry_ms=0)
    cluster._metadata.brokers = {1: ("127.0.0.1", 1)}
    with cluster, pytest.raises(BrokerUnreachable):
        cluster.connect(1)
    assert silence == [10.0]


def test_forms_that_only_librdkafka_knows_are_left_to_it() -> None:
    never = RetryTimer(0)
    for servers in ("PLAINTEXT://127.0.0.1:1", "localhost"):
        library.check_reachable(Bootstrap(servers, "bootstrap="), retry=never)


def test_one_server_that_listens_is_enough(broker: Broker) -> None:
    refused = f"127.0.0.1:{reserve_port()}"
    one_of_two = Bootstrap(f"{refused}, {broker.bootstrap}", ENVIRONMENT)
    assert failed_connections(one_of_two, timeout_s=3) == []
    with Cluster(one_of_two) as cluster:
        assert cluster.refresh_brokers()


def test_a_broker_that_answered_before_is_not_said_to_be_missing() -> None:
    with Broker() as broker:
        cluster = Cluster(broker.bootstrap)
        cluster.refresh_brokers()
    with cluster, pytest.raises(BrokerUnreachable, match="no broker answers at") as raised:
        cluster.refresh_brokers()
    assert not isinstance(raised.value, NoBroker)


def test_an_address_with_a_protocol_in_front_is_told_to_come_without() -> None:
    with pytest.raises(SettingsError, match=r"is not HOST:PORT: give it without http://"):
        parse_address("--broker", "http://127.0.0.1:23092")
