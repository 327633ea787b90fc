"""Options of both source and sink: how to connect to the brokers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from respool.client.kafka import security_properties
from respool.client.kafka.bootstrap import FIRST_CONTACT_MS, LASTING_CONTACT_MS, Bootstrap
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.spark.option_values import BadOption, Options

if TYPE_CHECKING:
    from respool.client.kafka.cluster import Cluster

BOOTSTRAP = "kafka.bootstrap.servers"
OUR_BOOTSTRAP = "bootstrap"
API_TIMEOUT = "kafka.default.api.timeout.ms"
# The prefix of Kafka's names among Spark's options.
PREFIX = "kafka."
SECURITY_NAMES = tuple(PREFIX + name for name in security_properties.NAMES)
RETRY_MS = 60_000
REQUEST_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to connect to the brokers. Can be pickled."""

    bootstrap: str
    # The option or environment variable that named them; empty for the default address.
    origin: str = BOOTSTRAP
    client_id: str = "respool-spark"
    # How long transient errors (a broker restart, a leader change) are retried.
    retry_ms: int = RETRY_MS
    # The same on the driver, until a broker has answered for the first time.
    first_contact_ms: int = FIRST_CONTACT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    # None: the client's own, which is shorter while no broker has ever answered.
    connect_timeout_ms: int | None = None
    security: Security = IN_THE_CLEAR

    @classmethod
    def of(cls, options: Options) -> Self:
        """
        Raises:
            BadOption: no brokers are named, or this client does not support such a connection.
        """
        security = security_of(options)
        ours, kafkas = options.text(OUR_BOOTSTRAP), options.text(BOOTSTRAP)
        if ours is not None and kafkas is not None and ours != kafkas:
            raise BadOption(
                f"{BOOTSTRAP} = {kafkas!r} and {OUR_BOOTSTRAP} = {ours!r} contradict each other: they mean the same"
            )
        given = ours if ours is not None else kafkas
        if given is not None and not given:
            raise BadOption(
                f"{BOOTSTRAP} is empty: HOST:PORT of one broker or of several, with commas"
            )
        # Only the driver's environment counts: it resolves the address, and executors receive it with the options.
        brokers = Bootstrap.resolve(given, option=BOOTSTRAP if ours is None else OUR_BOOTSTRAP)
        client_id = options.text("kafka.client.id", "respool-spark")
        retry_ms = options.whole(API_TIMEOUT, RETRY_MS, least=1)
        request_ms = options.whole("kafka.request.timeout.ms", REQUEST_TIMEOUT_MS, least=1)
        connect_ms = options.whole("kafka.socket.connection.setup.timeout.ms", least=1)
        assert client_id is not None
        assert retry_ms is not None
        assert request_ms is not None
        return cls(
            bootstrap=brokers.servers,
            origin=brokers.origin,
            client_id=client_id,
            retry_ms=retry_ms,
            # A retry time set for the driver also applies to its first contact.
            first_contact_ms=LASTING_CONTACT_MS if options.has(API_TIMEOUT) else FIRST_CONTACT_MS,
            request_timeout_ms=request_ms,
            connect_timeout_ms=connect_ms,
            security=security,
        )

    @property
    def brokers(self) -> Bootstrap:
        return Bootstrap(self.bootstrap, self.origin, BOOTSTRAP)

    def cluster(
        self, *, retry_ms: int | None = None, first_contact_ms: int = LASTING_CONTACT_MS
    ) -> "Cluster":
        """Create a client, which does not connect yet. The caller must close it.

        `first_contact_ms` is long by default: tasks and commits run after a broker has already answered the driver.

        Raises:
            BadOption: the address is invalid.
        """
        from respool.client.kafka.cluster import Cluster

        try:
            return Cluster(
                self.brokers,
                client_id=self.client_id,
                retry_ms=self.retry_ms if retry_ms is None else retry_ms,
                first_contact_ms=first_contact_ms,
                request_timeout_ms=self.request_timeout_ms,
                connect_timeout_ms=self.connect_timeout_ms,
                security=self.security,
            )
        except BadArgument as error:
            raise BadOption(str(error)) from None


def security_of(options: Options) -> Security:
    """
    Raises:
        BadOption: this client does not support such a connection, or two options contradict each other.
    """
    options.has(PREFIX + security_properties.PROTOCOL)
    try:
        return security_properties.security_of(options.given, prefix=PREFIX)
    except BadArgument as error:
        raise BadOption(str(error)) from None
