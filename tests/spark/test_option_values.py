"""Options are read in any case, and what cannot be is refused with its name."""

import pickle
from datetime import UTC, datetime

import pytest

from respool.client.kafka.bootstrap import FIRST_CONTACT_MS, LASTING_CONTACT_MS
from respool.spark.client_options import ClientOptions
from respool.spark.option_values import BadOption, Options

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def client(**more: str) -> ClientOptions:
    given = HERE | {name.replace("__", "."): value for name, value in more.items()}
    return ClientOptions.of(Options(given))


def test_names_are_read_in_any_case() -> None:
    options = Options({"KAFKA.Bootstrap.SERVERS": "a:1", "MaxRows": " 7 "})
    assert ClientOptions.of(options).bootstrap == "a:1"
    assert options.whole("maxrows") == 7


def test_without_an_address_the_drivers_environment_names_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESPOOL_BROKER", "elsewhere:1")
    found = pickle.loads(pickle.dumps(ClientOptions.of(Options({}))))
    monkeypatch.delenv("RESPOOL_BROKER")
    assert (found.bootstrap, found.origin) == ("elsewhere:1", "RESPOOL_BROKER")
    assert ClientOptions.of(Options({})).bootstrap == "127.0.0.1:9092"


def test_an_empty_address_is_refused() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is empty"):
        ClientOptions.of(Options({"kafka.bootstrap.servers": " "}))


def test_the_drivers_first_contact_is_short_unless_its_timeout_was_said() -> None:
    assert client().first_contact_ms == FIRST_CONTACT_MS
    assert (
        client(**{"kafka.default.api.timeout.ms": "90000"}).first_contact_ms == LASTING_CONTACT_MS
    )
    with client().cluster() as cluster:
        assert cluster.retry_timer().limit_ms == LASTING_CONTACT_MS, (
            "tasks outlive a broker's restart"
        )


def test_an_address_that_cannot_be_is_refused_with_its_option() -> None:
    for option in ("bootstrap", "kafka.bootstrap.servers"):
        with pytest.raises(BadOption, match=rf"^{option} = 'nowhere' is not HOST:PORT"):
            ClientOptions.of(Options({option: "nowhere"})).cluster()


def test_two_addresses_contradict_unless_they_are_the_same() -> None:
    assert client(bootstrap="127.0.0.1:9092").bootstrap == "127.0.0.1:9092"
    with pytest.raises(BadOption, match="contradict"):
        client(bootstrap="127.0.0.1:9093")


def test_an_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    options = Options({"subscribee": "rides"})
    options.text("subscribe")
    with pytest.raises(BadOption, match="no option 'subscribee'; did you mean 'subscribe'"):
        options.refuse_unknown()


def test_what_spark_adds_and_what_changes_nothing_passes() -> None:
    options = Options(
        {"checkpointLocation": "/c", "path": "/p", "queryName": "q", "kafka.max.poll.records": "5"}
    )
    options.refuse_unknown()


def test_what_spark_refuses_is_refused_with_the_reason() -> None:
    options = Options({"kafka.enable.auto.commit": "true"})
    with pytest.raises(BadOption, match="checkpoint"):
        options.refuse_unknown()


@pytest.mark.parametrize(
    ("said", "ms"), [("15m", 900_000), ("500", 500), ("500ms", 500), ("2 h", 7_200_000)]
)
def test_times_are_read_as_spark_does(said: str, ms: int) -> None:
    assert Options({"delay": said}).milliseconds("delay", 0) == ms


@pytest.mark.parametrize(
    ("said", "ms"),
    [("1800", 1800), ("1970-01-02T00:00Z", 86_400_000), ("3 days ago", 7 * 86_400_000)],
)
def test_a_point_in_time_is_milliseconds_or_what_the_command_line_reads(said: str, ms: int) -> None:
    now = datetime(1970, 1, 11, tzinfo=UTC)
    assert Options({"since": said}).time_ms("since", now=now) == ms


@pytest.mark.parametrize(("said", "count"), [("1024", 1024), ("64m", 64 << 20), ("1GiB", 1 << 30)])
def test_bytes_are_read(said: str, count: int) -> None:
    assert Options({"max": said}).byte_count("max") == count


def test_values_that_cannot_be_are_refused_with_the_option() -> None:
    options = Options({"a": "x", "b": "-1", "c": "soon", "d": "0", "e": "maybe"})
    with pytest.raises(BadOption, match="a = 'x'"):
        options.whole("a")
    with pytest.raises(BadOption, match="b = -1"):
        options.whole("b")
    with pytest.raises(BadOption, match="c = 'soon'"):
        options.milliseconds("c", 0)
    with pytest.raises(BadOption, match="d = '0'"):
        options.byte_count("d")
    with pytest.raises(BadOption, match="e = 'maybe'"):
        options.flag("e", default=True)


def test_the_way_to_the_brokers_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(client())) == client()
