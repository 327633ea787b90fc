"""Callbacks that wait for their turn in a simulated loop: asyncio's handles, that know whose they are.

A run makes a hundred thousand of them, so they are made without what asyncio does for its debug mode. They have the
attributes that asyncio's own have, which `_run` uses.
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

    def __init__(  # noqa: PLR0917 - as asyncio's own
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
        # The loop drops it when its time comes. What it would have called is let go of now.
        self._cancelled = True
        self._callback = None
        self._args = None
