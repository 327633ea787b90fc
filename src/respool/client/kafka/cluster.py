"""A client's view of a cluster: its brokers, the partition leaders, and requests to them. Thread-safe.

Small requests (metadata, offsets, coordinators) share one connection per broker, one at a time. Callers that transfer
much data, or keep several requests in flight, open a connection of their own with `connect`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Self, TypeVar

from respool.client.kafka.bootstrap import FIRST_CONTACT_MS, Bootstrap
from respool.client.kafka.broker_connections import BrokerConnections
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BadArgument,
    BrokerRefused,
    BrokerUnreachable,
    NobodyAnswers,
    NoBroker,
    ProtocolBroken,
    UnknownTopic,
    nobody_listens,
)
from respool.client.kafka.layout_descriptions import describe_layout
from respool.client.kafka.metadata import (
    Address,
    MetadataCache,
    TopicMetadata,
    metadata_fields,
    topic_metadata_of,
)
from respool.client.kafka.retries import RetryTimer
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.kafka.transport import FRAME_BYTES_MAX, LinkSettings
from respool.client.kafka.versions import VersionRange
from respool.model.addresses import parse_address
from respool.model.errors import SettingsError
from respool.wire.api_table import Api

RETRY_MS = 60_000

# A topic is unknown once this many brokers have reported it unknown.
_ASKED_MAX = 3

T = TypeVar("T")


class Cluster:
    """Use it as a context manager, or call `close`."""

    def __init__(
        self,
        bootstrap: str | Bootstrap | None = None,
        *,
        client_id: str = "respool-arrow",
        connect_timeout_ms: int | None = None,
        request_timeout_ms: int = 30_000,
        retry_ms: int = RETRY_MS,
        first_contact_ms: int = FIRST_CONTACT_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        security: Security = IN_THE_CLEAR,
    ) -> None:
        """`bootstrap` is HOST:PORT, or several separated by commas; None: RESPOOL_BROKER, or else the local broker.

        Does not connect yet. Transient errors (a broker restart, a leader change) are retried for `retry_ms`;
        `first_contact_ms` caps that until a broker has answered for the first time. `connect_timeout_ms` is for each
        address; None: ten seconds, and two until then.

        Raises:
            BadArgument: the address is invalid.
        """
        self._bootstrap = Bootstrap.resolve(bootstrap)
        self.retry_ms = retry_ms
        self._first_contact_ms = first_contact_ms
        self.security = security
        self._first = _addresses(self._bootstrap)
        self._links = LinkSettings(
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            frame_bytes_max=frame_bytes_max,
            security=security,
        )
        self._metadata = MetadataCache()
        self._connections = BrokerConnections(self._link_settings)
        # Guards the field below.
        self._lock = Lock()
        # Address -> when a broker last failed to answer there.
        self._silent_at: dict[tuple[str, int], float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return self._bootstrap.servers

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed

    @property
    def request_timeout_ms(self) -> int:
        return self._links.request_timeout_ms

    def twin(self, *, client_id: str | None = None) -> "Cluster":
        """Return another client of the same cluster with a copy of the metadata; each is closed separately.

        It has the same client id, unless another one is given.
        """
        links = self._links
        other = Cluster(
            self._bootstrap,
            client_id=client_id or links.client_id,
            connect_timeout_ms=links.connect_timeout_ms,
            request_timeout_ms=links.request_timeout_ms,
            retry_ms=self.retry_ms,
            first_contact_ms=self._first_contact_ms,
            frame_bytes_max=links.frame_bytes_max,
            security=links.security,
        )
        other._metadata = self._metadata.copy()
        return other

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Broker id -> address, for the known brokers."""
        return self._metadata.brokers

    @property
    def controller(self) -> int | None:
        """The controller according to the latest metadata."""
        return self._metadata.controller

    @property
    def id(self) -> str | None:
        """The cluster id; None before the first metadata reply, and with brokers that have none."""
        return self._metadata.cluster_id

    def interrupt(self) -> None:
        """Wake every thread that waits for a broker; it raises `ClientClosed`. `close` must still be called."""
        self._connections.interrupt()

    def close(self) -> None:
        """Close all connections, including those from `connect`; this interrupts threads that still use them."""
        self._connections.close()

    def retry_timer(self, limit_ms: int | None = None) -> RetryTimer:
        """A timer for retries, which stop when this client is closed."""
        limit_ms = self.retry_ms if limit_ms is None else limit_ms
        if not self._metadata.brokers:
            limit_ms = min(limit_ms, self._first_contact_ms)
        return RetryTimer(limit_ms, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        """
        Raises:
            ClientClosed: the client was closed in the meantime.
        """
        self._connections.sleep(seconds)

    # -- requests ------------------------------------------------------------------------------------------------------

    def connect(self, broker: int) -> Connection:
        """Open a new connection to this broker for the caller alone, who must `release` it.

        Raises:
            BrokerUnreachable: the broker is not known, or does not answer.
        """
        return self._connections.open(self.address_of(broker))

    def release(self, connection: Connection) -> None:
        """Close a connection from `connect`. Only the thread that uses the connection may call this."""
        self._connections.drop(connection)

    def address_of(self, broker: int) -> tuple[str, int]:
        address = self._metadata.brokers.get(broker)
        if address is None:
            raise BrokerUnreachable(f"broker {broker} is not in the metadata; it may be down")
        return address

    def request(
        self,
        broker: int,
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        wait_ms: int = 0,
    ) -> Any:
        """Send one broker a request over the shared connection, and return the decoded reply.

        One request at a time: other threads wait. `versions` narrows the range in `VERSIONS`; `wait_ms` is how long the
        request itself allows the broker to wait.

        Raises:
            BrokerUnreachable: no reply came; it is unknown whether the broker carried the request out.
            VersionUnsupported: the broker serves none of these versions.
        """
        return self._request_at(
            self.address_of(broker), api, fields, versions=versions, wait_ms=wait_ms
        )

    def features(self, broker: int) -> Mapping[str, int]:
        """The finalized features of the cluster and their levels, as this broker reports them.

        Raises:
            BrokerUnreachable: the broker does not answer.
        """
        with self._connections.shared(self.address_of(broker)) as connection:
            return connection.features

    def request_any(
        self, api: Api, fields: Mapping[str, Any], *, versions: VersionRange | None = None
    ) -> Any:
        """Send the request to one broker after another until one answers: known brokers, then bootstrap addresses.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        return next(self._replies(api, fields, versions=versions))

    def _replies(
        self, api: Api, fields: Mapping[str, Any], *, versions: VersionRange | None = None
    ) -> Iterator[Any]:
        """Yield the replies of one broker after another. Raises unless there is at least one reply."""
        failures: list[BrokerUnreachable] = []
        asked: list[tuple[str, int]] = []
        has_answer = False
        while (address := self._next_address(asked)) is not None:
            asked.append(address)
            try:
                reply = self._request_at(address, api, fields, versions=versions)
            except BrokerUnreachable as error:
                failures.append(error)
                with self._lock:
                    self._silent_at[address] = time.monotonic()
                continue
            with self._lock:
                self._silent_at.pop(address, None)
            has_answer = True
            yield reply
        if has_answer:
            return
        raise self._nobody(asked, failures) from failures[-1]

    def _nobody(
        self, asked: Sequence[tuple[str, int]], failures: Sequence[BrokerUnreachable]
    ) -> BrokerUnreachable:
        """The error for a request that no address answered."""
        if not self._metadata.brokers and all(map(nobody_listens, failures)):
            return NoBroker(self._bootstrap, [str(one) for one in failures])
        return NobodyAnswers(asked, failures)

    def _next_address(self, asked: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        with self._lock:
            left = [
                one for one in (*self._metadata.brokers.values(), *self._first) if one not in asked
            ]
            # Addresses that failed last time come last: an unresponsive one costs a full timeout.
            return min(left, key=lambda one: self._silent_at.get(one, 0.0), default=None)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata:
        """Return the cached metadata of the topic, or fetch it, with retries for `retry_ms`.

        Raises:
            UnknownTopic: it does not exist.
            BrokerUnreachable: no broker answers.
        """
        known = self._metadata.topic(name)
        return self.retrying(lambda: self.refresh(name)) if known is None else known

    def refresh(self, name: str) -> TopicMetadata:
        """Fetch a topic's metadata now, without retries. This never creates a topic.

        Raises:
            UnknownTopic, BrokerRefused, BrokerUnreachable
        """
        # Not every broker knows a newly created topic at once.
        for reply in islice(self._replies(Api.METADATA, metadata_fields([name])), _ASKED_MAX):
            self._metadata.learn_brokers(reply)
            if len(reply.topics) != 1:
                raise ProtocolBroken(f"metadata of {len(reply.topics)} topics, asked for one")
            (answer,) = reply.topics
            if answer.error_code != Code.unknown_topic_or_partition:
                break
        code = answer.error_code
        if code in {Code.unknown_topic_or_partition, Code.invalid_topic_exception}:
            self._metadata.forget(name)
            raise UnknownTopic(name)
        if code and code != Code.leader_not_available:
            raise refused(f"metadata request for topic {name!r}", code)
        seen = topic_metadata_of(name, answer)
        learned = self._metadata.learn_topic(seen)
        if learned.partitions > seen.partitions:
            return self._without_retired(learned, seen)
        return learned

    def _without_retired(self, known: TopicMetadata, seen: TopicMetadata) -> TopicMetadata:
        """Leave out partitions that were taken away. Others that a broker does not list are new to it."""
        try:
            layout = describe_layout(self, known.name)
        except (BrokerUnreachable, BrokerRefused, UnknownTopic):
            return known
        if layout is None or layout.listed > seen.partitions or layout.named < known.partitions:
            return known
        return self._metadata.retire(known.name, layout.listed)

    def refresh_all(self) -> dict[str, TopicMetadata]:
        """Fetch the metadata of all topics now, without retries. Topics with an error are left out.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        return self.refresh_all_or_errors()[0]

    def refresh_all_or_errors(self) -> tuple[dict[str, TopicMetadata], dict[str, BrokerRefused]]:
        """Like `refresh_all`; also returns the errors of the topics that have one, by topic."""
        reply = self.request_any(Api.METADATA, metadata_fields(None))
        self._metadata.learn_brokers(reply)
        return self._metadata.learn_topics(reply)

    def refresh_named(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Fetch the metadata of those of these topics that exist, without retries. This never creates a topic.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        reply = self.request_any(Api.METADATA, metadata_fields(sorted(names)))
        self._metadata.learn_brokers(reply)
        return self._metadata.learn_topics(reply)[0]

    def refresh_brokers(self) -> Mapping[int, tuple[str, int]]:
        """Fetch the list of brokers now, without retries: broker id -> address.

        Raises:
            BrokerUnreachable: no broker answers, or the reply names no broker yet.
        """
        reply = self.request_any(Api.METADATA, metadata_fields([]))
        if not self.learn_brokers(reply):
            raise BrokerUnreachable("the metadata name no broker; the cluster may be starting")
        return self.brokers

    def learn_brokers(self, reply: Any) -> bool:
        """Take the brokers' addresses from a Metadata reply; returns False, without a change, if it names none."""
        return self._metadata.learn_brokers(reply)

    def learn_broker(self, broker: int, address: Address) -> None:
        """Add a broker whose address the caller knows from another source than a Metadata reply."""
        self._metadata.learn_broker(broker, address)

    def coordinator(self, key: str, *, is_transaction: bool) -> int:
        """Look up the coordinator of a transactional id or a group: one request, no retries, no caching.

        Raises:
            BrokerRefused, BrokerUnreachable
        """
        fields = {"key_type": int(is_transaction), "key": key}
        answer = self.request_any(Api.FIND_COORDINATOR, fields)
        if answer.error_code:
            raise refused(f"looking up the coordinator of {key!r}", answer.error_code)
        broker = int(answer.node_id)
        self.learn_broker(broker, (str(answer.host), int(answer.port)))
        return broker

    def retrying(self, attempt: Callable[[], T], *, limit_ms: int | None = None) -> T:
        """Call `attempt` until it succeeds; transient errors are retried for `retry_ms`, or `limit_ms` if given.

        Raises:
            BrokerUnreachable, BrokerRefused: the error is not transient, or the time is up.
        """
        retry = self.retry_timer(limit_ms)
        while True:
            try:
                return attempt()
            except BrokerUnreachable as error:
                retry.wait_or_raise(error)
            except BrokerRefused as error:
                if not error.retriable:
                    raise
                retry.wait_or_raise(error)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _request_at(
        self,
        address: tuple[str, int],
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        wait_ms: int = 0,
    ) -> Any:
        with self._connections.shared(address) as connection:
            version = connection.version(api, versions)
            try:
                return connection.request(api, version, fields, wait_ms=wait_ms)
            except BaseException:
                # Also on Ctrl-C: the reply would otherwise be taken for that of the next request.
                self._connections.drop(connection)
                raise

    def _link_settings(self) -> LinkSettings:
        """The settings of a new connection; until a broker has answered, with shorter timeouts."""
        if self._metadata.brokers:
            return self._links
        return self._links.at_first_contact(self._first_contact_ms)


def _addresses(bootstrap: Bootstrap) -> list[tuple[str, int]]:
    servers, name = bootstrap.servers, bootstrap.origin.rstrip("=")
    if not isinstance(servers, str):
        raise BadArgument(
            f"{name} = {servers!r}: text, HOST:PORT, or several with commas between them"
        )
    try:
        return [parse_address(name, one.strip()) for one in servers.split(",")]
    except SettingsError as error:
        raise BadArgument(str(error)) from None
