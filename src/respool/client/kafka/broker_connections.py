"""The connections of one client: one per broker that its threads share, others that one thread owns. Thread-safe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock

from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.transport import LinkSettings


@dataclass(slots=True)
class _SharedConnection:
    """The shared connection to one address."""

    lock: Lock = field(default_factory=Lock)
    connection: Connection | None = None


class BrokerConnections:
    def __init__(self, settings: Callable[[], LinkSettings]) -> None:
        """`settings` is called for each new connection."""
        self._settings = settings
        self._closed = Event()
        # Guards the fields below. Never held while waiting for a broker.
        self._lock = Lock()
        self._shared_connections: dict[tuple[str, int], _SharedConnection] = {}
        self._connections: set[Connection] = set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def sleep(self, seconds: float) -> None:
        """
        Raises:
            ClientClosed: the connections were closed in the meantime.
        """
        if self._closed.wait(seconds):
            raise ClientClosed("the client is closed")

    @contextmanager
    def shared(self, address: tuple[str, int]) -> Iterator[Connection]:
        """The shared connection to this broker, for one thread at a time."""
        with self._lock:
            shared = self._shared_connections.setdefault(address, _SharedConnection())
        with shared.lock:
            if shared.connection is None or not shared.connection.is_fresh:
                if shared.connection is not None:
                    self.drop(shared.connection)
                shared.connection = self.open(address)
            yield shared.connection

    def open(self, address: tuple[str, int]) -> Connection:
        """Open a new connection for the caller alone, who must `drop` it."""
        connection = Connection(address, self._settings())
        with self._lock:
            if self.is_closed:
                raise ClientClosed("the client is closed")
            self._connections.add(connection)
        try:
            connection.open()
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def drop(self, connection: Connection) -> None:
        """Close a connection. Only the thread that uses it may call this."""
        connection.close()
        with self._lock:
            self._connections.discard(connection)

    def interrupt(self) -> None:
        """Wake every thread that waits for a broker; it raises `ClientClosed`. `close` must still be called."""
        self._closed.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.interrupt()

    def close(self) -> None:
        """Close the shared connections, and interrupt threads that still use others."""
        self.interrupt()
        with self._lock:
            all_shared = list(self._shared_connections.values())
        for shared in all_shared:
            with shared.lock:
                if shared.connection is not None:
                    self.drop(shared.connection)
        with self._lock:
            self._shared_connections.clear()
