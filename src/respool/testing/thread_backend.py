"""A broker in a thread of this process: a `Backend` with an event loop of its own."""

import asyncio
import logging
import os
import threading
from collections import deque
from concurrent.futures import TimeoutError as NotInTime
from typing import Any
from weakref import WeakSet

from respool.node.log_format import TextFormatter
from respool.testing.backend import COMMAND_S_MAX, with_log
from respool.testing.broker_plan import TestBrokerPlan
from respool.testing.broker_runner import BrokerRunner
from respool.testing.errors import BrokerFailed, BrokerUnresponsive
from respool.testing.movable_loop import MovableLoop

THREAD_NAME = "respool-test-broker"
LOG_LINES_MAX = 2_000
# asyncio logs failures of tasks that no code awaits.
_LOGGERS = ("respool", "asyncio")


class ThreadBackend:
    """A `Backend`. Callers wait; no code of the broker runs in their threads."""

    def __init__(self, plan: TestBrokerPlan) -> None:
        # One command at a time: starting, stopping and crashing must not overlap.
        self._command_lock = threading.Lock()
        self._log = _Log()
        self._loop = MovableLoop()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        _backends.add(self)
        self._runner = BrokerRunner(plan, self._loop)
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._log)

    def call(self, name: str, /, **arguments: Any) -> Any:
        with self._command_lock:
            command = asyncio.run_coroutine_threadsafe(self._runner.do(name, arguments), self._loop)
            try:
                return command.result(COMMAND_S_MAX)
            except NotInTime:
                command.cancel()
                raise BrokerUnresponsive(
                    f"{name} was not done within {COMMAND_S_MAX:.0f} s{with_log(self.log)}"
                ) from None

    def close(self) -> None:
        try:
            self.call("close")
        except BrokerFailed as error:
            raise BrokerFailed(f"{error}{with_log(self.log)}") from error
        finally:
            for name in _LOGGERS:
                logging.getLogger(name).removeHandler(self._log)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(COMMAND_S_MAX)

    @property
    def log(self) -> str:
        return "\n".join(self._log.lines)

    @property
    def loop(self) -> MovableLoop:
        return self._loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()


class _Log(logging.Handler):
    """Keeps the last log lines. Log levels are up to the user: a library does not change them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TextFormatter())
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "asyncio" and record.threadName != THREAD_NAME:
            # From the user's own event loop.
            return
        self.lines.append(self.format(record))


# A forked process must not keep the broker's sockets open: otherwise its port would still seem to listen after the
# broker has ended, and clients would not notice that their connections are closed.
_backends: WeakSet[ThreadBackend] = WeakSet()


def _release_sockets() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for backend in _backends:
        for fd in [key.fd for key in (backend.loop.selector.get_map() or {}).values()]:
            # Replaced, not closed: Python's socket objects keep the number, and would later close another file with
            # that number.
            os.dup2(nowhere, fd, inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_release_sockets)
