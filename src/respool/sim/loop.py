"""An event loop on simulated time, driven by a seed.

    loop = SimLoop(seed)
    loop.run(main)          # the same seed and the same code: the same run, callback by callback

Time stands still while anything is ready and then jumps to the next timer. Callbacks of one process run in the order
they were scheduled, as asyncio promises; which process runs next is left to the dice, and so is, on request, which of
a process's ready tasks does. There are no sockets and no threads: connections go over `network`, and who asks for an
executor is told that there is none.

Only `_run_once` and a few attributes of asyncio's handles are private. `tests/sim/test_loop.py` pins what is used.
"""

import asyncio
import contextvars
import gc
import heapq
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Never, Protocol, TypeVar, TypeVarTuple, Unpack

from respool.sim.dice import dice_of
from respool.sim.process import Process, process_of
from respool.sim.trace import Trace

T = TypeVar("T")
Args = TypeVarTuple("Args")

# A run that takes longer is stuck in a circle.
STEPS_MAX = 2_000_000
STEPS_WITHOUT_TIME_MAX = 200_000
VIRTUAL_SECONDS_MAX = 3600.0 * 24


class SimulationStuck(Exception):
    """Nothing will ever happen again, or the same for ever."""


class Network(Protocol):
    """Who carries bytes between processes."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Any: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Any, Any]: ...


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, seed: int | str = 0, *, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace or Trace()
        self.network: Network | None = None
        # How far time may go.
        self.virtual_s_max = VIRTUAL_SECONDS_MAX
        # What nobody caught.
        self.unhandled: list[BaseException] = []
        self._dice = dice_of("loop", seed)
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._steps_at_this_time = 0
        self._processes: list[Process] = []
        self.world = self.new_process("world", host="world")
        self.set_exception_handler(_keep_unhandled)
        self.set_task_factory(_own_task)

    # -- what simulations do with it ---------------------------------------------------------------------------------

    def new_process(self, name: str, *, host: str | None = None) -> Process:
        process = Process(self, name=name, host=host or name, number=len(self._processes))
        self._processes.append(process)
        return process

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run to the end of `main`, and close. Garbage is not collected meanwhile: it would come at any time.

        Raises:
            SimulationStuck: the end will never come.
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
        """Tasks of living processes that are not done, other than the one that asks."""
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
        if self.is_closed():
            raise RuntimeError("the simulation is over")
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    # There is one thread, so every call is from it.
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
        if self.is_closed():
            raise RuntimeError("the simulation is over")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _run_once(self) -> None:
        while True:
            process = self._next_process()
            if process is not None:
                break
            self._go_to_next_timer()
        handle = self._take(process)
        if handle.cancelled():
            return
        self.trace.step(process.number, int(self._now_s * 1e6))
        self._steps_at_this_time += 1
        if self._steps_at_this_time > STEPS_WITHOUT_TIME_MAX or self.trace.steps > STEPS_MAX:
            raise SimulationStuck(
                f"{self._steps_at_this_time} callbacks at {self._now_s:.3f} s, {self.trace.steps} in all: {handle}"
            )
        handle._run()  # noqa: SLF001 - what asyncio's own loops do

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
        """There is none."""

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = process_of(handle._context) or self.world  # type: ignore[attr-defined]  # noqa: SLF001
        if process.is_alive:
            process.ready.append(handle)

    def _next_process(self) -> Process | None:
        ready = [one for one in self._processes if one.ready and not one.is_paused]
        if len(ready) <= 1:
            return ready[0] if ready else None
        return ready[int(self._dice.random() * len(ready))]

    def _take(self, process: Process) -> asyncio.Handle:
        ready = process.ready
        if not process.shuffles_tasks or len(ready) == 1 or self._dice.random() < 0.7:
            return ready.popleft()
        # Any task may go first that has no earlier callback waiting; plain callbacks keep their order.
        firsts = {0}
        seen: set[object] = set()
        for index, handle in enumerate(ready):
            owner = _task_of(handle)
            if owner is not None and owner not in seen:
                firsts.add(index)
            seen.add(owner)
        index = self._dice.choice(sorted(firsts))
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
        self._now_s = max(self._now_s, when)
        self._steps_at_this_time = 0
        while timers and timers[0][0] <= self._now_s:
            self._enqueue(heapq.heappop(timers)[2])

    # -- the end -----------------------------------------------------------------------------------------------------

    def _bury(self) -> None:
        """End what was left in the middle, so that nothing is heard of it when it is collected."""
        for process in self._processes:
            process.is_alive = False
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                    coroutine = task.get_coro()
                    # Clean-up that wants to await, or finds its disk gone, is what a dead process does not do.
                    with suppress(BaseException):
                        coroutine.close()
                elif not task.cancelled():
                    task.exception()
            process.tasks.clear()
            process.ready.clear()
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
    error = about.get("exception")
    loop.unhandled.append(error or RuntimeError(about.get("message", "an unknown failure")))


def _task_of(handle: asyncio.Handle) -> object | None:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001
    return owner if isinstance(owner, asyncio.Task) else None


def _is_void(timer: asyncio.TimerHandle) -> bool:
    if timer.cancelled():
        return True
    process = process_of(timer._context)  # type: ignore[attr-defined]  # noqa: SLF001
    return process is not None and not process.is_alive
