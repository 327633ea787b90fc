"""Callbacks scheduled on a simulated loop: asyncio's handles that also know their process.

A run creates about a hundred thousand handles, so their constructors skip what asyncio does for its debug mode. They
set the attributes of asyncio's own handles, which `_run` uses.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from respool.sim.runtime.process import Process


class Callback(asyncio.Handle):
    __slots__ = ("process",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args: Any = args
        self._cancelled = False
        self._repr: str | None = None
        self._source_traceback = None
        self.process = process


class Timer(asyncio.TimerHandle):
    __slots__ = ("process",)

    def __init__(  # noqa: PLR0917 - the signature of asyncio's TimerHandle
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args: Any = args
        self._cancelled = False
        self._repr: str | None = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True
        self.process = process

    def cancel(self) -> None:
        # The loop drops the timer when it is due. The references to the callback are released now.
        self._cancelled = True
        self._callback = None
        self._args = None
