"""A cluster as a client sees it: its brokers, who leads what, and requests to them. Usable from many threads.

Small requests (metadata, offsets, coordinators) share one connection per broker, one at a time. Who moves many bytes,
or keeps several requests on their way, takes a connection of its own: `connect`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import Event, Lock
from typing import Any, Self, TypeVar

from respool.client.kafka.bootstrap import FIRST_CONTACT_MS, Bootstrap
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BadArgument,
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    NoBroker,
    ProtocolBroken,
    UnknownTopic,
)
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

# How many brokers must not know a topic for it to be unknown.
_ASKED_MAX = 3

T = TypeVar("T")


@dataclass(slots=True)
class _Door:
    """The shared way to one address."""

    lock: Lock = field(default_factory=Lock)
    connection: Connection | None = None


class Cluster:
    """Use it as a context, or `close` it."""

    def __init__(
        self,
        bootstrap: str | Bootstrap | None = None,
        *,
        client_id: str = "respool-arrow",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_ms: int = RETRY_MS,
        first_contact_ms: int = FIRST_CONTACT_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        security: Security = IN_THE_CLEAR,
    ) -> None:
        """`bootstrap` is HOST:PORT of one broker or of several, with commas; None is RESPOOL_BROKER, or this machine's.

        Nothing is connected yet. `retry_ms` is how long a transient error (a broker restarts, a leader changes) is
        retried; `first_contact_ms` caps it until a broker has answered for the first time.

        Raises:
            BadArgument: the address cannot be one.
        """
        self._bootstrap = Bootstrap.resolve(bootstrap)
        self.retry_ms = retry_ms
        self._first_contact_ms = first_contact_ms
        self._first = _addresses(self._bootstrap)
        self._links = LinkSettings(
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            frame_bytes_max=frame_bytes_max,
            security=security,
        )
        self._metadata = MetadataCache()
        self._closed = Event()
        # Guards the fields below. Never held while waiting for a broker.
        self._lock = Lock()
        # When those that answer no more failed to.
        self._silent_at: dict[tuple[str, int], float] = {}
        self._doors: dict[tuple[str, int], _Door] = {}
        self._connections: set[Connection] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return self._bootstrap.servers

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def request_timeout_ms(self) -> int:
        return self._links.request_timeout_ms

    def twin(self) -> "Cluster":
        """Another one to the same brokers, knowing what this one does; closing one leaves the other alone."""
        links = self._links
        other = Cluster(
            self._bootstrap,
            client_id=links.client_id,
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
        """Broker id -> address, as far as they are known."""
        return self._metadata.brokers

    @property
    def controller(self) -> int | None:
        """The broker that metadata named as the controller last."""
        return self._metadata.controller

    @property
    def id(self) -> str | None:
        """The cluster's; None until metadata were asked for, and with brokers that do not have one."""
        return self._metadata.cluster_id

    def interrupt(self) -> None:
        """Wake every thread that waits for a broker; it gets `ClientClosed`. `close` is still to be called."""
        self._closed.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.interrupt()

    def close(self) -> None:
        """End all connections, also those handed out. Threads that use those must have ended, or are ended by this."""
        self.interrupt()
        with self._lock:
            doors = list(self._doors.values())
        for door in doors:
            with door.lock:
                if door.connection is not None:
                    self._drop(door.connection)
        with self._lock:
            self._doors.clear()

    def retry_timer(self, limit_ms: int | None = None) -> RetryTimer:
        """For attempts that end when this is closed."""
        limit_ms = self.retry_ms if limit_ms is None else limit_ms
        if not self._metadata.brokers:
            limit_ms = min(limit_ms, self._first_contact_ms)
        return RetryTimer(limit_ms, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        """
        Raises:
            ClientClosed: it was closed meanwhile.
        """
        if self._closed.wait(seconds):
            raise ClientClosed("the client is closed")

    # -- requests ------------------------------------------------------------------------------------------------------

    def connect(self, broker: int) -> Connection:
        """A new connection to this broker, the caller's own: to be given back with `release`.

        Raises:
            BrokerUnreachable: it is not known, or does not answer.
        """
        return self._open(self.address_of(broker))

    def release(self, connection: Connection) -> None:
        """End a connection that `connect` made. Only the thread that uses it may."""
        self._drop(connection)

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

        One request at a time: other threads wait. `versions` narrows those of `VERSIONS`; `wait_ms` is how long the
        request itself allows the broker to wait.

        Raises:
            BrokerUnreachable: no reply came; it is unknown whether the broker carried the request out.
            VersionUnsupported: the broker serves none of these versions.
        """
        return self._ask(self.address_of(broker), api, fields, versions=versions, wait_ms=wait_ms)

    def features(self, broker: int) -> Mapping[str, int]:
        """What the whole cluster has agreed on, by name, as this broker tells.

        Raises:
            BrokerUnreachable: it does not answer.
        """
        with self._shared(self.address_of(broker)) as connection:
            return connection.features

    def request_any(
        self, api: Api, fields: Mapping[str, Any], *, versions: VersionRange | None = None
    ) -> Any:
        """Send it to one broker after the other until one answers: those of the metadata, then the bootstrap addresses.

        Raises:
            BrokerUnreachable: none answers.
        """
        return next(self._replies(api, fields, versions=versions))

    def _replies(
        self, api: Api, fields: Mapping[str, Any], *, versions: VersionRange | None = None
    ) -> Iterator[Any]:
        """The answer of one broker after the other, as far as they are taken. At least one, or it raises."""
        failures: list[BrokerUnreachable] = []
        asked: list[tuple[str, int]] = []
        has_answer = False
        while (address := self._next_address(asked)) is not None:
            asked.append(address)
            try:
                reply = self._ask(address, api, fields, versions=versions)
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
        if not self._metadata.brokers and all(
            isinstance(one.__cause__, OSError) for one in failures
        ):
            return NoBroker(self._bootstrap, [str(one) for one in failures])
        named = ", ".join(f"{host}:{port}" for host, port in asked)
        return BrokerUnreachable(f"no broker answers at {named}; the last error: {failures[-1]}")

    def _next_address(self, asked: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        with self._lock:
            left = [
                one for one in (*self._metadata.brokers.values(), *self._first) if one not in asked
            ]
            # Those that did not answer last time come last: one that is silent costs a whole timeout.
            return min(left, key=lambda one: self._silent_at.get(one, 0.0), default=None)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata:
        """The topic as it was seen last; if it was not seen yet, it is asked for, with retries for `retry_ms`.

        Raises:
            UnknownTopic: it does not exist.
            BrokerUnreachable: no broker answers.
        """
        known = self._metadata.topic(name)
        return self.retrying(lambda: self.refresh(name)) if known is None else known

    def refresh(self, name: str) -> TopicMetadata:
        """Ask for a topic's metadata now, once. Asking never creates a topic.

        Raises:
            UnknownTopic, BrokerRefused, BrokerUnreachable
        """
        # A topic that was just created is not known to every broker at once.
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
        return self._metadata.learn_topic(topic_metadata_of(name, answer))

    def refresh_all(self) -> dict[str, TopicMetadata]:
        """Ask for the metadata of all topics now, once. Topics that have an error are left out.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        reply = self.request_any(Api.METADATA, metadata_fields(None))
        self._metadata.learn_brokers(reply)
        return {
            str(one.name): self._metadata.learn_topic(topic_metadata_of(str(one.name), one))
            for one in reply.topics
            if not one.error_code or one.error_code == Code.leader_not_available
        }

    def refresh_brokers(self) -> Mapping[int, tuple[str, int]]:
        """Ask which brokers there are now, once: broker id -> address.

        Raises:
            BrokerUnreachable: none answers, or it knows of none yet.
        """
        reply = self.request_any(Api.METADATA, metadata_fields([]))
        if not self.learn_brokers(reply):
            raise BrokerUnreachable("the metadata name no broker; the cluster may be starting")
        return self.brokers

    def learn_brokers(self, reply: Any) -> bool:
        """Take the brokers' addresses from a Metadata reply; False if it names none, which changes nothing."""
        return self._metadata.learn_brokers(reply)

    def learn_broker(self, broker: int, address: Address) -> None:
        """For a caller that knows it from elsewhere than the brokers' metadata."""
        self._metadata.learn_broker(broker, address)

    def coordinator(self, key: str, *, is_transaction: bool) -> int:
        """The broker that coordinates a transactional id, or a group. Asked anew each time, once.

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
        """Do it until it works; what may pass is tried again for `retry_ms`.

        Raises:
            BrokerUnreachable, BrokerRefused: it did not pass.
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

    def _ask(
        self,
        address: tuple[str, int],
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        wait_ms: int = 0,
    ) -> Any:
        with self._shared(address) as connection:
            version = connection.version(api, versions)
            try:
                return connection.request(api, version, fields, wait_ms=wait_ms)
            except BaseException:
                # Also Ctrl-C: its reply would come as that to the next request.
                self._drop(connection)
                raise

    @contextmanager
    def _shared(self, address: tuple[str, int]) -> Iterator[Connection]:
        """The connection that all share who ask this broker now and then; one of them at a time."""
        with self._lock:
            door = self._doors.setdefault(address, _Door())
        with door.lock:
            if door.connection is None or not door.connection.is_fresh:
                if door.connection is not None:
                    self._drop(door.connection)
                door.connection = self._open(address)
            yield door.connection

    def _open(self, address: tuple[str, int]) -> Connection:
        connection = Connection(address, self._links)
        with self._lock:
            if self.is_closed:
                raise ClientClosed("the client is closed")
            self._connections.add(connection)
        try:
            connection.open()
        except BaseException:
            self._drop(connection)
            raise
        return connection

    def _drop(self, connection: Connection) -> None:
        connection.close()
        with self._lock:
            self._connections.discard(connection)


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
