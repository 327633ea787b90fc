"""A real broker for a test: `with Broker() as broker:`; any Kafka client can connect to `broker.bootstrap`."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Literal, Self
from weakref import WeakSet

from respool.testing.backend import Backend, with_log
from respool.testing.broker_clock import BrokerClock
from respool.testing.broker_plan import (
    HOST,
    TestBrokerPlan,
    settings_from,
    topic_settings,
    topics_from,
)
from respool.testing.errors import (
    BrokerClosed,
    BrokerDidNotStart,
    BrokerForked,
    BrokerNotRunning,
    BrokerRunning,
)
from respool.testing.faults import Faults

Mode = Literal["thread", "process"]


class Broker:
    """One broker, which runs from the start of its `with` block (or `start`) to its end (or `close`)."""

    def __init__(
        self,
        *,
        topics: Mapping[str, int | Mapping[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
        mode: Mode = "thread",
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
    ) -> None:
        """Configure the broker without starting it.

        `topics`: by name, the partition count, or a mapping with `partitions` and topic configs under Kafka's names.
        `settings`: as in `respool serve`'s file, such as `{"num_partitions": 3, "topic": {"retention.ms": "1d"}}`.
        `mode`: "thread" for a thread of this process, "process" for a process of its own.
        `data`: a folder to use and keep; by default a temporary folder, which is removed at the end.
        `port`: the port to listen on; by default a free one.
        """
        if mode not in ("thread", "process"):
            raise ValueError(f"mode={mode!r} is neither 'thread' nor 'process'")
        self._topics = topics_from(topics or {})
        self._settings = settings_from(settings or {})
        self._mode = mode
        self._given_data = None if data is None else os.path.abspath(os.fspath(data))
        self._temporary: str | None = None
        self._wanted_port = port
        self._port: int | None = None
        self._backend: Backend | None = None
        self._pid = os.getpid()
        self._is_up = False
        self._is_closed = False
        self._topic_numbers = count(1)
        # The time of the broker, which tests can advance.
        self.clock = BrokerClock(self._call)
        # Injects faults.
        self.faults = Faults(self._call)

    # Start and stop.

    def start(self) -> Self:
        """Start the broker, or start it again after `stop` or `crash`, on the same port and data.

        Raises:
            BrokerRunning: it is running already.
            PortTaken: another process listens on the port.
            BrokerDidNotStart: any other failure; the message contains the end of the broker's log.
        """
        self._check_mine()
        if self._is_up:
            raise BrokerRunning(
                f"this broker runs already, at {self.bootstrap}; for another one make another Broker()"
            )
        if self._backend is None:
            self._pid = os.getpid()
            self._backend = self._new_backend()
            _open.add(self)
        try:
            self._port = self._backend.call("start")
        except BaseException as error:
            if self._port is not None:
                # It was started before, and its data may be of interest.
                raise
            log = self._backend.log
            self._dispose()
            if isinstance(error, BrokerDidNotStart):
                raise type(error)(f"{error}{with_log(log)}") from error
            raise
        self._is_up = True
        return self

    def stop(self) -> None:
        """Stop cleanly, as `respool serve` does on SIGTERM. Data, port, time and faults are kept for the next start."""
        self._call("stop")
        self._is_up = False

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def crash(self, *, lose_unsynced: bool = True) -> int:
        """Crash the broker, and return how many bytes of record data were lost.

        As in a power cut, unsynced data is lost. With `lose_unsynced=False` all written data is kept, as after a
        `kill -9`.
        """
        lost = int(self._call("crash", lose_unsynced=lose_unsynced))
        self._is_up = False
        return lost

    def close(self) -> None:
        """Stop the broker for good, and remove its data unless a folder was given. Further calls do nothing.

        Raises:
            BrokerFailed: it had stopped by itself.
        """
        if self._is_closed or os.getpid() != self._pid:
            # In a forked process the broker belongs to the parent process.
            return
        self._dispose(and_raise=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        # The test must report its first exception.
        with suppress(Exception):
            self.close()

    # For clients and tests.

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients. It stays the same over restarts, and forked processes know it too."""
        if self._port is None:
            raise BrokerNotRunning("the broker was not started yet, so it has no address")
        return f"{HOST}:{self._port}"

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def metrics_url(self) -> str | None:
        """The URL of its metrics, with `settings={"metrics_listen": "127.0.0.1:0"}`; otherwise None."""
        address = self._call("metrics_address")
        return None if address is None else f"http://{address[0]}:{address[1]}/metrics"

    @property
    def is_running(self) -> bool:
        return self._is_up

    @property
    def data(self) -> str:
        """The data folder."""
        folder = self._given_data or self._temporary
        if folder is None:
            raise BrokerNotRunning("the broker was not started yet, so it has no data folder")
        return folder

    @property
    def log(self) -> str:
        """Its log: in its own process from level INFO, in a thread as far as the test's logging setup enables it."""
        return "" if self._backend is None else self._backend.log

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> str:
        """Create a topic and return its name. Configs have Kafka's names, with `_` or `.`: `retention_ms=1000`."""
        plain = {key.replace("_", "."): value for key, value in settings.items()}
        self._call("create_topic", name=name, partitions=partitions, settings=topic_settings(plain))
        return name

    def new_topic(self, name: str = "topic", partitions: int = 1, **settings: Any) -> str:
        """Create a topic with a unique name, for tests that share a broker; return the name."""
        return self.create_topic(
            f"{name}-{next(self._topic_numbers)}", partitions=partitions, **settings
        )

    def __repr__(self) -> str:
        where = "" if self._port is None else f" at {self.bootstrap}"
        state = "closed" if self._is_closed else "running" if self._is_up else "down"
        return f"<respool.testing.Broker{where}, {state}, mode={self._mode!r}>"

    # Internals.

    def _call(self, name: str, /, **arguments: Any) -> Any:
        self._check_mine()
        if self._backend is None:
            raise BrokerNotRunning("the broker was not started: use it inside its `with` block")
        return self._backend.call(name, **arguments)

    def _check_mine(self) -> None:
        if self._is_closed:
            raise BrokerClosed("this broker is closed; make another Broker()")
        if self._backend is not None and os.getpid() != self._pid:
            raise BrokerForked(
                f"the broker belongs to process {self._pid}, from which this one ({os.getpid()}) was forked off; "
                "here only its address is of use"
            )

    def _new_backend(self) -> Backend:
        if self._given_data is None:
            self._temporary = tempfile.mkdtemp(prefix="respool-test-")
        plan = TestBrokerPlan(
            data=self.data,
            port=self._wanted_port,
            settings=self._settings,
            topics=self._topics,
            waits_for_disk=self._given_data is not None,
        )
        try:
            # Imported here, because the thread backend imports the whole broker.
            if self._mode == "thread":
                from respool.testing.thread_backend import ThreadBackend

                return ThreadBackend(plan)
            from respool.testing.process_backend import ProcessBackend

            return ProcessBackend(plan)
        except BaseException:
            self._remove_temporary()
            raise

    def _dispose(self, *, and_raise: bool = False) -> None:
        self._is_closed = True
        self._is_up = False
        _open.discard(self)
        try:
            if self._backend is not None:
                self._backend.close()
        except Exception:
            if and_raise:
                raise
        finally:
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


# Brokers that were not closed are closed when the process ends.
_open: WeakSet[Broker] = WeakSet()


@atexit.register
def _close_all() -> None:
    for broker in tuple(_open):
        with suppress(Exception):
            broker.close()
