"""A broker in a thread of this process: a `Home` with a loop of its own."""

import asyncio
import logging
import os
import threading
from collections import deque
from concurrent.futures import TimeoutError as NotInTime
from typing import Any
from weakref import WeakSet

from respool.node.log_format import TextFormatter
from respool.testing.engine import Engine
from respool.testing.errors import BrokerFailed, BrokerUnresponsive
from respool.testing.home import ORDER_S_MAX, with_log
from respool.testing.loop import MovableLoop
from respool.testing.plan import Plan

THREAD_NAME = "respool-test-broker"
LOG_LINES_MAX = 2_000
# asyncio tells there of tasks that failed and that nobody asked.
_LOGGERS = ("respool", "asyncio")


class ThreadHome:
    """Whoever calls waits; nothing of the broker runs in the caller's thread."""

    def __init__(self, plan: Plan) -> None:
        # One order at a time: two that change the broker's life must not overlap.
        self._ordering = threading.Lock()
        self._log = _Log()
        self._loop = MovableLoop()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        _homes.add(self)
        self._engine = Engine(plan, self._loop)
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._log)

    def call(self, name: str, /, **arguments: Any) -> Any:
        with self._ordering:
            order = asyncio.run_coroutine_threadsafe(self._engine.do(name, arguments), self._loop)
            try:
                return order.result(ORDER_S_MAX)
            except NotInTime:
                order.cancel()
                raise BrokerUnresponsive(
                    f"{name} was not done within {ORDER_S_MAX:.0f} s{with_log(self.log)}"
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
            self._thread.join(ORDER_S_MAX)

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
    """Keeps the last lines. The levels are the user's: a library does not turn them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TextFormatter())
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "asyncio" and record.threadName != THREAD_NAME:
            # That is the user's own loop.
            return
        self.lines.append(self.format(record))


# A process that is forked off must not keep the broker's sockets open: its port would seem to listen after the broker
# is gone, and clients would not see their connections end.
_homes: WeakSet[ThreadHome] = WeakSet()


def _let_go_of_sockets() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for home in _homes:
        for fd in [key.fd for key in (home.loop.selector.get_map() or {}).values()]:
            # Not closed: Python's objects here know the number, and would close somebody else's file with it.
            os.dup2(nowhere, fd, inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_let_go_of_sockets)
