"""An event loop on simulated time, driven by a seed.

    loop = SimLoop(seed)
    loop.run(main)          # the same seed and the same code: the same run, callback by callback

Time stands still while any callback is ready and then jumps to the next timer. Callbacks of one process run in the
order they were scheduled, as asyncio guarantees. The process that runs next is drawn at random; with `shuffles_tasks`,
so is the process's ready task. There are no sockets and no threads: connections use `network`, and requests for an
executor fail.

Only `_run_once` and a few attributes of asyncio's handles are private; `tests/sim/runtime/test_sim_loop.py` pins those.
"""

import asyncio
import contextvars
import gc
import heapq
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from operator import attrgetter
from typing import Any, Never, Protocol, TypeVar, TypeVarTuple, Unpack

from respool.sim.runtime.handles import Callback, Timer
from respool.sim.runtime.process import Process, process_of
from respool.sim.runtime.simulated_sources import rng_of
from respool.sim.runtime.trace import Trace

T = TypeVar("T")
Args = TypeVarTuple("Args")

# A run that exceeds these limits repeats itself without end.
STEPS_MAX = 2_000_000
STEPS_WITHOUT_TIME_MAX = 200_000
VIRTUAL_SECONDS_MAX = 3600.0 * 24

_number = attrgetter("number")


class SimulationStuck(Exception):
    """Nothing is scheduled any more, or the run repeats itself without end."""


class Network(Protocol):
    """Carries bytes between processes."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Any: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Any, Any]: ...


class OwnedFuture(asyncio.Future[Any]):
    """A future that knows its process, and whether a task awaited it when it failed."""

    __slots__ = ("process", "was_awaited")

    process: Process
    was_awaited: bool

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        self.was_awaited = bool(self._callbacks)
        super().set_exception(exception)


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, seed: int | str = 0, *, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace or Trace()
        self.network: Network | None = None
        # The limit of virtual time.
        self.virtual_s_max = VIRTUAL_SECONDS_MAX
        # Exceptions that nothing caught.
        self.unhandled: list[BaseException] = []
        self._rng = rng_of("loop", seed)
        self._now_s = 0.0
        self._now_us = 0
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._steps_at_this_time = 0
        self._is_over = False
        self._processes: list[Process] = []
        # Invariant: every process with a ready callback is in here.
        self._busy: dict[Process, None] = {}
        self.world = self.new_process("world", host="world")
        self.set_exception_handler(_keep_unhandled)
        self.set_task_factory(_own_task)

    # -- for simulations ---------------------------------------------------------------------------------------------

    def new_process(self, name: str, *, host: str | None = None) -> Process:
        process = Process(self, name=name, host=host or name, number=len(self._processes))
        self._processes.append(process)
        return process

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `main` to its end, and close. Garbage collection is off: it would run at unpredictable times.

        Raises:
            SimulationStuck: `main` will never end.
        """
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            result: T = self.run_until_complete(self.world.spawn(main(), name="main"))
            return result
        finally:
            self._bury()
            self.close()
            if was_collecting:
                gc.enable()

    def unfinished_tasks(self) -> list["asyncio.Task[Any]"]:
        """Return unfinished tasks of living processes, except the calling task."""
        asking = asyncio.current_task(self)
        return [
            task
            for process in self._processes
            if process.is_alive
            for task in process.tasks
            if not task.done() and task is not asking
        ]

    # -- asyncio's loop ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._is_over:
            raise RuntimeError("the simulation is over")
        if context is None:
            context = contextvars.copy_context()
        process = process_of(context) or self.world
        handle = Callback(callback, args, self, context, process)
        if process.is_alive:
            process.ready.append(handle)
            self._busy[process] = None
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        future = OwnedFuture(loop=self)
        future.process = process_of(contextvars.copy_context()) or self.world
        return future

    # There is one thread, so every call comes from it.
    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._is_over:
            raise RuntimeError("the simulation is over")
        if context is None:
            context = contextvars.copy_context()
        process = process_of(context) or self.world
        timer = Timer(when, callback, args, self, context, process)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run ready callbacks and timers until the loop is stopped."""
        trace = self.trace
        while not self._stopping:  # type: ignore[attr-defined]
            process = self._next_process()
            if process is None:
                self._go_to_next_timer()
                continue
            handle = self._take(process)
            if handle._cancelled:  # noqa: SLF001 - faster than a call
                continue
            trace.step(process.number, self._now_us)
            self._steps_at_this_time += 1
            if self._steps_at_this_time > STEPS_WITHOUT_TIME_MAX or trace.steps > STEPS_MAX:
                raise SimulationStuck(
                    f"{self._steps_at_this_time} callbacks at {self._now_s:.3f} s, {trace.steps} in all: {handle}"
                )
            handle._run()  # noqa: SLF001 - as asyncio's own loops do

    def close(self) -> None:
        self._is_over = True
        super().close()

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_options: Any,
    ) -> Any:
        assert self.network is not None, "this simulation has no network"
        return await self.network.listen(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_options: Any,
    ) -> tuple[Any, Any]:
        assert self.network is not None, "this simulation has no network"
        return await self.network.connect(protocol_factory, host, port)

    def run_in_executor(self, _executor: Any, func: Any, *_args: Any) -> Never:  # type: ignore[override]
        raise AssertionError(f"a simulation has no threads to run {func} in")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: there is no executor."""

    # -- scheduling --------------------------------------------------------------------------------------------------

    def _next_process(self) -> Process | None:
        busy = self._busy
        if len(busy) == 1:
            (process,) = busy
            return process if process.ready and not process.is_paused else None
        # Sorted by creation, so that only the draw decides, and not which process had a ready callback first.
        ready = sorted([one for one in busy if one.ready and not one.is_paused], key=_number)
        if len(ready) <= 1:
            return ready[0] if ready else None
        return ready[int(self._rng.random() * len(ready))]

    def _take(self, process: Process) -> asyncio.Handle:
        ready = process.ready
        if len(ready) == 1:
            del self._busy[process]
            return ready.popleft()
        if not process.shuffles_tasks or self._rng.random() < 0.7:
            return ready.popleft()
        # A task may run first unless an earlier callback of it waits; plain callbacks keep their order.
        firsts = {0}
        seen: set[object] = set()
        for index, handle in enumerate(ready):
            owner = _task_of(handle)
            if owner is not None and owner not in seen:
                firsts.add(index)
            seen.add(owner)
        index = self._rng.choice(sorted(firsts))
        handle = ready[index]
        del ready[index]
        return handle

    def _go_to_next_timer(self) -> None:
        timers = self._timers
        while timers and _is_void(timers[0][2]):
            heapq.heappop(timers)
        if not timers:
            raise SimulationStuck(f"nothing is left to happen at {self._now_s:.3f} s")
        when = timers[0][0]
        if when > self.virtual_s_max:
            raise SimulationStuck(f"the end does not come before {self.virtual_s_max:.0f} s")
        self._now_s = now_s = max(self._now_s, when)
        self._now_us = int(now_s * 1e6)
        self._steps_at_this_time = 0
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[2]
            process = timer.process
            if process.is_alive:
                process.ready.append(timer)
                self._busy[process] = None

    # -- shutdown ----------------------------------------------------------------------------------------------------

    def _bury(self) -> None:
        """Close unfinished coroutines, so that the garbage collector reports nothing about them."""
        for process in self._processes:
            process.is_alive = False
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                    coroutine = task.get_coro()
                    # A dead process does no clean-up: errors of clean-up code that awaits or uses its lost disk are
                    # ignored.
                    with suppress(BaseException):
                        coroutine.close()
                elif not task.cancelled():
                    task.exception()
            process.tasks.clear()
            process.ready.clear()
        self._busy.clear()
        self._timers.clear()


def _own_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
) -> "asyncio.Task[Any]":
    assert isinstance(loop, SimLoop)
    context = context or contextvars.copy_context()
    task = asyncio.Task(work, loop=loop, context=context)
    process = process_of(context) or loop.world
    process.own(task)
    return task


def _keep_unhandled(loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    assert isinstance(loop, SimLoop)
    future = about.get("future")
    if isinstance(future, OwnedFuture) and future.process.was_killed and future.was_awaited:
        # The waiter would have received the exception, but died before.
        return
    error = about.get("exception")
    loop.unhandled.append(error or RuntimeError(about.get("message", "an unknown failure")))


def _task_of(handle: asyncio.Handle) -> object | None:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001
    return owner if isinstance(owner, asyncio.Task) else None


def _is_void(timer: Timer) -> bool:
    return timer._cancelled or not timer.process.is_alive  # noqa: SLF001 - faster than a call
