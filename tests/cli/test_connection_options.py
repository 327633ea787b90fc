"""How commands reach brokers: addresses, TLS and logins by options or by a file."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from cli.command_tree import all_commands, has_option
from cli.running import Run
from respool.cli.connection_options import (
    CONFIG_VARIABLE,
    BrokerConnection,
    SecurityOptions,
    connection_to,
)
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.bootstrap import ENVIRONMENT
from respool.client.kafka.security import IN_THE_CLEAR, Login, Tls
from respool.model.operator_errors import UsageError
from respool.testing import Broker
from support.secured_gate import SecuredGate, secured_broker, server_side

PASSWORD = "correct horse"
USER = ("--username", "app")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENVIRONMENT, CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def gate(authority: trustme.CA) -> Iterator[SecuredGate]:
    with secured_broker(tls=server_side(authority), users={"app": PASSWORD}) as gate:
        yield gate


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


@pytest.fixture
def ca_file(tmp_path: Path, authority: trustme.CA) -> Path:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return file


@pytest.fixture
def secured(gate: SecuredGate, ca_file: Path, password_file: Path) -> tuple[str, ...]:
    """The options that get through the gate."""
    return (
        "--broker", gate.address, "--security-protocol", "SASL_SSL", "--sasl-mechanism", "SCRAM-SHA-512",
        *USER, "--password-file", str(password_file), "--tls-ca", str(ca_file),
    )  # fmt: skip


@pytest.fixture
def config_file(tmp_path: Path, gate: SecuredGate, ca_file: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={gate.address}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username=app\nsasl.password={PASSWORD}\nssl.ca.location={ca_file}\n"
    )
    return file


# -- values ----------------------------------------------------------------------------------------------------------


def test_without_options_brokers_are_reached_in_the_clear_at_the_default_address() -> None:
    found = connection_to(None, SecurityOptions(), None)
    assert found == BrokerConnection(bootstrap="127.0.0.1:9092", security=IN_THE_CLEAR)


def test_options_become_tls_and_a_login(password_file: Path, ca_file: Path) -> None:
    options = SecurityOptions(
        protocol="sasl_ssl",
        mechanism="scram-sha-256",
        username="app",
        password_file=password_file,
        tls_ca=ca_file,
    )
    found = options.security()
    assert found.tls == Tls(authorities=str(ca_file))
    assert found.login == Login(mechanism="SCRAM-SHA-256", username="app", password=PASSWORD)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"username": "app"}, "--username needs --security-protocol"),
        ({"tls_ca": Path("ca.pem")}, "--tls-ca needs --security-protocol"),
        ({"protocol": "TLS"}, "--security-protocol 'TLS' is not one of PLAINTEXT, SSL"),
        ({"protocol": "SASL_SSL"}, "--security-protocol SASL_SSL needs --sasl-mechanism"),
        (
            {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "app"},
            "SASL_SSL needs --password-file",
        ),
        (
            {"protocol": "SSL", "username": "app"},
            "--username and --security-protocol SSL contradict each other",
        ),
        (
            {"protocol": "PLAINTEXT", "tls_cert": Path("app.pem")},
            "--tls-cert and --security-protocol PLAINTEXT contradict each other",
        ),
        ({"protocol": "SSL", "tls_key": Path("key.pem")}, "--tls-key needs --tls-cert"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, object], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        SecurityOptions(**options).security()  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
def test_an_unknown_mechanism_is_refused(password_file: Path, mechanism: str) -> None:
    options = SecurityOptions(
        protocol="SASL_SSL", mechanism=mechanism, username="app", password_file=password_file
    )
    with pytest.raises(UsageError, match="is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        options.security()


def test_an_empty_password_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("\n")
    options = SecurityOptions(
        protocol="SASL_SSL", mechanism="PLAIN", username="app", password_file=file
    )
    with pytest.raises(UsageError, match="its first line is empty"):
        options.security()


def test_a_password_is_in_no_text_of_the_values(password_file: Path) -> None:
    options = SecurityOptions(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="app", password_file=password_file
    )
    assert PASSWORD not in repr(connection_to("x:1", options, None))


# -- files and variables ---------------------------------------------------------------------------------------------


def test_a_file_gives_address_and_security(config_file: Path, gate: SecuredGate) -> None:
    found = connection_to(None, SecurityOptions(), config_file)
    assert found.bootstrap == gate.address
    assert found.security.login is not None
    assert found.security.login.username == "app"


def test_an_address_that_is_given_takes_precedence_over_the_file(config_file: Path) -> None:
    assert connection_to("other:9092", SecurityOptions(), config_file).bootstrap == "other:9092"


def test_a_named_file_takes_precedence_over_variables(
    config_file: Path, gate: SecuredGate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "elsewhere:9092")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "missing"))
    # As typer hands over the variable's address.
    found = connection_to("elsewhere:9092", SecurityOptions(), config_file)
    assert found.bootstrap == gate.address


def test_the_variable_names_a_file_unless_security_is_given(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(config_file))
    assert connection_to(None, SecurityOptions(), None).security.login is not None
    given = SecurityOptions(protocol="PLAINTEXT")
    assert connection_to(None, given, None).security == IN_THE_CLEAR


def test_the_client_id_and_timeouts_of_a_file_replace_the_commands_own(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=night-job\nrequest.timeout.ms=60000\ndefault.api.timeout.ms=90000\n")
    with Broker() as broker:
        connection = connection_to(broker.bootstrap, SecurityOptions(), file)
        cluster = connection.connect().cluster
        assert cluster.request_timeout_ms == 60_000
        assert cluster.retry_ms == 90_000
        assert connection.retry_seconds == 90
        connection.close()
    settings = connection.library_settings()
    assert settings["client.id"] == "night-job"
    assert settings["socket.timeout.ms"] == "60000"
    assert settings["bootstrap.servers"] == broker.bootstrap


def test_a_file_and_options_contradict_each_other(config_file: Path) -> None:
    with pytest.raises(UsageError, match="--client-config and --security-protocol contradict"):
        connection_to(None, SecurityOptions(protocol="SSL"), config_file)


@pytest.mark.parametrize("text", ["security.protocol=SSH\n", "securty.protocol=SSL\n"])
def test_a_wrong_file_is_told_by_its_name(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    ended = run("topic", "list", "--client-config", str(file))
    assert ended.code == ExitCode.USAGE
    assert str(file) in ended.err


# -- options ---------------------------------------------------------------------------------------------------------

SECURITY_OPTIONS = (
    "--security-protocol",
    "--sasl-mechanism",
    "--username",
    "--password-file",
    "--tls-ca",
    "--tls-cert",
    "--tls-key",
    "--client-config",
)
READS_TWO_CLUSTERS = {("mirror", "run"), ("mirror", "status")}
# Commands that connect to no broker as a client.
WITHOUT_BROKER = {
    ("serve",): "is the broker",
    ("log", "dump"): "reads files",
    ("log", "verify"): "reads files",
    ("log", "accept-loss"): "writes into a stopped broker's data folder",
    ("cluster", "up"): "starts the brokers",
    ("cluster", "remove"): "writes to etcd",
    ("cluster", "elect"): "writes to etcd",
    ("cluster", "throttle"): "writes to etcd",
    ("pipeline", "report"): "reads tables",
    ("pipeline", "clean"): "changes tables",
    ("archive", "status"): "reads the store",
    ("archive", "verify"): "reads the store",
    ("archive", "get"): "reads the store",
    ("archive", "restore"): "reads the store",
    ("archive", "collect"): "changes the store",
    ("tls", "show"): "reads the files of a data folder",
    ("tls", "issue"): "writes into a data folder",
    ("tls", "renew"): "writes into a data folder",
    ("completion",): "prints a script",
    ("man",): "writes files",
}


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_every_command_has_the_same_security_options(path: tuple[str, ...]) -> None:
    command = all_commands()[path]
    expected = set() if path in WITHOUT_BROKER else set(SECURITY_OPTIONS)
    assert {name for name in SECURITY_OPTIONS if has_option(command, name)} == expected
    assert has_option(command, "--from-client-config") == (path in READS_TWO_CLUSTERS)


def test_commands_without_security_options_exist() -> None:
    assert WITHOUT_BROKER.keys() | READS_TWO_CLUSTERS <= all_commands().keys()


# -- commands --------------------------------------------------------------------------------------------------------


def test_commands_reach_brokers_behind_tls_and_a_login(
    run: Run, secured: tuple[str, ...], config_file: Path
) -> None:
    by_file = ("--client-config", str(config_file))
    for way, text in ((secured, "by options"), (by_file, "by file")):
        sent = run("produce", "rides", *way, stdin=text.encode())
        assert sent.code == 0, sent.err
    read = run("consume", "rides", *secured)
    assert sorted(read.out.split("\n")) == ["", "by file", "by options"]
    for way in (secured, by_file):
        assert "rides\t3\t2\t7d" in run("topic", "list", *way).out
        assert run("group", "list", *way).code == 0
        assert run("replay", "list", *way).code == 0
        assert run("transaction", "list", *way).code == 0


def test_groups_are_described_moved_and_deleted_behind_tls_and_a_login(
    run: Run, secured: tuple[str, ...]
) -> None:
    name = f"billing-{next(NUMBERS)}"
    run("produce", "rides", *secured, stdin=b"one\ntwo\n")
    assert run("consume", "rides", "--group", name, *secured).code == 0
    described = run("group", "describe", name, *secured)
    assert f"{name}\tstate\tEmpty" in described.out
    moved = run("group", "reset", name, "--to-earliest", "--yes", *secured)
    assert moved.code == 0, moved.err
    assert run("group", "lag", name, *secured).code == 0
    assert run("group", "delete", name, "--yes", *secured).code == 0


NUMBERS = itertools.count()


def test_topics_are_made_changed_and_deleted_behind_tls_and_a_login(
    run: Run, secured: tuple[str, ...]
) -> None:
    for command in (
        ("create", "fares", "--partitions", "2"),
        ("alter", "fares", "--set", "retention.ms=1d", "--partitions", "3"),
        ("describe", "fares", "--keys"),
        ("delete", "fares", "--yes"),
    ):
        ended = run("topic", *command, *secured)
        assert ended.code == 0, ended.err


def test_a_wrong_password_is_an_error_that_does_not_repeat_it(
    run: Run, secured: tuple[str, ...], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("battery staple\n")
    changed = [str(wrong) if one.endswith("password") else one for one in secured]
    ended = run("topic", "list", *changed)
    assert ended.code != 0
    assert "battery staple" not in ended.err + ended.out


def test_a_listener_with_tls_is_named_when_the_command_has_none(
    run: Run, gate: SecuredGate
) -> None:
    ended = run("topic", "list", "--broker", gate.address)
    assert ended.code == ExitCode.UNREACHABLE
    assert "--security-protocol" in ended.err


def test_help_has_security_in_a_panel_of_its_own(run: Run) -> None:
    shown = run("topic", "list", "--help").out
    assert "Security" in shown
    assert shown.index("--broker") < shown.index("Security") < shown.index("--security-protocol")
