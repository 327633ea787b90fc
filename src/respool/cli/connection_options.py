"""Options shared by all commands that connect to brokers: addresses, TLS and a login, or a file with all of them.

Passwords are only read from files: command lines are visible to other users of the machine.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.options import option_group
from respool.client.kafka.bootstrap import DEFAULT_BOOTSTRAP, ENVIRONMENT, Bootstrap
from respool.model.operator_errors import UsageError

if TYPE_CHECKING:
    from respool.client.kafka.client_config import ClientConfig
    from respool.client.kafka.cluster import Cluster
    from respool.client.kafka.security import Security
    from respool.operate.cluster_admin import ClusterAdmin

CONFIG_VARIABLE = "RESPOOL_CLIENT_CONFIG"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PANEL = "Security"


def _option(*names: str, metavar: str, text: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=PANEL)


def _file(*names: str, text: str) -> Any:
    return typer.Option(
        *names,
        metavar="FILE",
        help=text,
        rich_help_panel=PANEL,
        exists=True,
        dir_okay=False,
        readable=True,
    )


def _address(*names: str) -> Any:
    return typer.Option(
        *names,
        envvar=ENVIRONMENT,
        metavar="HOST:PORT",
        help="The broker to talk to; several, with commas, for a cluster.",
        show_default=DEFAULT_BOOTSTRAP,
    )


Broker = Annotated[str | None, _address("--broker", "-b")]
BrokerOrBootstrap = Annotated[str | None, _address("--broker", "-b", "--bootstrap")]
Protocol = Annotated[
    str | None,
    _option(
        "--security-protocol",
        metavar="PROTOCOL",
        text="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Default: PLAINTEXT",
    ),
]
Mechanism = Annotated[
    str | None,
    _option("--sasl-mechanism", metavar="NAME", text="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."),
]
Username = Annotated[
    str | None, _option("--username", metavar="NAME", text="The user that logs in (SASL).")
]
PasswordFile = Annotated[
    Path | None, _file("--password-file", text="A file with the user's password on its first line.")
]
TlsCa = Annotated[
    Path | None,
    _file("--tls-ca", text="CA bundle (PEM) for the brokers. Default: the system trust store"),
]
TlsCert = Annotated[
    Path | None, _file("--tls-cert", text="Client certificate chain (PEM), for mutual TLS.")
]
TlsKey = Annotated[
    Path | None, _file("--tls-key", text="Its private key (PEM). Default: in --tls-cert")
]
ClientConfigFile = Annotated[
    Path | None,
    _option(
        "--client-config",
        metavar="FILE",
        text=f"A file of Kafka's client properties instead of these options; also {CONFIG_VARIABLE}.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Security settings from single options; errors name the options."""

    protocol: str | None = None
    mechanism: str | None = None
    username: str | None = None
    password_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def given(self) -> list[str]:
        """The names of the options that were given."""
        named = {
            "--security-protocol": self.protocol,
            **self._sasl,
            **self._tls,
        }
        return [name for name, value in named.items() if value is not None]

    @property
    def flags(self) -> tuple[str, ...]:
        """The options as they were given, to repeat them in a command for the user."""
        named = {"--security-protocol": self.protocol, **self._sasl, **self._tls}
        return tuple(
            text
            for name, value in named.items()
            if value is not None
            for text in (name, str(value))
        )

    @property
    def _sasl(self) -> Mapping[str, object]:
        return {
            "--sasl-mechanism": self.mechanism,
            "--username": self.username,
            "--password-file": self.password_file,
        }

    @property
    def _tls(self) -> Mapping[str, object]:
        return {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}

    def security(self) -> "Security":
        """
        Raises:
            UsageError: an option is missing, invalid or contradicts another.
        """
        from respool.client.kafka.security import Login, Security, Tls

        protocol = self._protocol()
        tls, login = None, None
        if "SSL" in protocol:
            if self.tls_key is not None and self.tls_cert is None:
                raise UsageError("--tls-key needs --tls-cert, the certificate of that key")
            tls = Tls(
                authorities=_text(self.tls_ca),
                certificate=_text(self.tls_cert),
                key=_text(self.tls_key),
            )
        if protocol.startswith("SASL"):
            assert self.username is not None
            assert self.password_file is not None
            login = Login(
                mechanism=_choice("--sasl-mechanism", self.mechanism or "", MECHANISMS),
                username=self.username,
                password=_password(self.password_file),
            )
        return Security(tls=tls, login=login, origin="--security-protocol")

    def _protocol(self) -> str:
        if self.protocol is None and self.given:
            raise UsageError(
                f"{self.given[0]} needs --security-protocol",
                hint="SSL: TLS; SASL_SSL: TLS and a login; SASL_PLAINTEXT: a login without TLS",
            )
        protocol = _choice("--security-protocol", self.protocol or "PLAINTEXT", PROTOCOLS)
        has_login = protocol.startswith("SASL")
        for name, value in self._sasl.items():
            if has_login and value is None:
                raise UsageError(f"--security-protocol {protocol} needs {name}")
            if not has_login and value is not None:
                raise UsageError(
                    f"{name} and --security-protocol {protocol} contradict each other",
                    hint="a login needs SASL_SSL or SASL_PLAINTEXT",
                )
        for name, value in self._tls.items():
            if "SSL" not in protocol and value is not None:
                raise UsageError(
                    f"{name} and --security-protocol {protocol} contradict each other",
                    hint="TLS needs SSL or SASL_SSL",
                )
        return protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConnection:
    """The brokers' addresses and how to connect to them."""

    # HOST:PORT of one or several brokers, separated by commas, without empty entries: librdkafka ignores those.
    bootstrap: str
    # The file that contains the address; None if it comes from an option, a variable or the default.
    origin: str | None = None
    security: "Security" = field(default_factory=lambda: SecurityOptions().security())
    # The file of client properties, if there is one: its client id and timeouts replace the commands' own.
    config: "ClientConfig | None" = None

    _connected: "list[ClusterAdmin]" = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        entries = filter(None, map(str.strip, self.bootstrap.split(",")))
        object.__setattr__(self, "bootstrap", ",".join(entries))

    def addresses(self) -> Bootstrap:
        """The address with its origin, for the client and its errors."""
        option = "--broker HOST:PORT"
        if self.origin is not None:
            return Bootstrap(self.bootstrap, self.origin, option)
        return Bootstrap.chosen(self.bootstrap, option=option)

    def connect(self, **defaults: int) -> "ClusterAdmin":
        """Connect to the brokers; `close` closes the connection, at the latest when the command ends.

        `defaults` are arguments of `Cluster`, in place of the usual ones; a client config takes precedence.

        Raises:
            UsageError: an address is not HOST:PORT.
            Unreachable: no broker answers.
            OperatorError: TLS or the login was refused.
        """
        from respool.operate.cluster_admin import ClusterAdmin

        config = {} if self.config is None else self.config.cluster_settings()
        settings = {**defaults, **config}
        admin = ClusterAdmin.connect(self.addresses(), self.security, settings=settings)
        self._connected.append(admin)
        return admin

    def unconnected(self, **limits: int) -> "Cluster":
        """A client that has contacted no broker yet; `close` closes it, at the latest when the command ends.

        `limits` are timeouts among the arguments of `Cluster`; a client config can only set lower ones.

        Raises:
            UsageError: an address is not HOST:PORT.
        """
        from respool.client.kafka.client_config import with_limits
        from respool.operate.cluster_admin import ClusterAdmin

        config = {} if self.config is None else self.config.cluster_settings()
        admin = ClusterAdmin.unconnected(
            self.addresses(), self.security, settings=with_limits(config, limits)
        )
        self._connected.append(admin)
        return admin.cluster

    @property
    def retry_seconds(self) -> float:
        """How long a call is retried or waited for."""
        from respool.operate.cluster_admin import REQUEST_SECONDS

        if self.config is None or self.config.retry_ms is None:
            return REQUEST_SECONDS
        return self.config.retry_ms / 1000

    def close(self) -> None:
        while self._connected:
            self._connected.pop().close()

    def library_settings(self) -> dict[str, object]:
        """The connection as settings of confluent-kafka.

        Raises:
            UsageError: librdkafka has no setting for an option.
        """
        from respool.client.kafka.errors import BadArgument
        from respool.client.kafka.security_properties import library_settings

        try:
            settings = (
                library_settings(self.security)
                if self.config is None
                else self.config.library_settings()
            )
        except BadArgument as error:
            raise UsageError(str(error)) from error
        return {**settings, "bootstrap.servers": self.bootstrap}


def connection_to(
    broker: str | None,
    given: SecurityOptions,
    config: Path | None,
    *,
    config_option: str = "--client-config",
    variable: str | None = ENVIRONMENT,
) -> BrokerConnection:
    """A connection from options, or from a file of client properties.

    `config` is the file given with `config_option`; without it and without security options, the file named by
    RESPOOL_CLIENT_CONFIG is used. An address that is given takes precedence over the file's. `variable` is the
    environment variable that `broker` may come from, if its option has one.

    Raises:
        UsageError: options contradict each other or the file, or one is invalid.
    """
    if config is not None and given.given:
        raise UsageError(
            f"{config_option} and {given.given[0]} contradict each other",
            hint="give security by the file or by options",
        )
    by_variable = os.environ.get(CONFIG_VARIABLE)
    file = config
    if file is None and by_variable and not given.given:
        file = Path(by_variable)
    if file is None:
        return BrokerConnection(bootstrap=broker or DEFAULT_BOOTSTRAP, security=given.security())

    from respool.client.kafka.client_config import read_client_config
    from respool.client.kafka.errors import BadArgument

    try:
        found = read_client_config(file)
    except BadArgument as error:
        raise UsageError(str(error)) from error
    # A file named on the command line takes precedence over variables; an address option takes precedence over both.
    is_variable = broker is not None and variable is not None and broker == os.environ.get(variable)
    if found.servers is not None and (broker is None or (config is not None and is_variable)):
        return BrokerConnection(
            bootstrap=found.servers, origin=str(file), security=found.security, config=found
        )
    return BrokerConnection(
        bootstrap=broker or DEFAULT_BOOTSTRAP, security=found.security, config=found
    )


def broker_connection(
    *,
    broker: Broker = None,
    security_protocol: Protocol = None,
    sasl_mechanism: Mechanism = None,
    username: Username = None,
    password_file: PasswordFile = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_config: ClientConfigFile = None,
) -> BrokerConnection:
    given = SecurityOptions(
        protocol=security_protocol,
        mechanism=sasl_mechanism,
        username=username,
        password_file=password_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    return connection_to(broker, given, client_config)


# Replaces a command's parameter `connection` with the options that name brokers.
to_broker = option_group("connection", broker_connection)
to_broker_or_bootstrap = option_group("connection", broker_connection, broker=BrokerOrBootstrap)


def _choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text.upper() not in choices:
        raise UsageError(f"{option} {text!r} is not one of {', '.join(choices)}")
    return text.upper()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _password(file: Path) -> str:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--password-file {file} cannot be read as text") from error
    if not lines or not lines[0]:
        raise UsageError(f"--password-file {file}: its first line is empty")
    return lines[0]
