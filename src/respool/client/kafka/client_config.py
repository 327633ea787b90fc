"""Reads a file of Kafka client properties: bootstrap servers, TLS, login and timeouts.

    bootstrap.servers=kafka-1:9093,kafka-2:9093          config = read_client_config("client.properties")
    security.protocol=SASL_SSL                           Cluster(config.bootstrap, security=config.security)
    ssl.ca.location=/etc/kafka/ca.pem                    confluent_kafka.Producer(config.library_settings())
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=app
    sasl.password=...

The file has the format of Java properties, with the names of Kafka's Java client and of librdkafka. Names that only
tune the internals of another client are accepted and ignored; every other name is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from respool.client.kafka import security_properties
from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.model.kafka_settings.java_properties import java_properties

BOOTSTRAP = "bootstrap.servers"
CLIENT_ID = "client.id"
REQUEST_TIMEOUT = "request.timeout.ms"
CONNECT_TIMEOUT = "socket.connection.setup.timeout.ms"
RETRY_TIMEOUT = "default.api.timeout.ms"

_NAMES = (
    BOOTSTRAP,
    CLIENT_ID,
    REQUEST_TIMEOUT,
    CONNECT_TIMEOUT,
    RETRY_TIMEOUT,
    *security_properties.NAMES,
)

# Settings that only tune the internals of Kafka's clients.
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings in a file; None if the file does not set one."""

    # The file name, for error messages.
    origin: str
    servers: str | None = None
    client_id: str | None = None
    request_timeout_ms: int | None = None
    connect_timeout_ms: int | None = None
    # How long transient errors are retried.
    retry_ms: int | None = None
    security: Security = field(default=IN_THE_CLEAR)

    @property
    def bootstrap(self) -> Bootstrap | None:
        return None if self.servers is None else Bootstrap(self.servers, self.origin, BOOTSTRAP)

    def cluster_settings(self) -> dict[str, Any]:
        """The client id and the timeouts that the file sets, as keyword arguments of `Cluster`."""
        client_id = {} if self.client_id is None else {"client_id": self.client_id}
        return {**client_id, **self.timeouts()}

    def timeouts(self) -> dict[str, int]:
        """The timeouts that the file sets, as keyword arguments of `Cluster`."""
        settings = {
            "request_timeout_ms": self.request_timeout_ms,
            "connect_timeout_ms": self.connect_timeout_ms,
            "retry_ms": self.retry_ms,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def library_settings(self) -> dict[str, str]:
        """The same settings for confluent-kafka (librdkafka).

        Raises:
            BadArgument: librdkafka has no equivalent setting.
        """
        settings = security_properties.library_settings(self.security)
        for name, value in (
            (BOOTSTRAP, self.servers),
            (CLIENT_ID, self.client_id),
            ("socket.timeout.ms", self.request_timeout_ms),
            (CONNECT_TIMEOUT, self.connect_timeout_ms),
        ):
            if value is not None:
                settings[name] = str(value)
        return settings


def with_limits(settings: Mapping[str, Any], limits: Mapping[str, int]) -> dict[str, Any]:
    """`settings`, arguments of `Cluster`, with these timeouts lowered to the limits; if unset, the limit."""
    return {
        **settings,
        **{name: min(settings.get(name, limit), limit) for name, limit in limits.items()},
    }


def read_client_config(path: str | Path) -> ClientConfig:
    """
    Raises:
        BadArgument: the file cannot be read, or a property is unknown, unsupported or contradicts another.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise BadArgument(f"client config {path}: {reason}") from error
    return parse_client_config(text, origin=str(path))


def parse_client_config(text: str, *, origin: str) -> ClientConfig:
    """Parse the text of a client config; `origin` names it in errors. Otherwise like `read_client_config`."""
    properties: dict[str, str] = {}
    for one in java_properties(text):
        _check_name(one.name, f"{origin}, line {one.line}", has_separator=one.has_separator)
        # As in Java, the last value wins.
        properties[one.name] = one.value
    try:
        return ClientConfig(
            origin=origin,
            servers=_servers(properties),
            client_id=properties.get(CLIENT_ID),
            request_timeout_ms=_milliseconds(properties, REQUEST_TIMEOUT),
            connect_timeout_ms=_milliseconds(properties, CONNECT_TIMEOUT),
            retry_ms=_milliseconds(properties, RETRY_TIMEOUT),
            security=replace(
                security_properties.security_of(properties),
                origin=f"{security_properties.PROTOCOL} in {origin}",
            ),
        )
    except BadArgument as error:
        raise BadArgument(f"{origin}: {error}") from None


def _check_name(name: str, where: str, *, has_separator: bool) -> None:
    # Security properties are checked together later, which gives better error messages.
    if name in _NAMES or name in WITHOUT_EFFECT or name.startswith(security_properties.PREFIXES):
        return
    near = get_close_matches(name, _NAMES, n=1, cutoff=0.7)
    if not near and not has_separator:
        raise BadArgument(f"{where} is not name=value")
    hint = (
        f"; did you mean {near[0]!r}?"
        if near
        else ", which has properties of the connection only (docs/operating.md#security lists them); those of "
        "producers and consumers, such as acks or group.id, do not belong in it"
    )
    raise BadArgument(f"{where}: {name!r} is not a property of a client config{hint}")


def _servers(properties: Mapping[str, str]) -> str | None:
    servers = properties.get(BOOTSTRAP)
    if servers is not None and not servers.strip():
        raise BadArgument(
            f"{BOOTSTRAP} is empty: HOST:PORT of one broker or of several, with commas"
        )
    return servers


def _milliseconds(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= 2**31 - 1):
        raise BadArgument(f"{name} = {text[:20]!r}: milliseconds, from 1 to {2**31 - 1}")
    return int(text)
