import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from respool.drivers.thread_offload import ThreadOffload


@pytest.fixture
def offload() -> Iterator[ThreadOffload]:
    threads = ThreadOffload(2)
    yield threads
    threads.close()


class Thing:
    pass


def fail() -> None:
    raise LookupError("on purpose")


def test_work_runs_on_another_thread_and_returns(offload: ThreadOffload) -> None:
    assert asyncio.run(offload.run(threading.get_ident)) != threading.get_ident()


def test_errors_are_raised_where_the_work_is_awaited(offload: ThreadOffload) -> None:
    with pytest.raises(LookupError, match="on purpose"):
        asyncio.run(offload.run(fail))
    assert asyncio.run(offload.run(lambda: "goes on")) == "goes on"


def test_works_under_way_are_bounded_by_the_threads(offload: ThreadOffload) -> None:
    under_way = most = 0
    lock, together = threading.Lock(), threading.Barrier(2)

    def work() -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        # Nobody passes before two are here, so fewer threads than two would hang and break the barrier.
        together.wait(timeout=60)
        with lock:
            under_way -= 1

    async def story() -> None:
        await asyncio.gather(*(offload.run(work) for _ in range(20)))

    asyncio.run(story())
    assert most == 2


def test_close_does_all_that_was_handed_over() -> None:
    offload = ThreadOffload(1)
    gate = threading.Event()
    done: list[int] = []

    async def story() -> None:
        first = asyncio.create_task(offload.run(lambda: gate.wait(timeout=60)))
        rest = [asyncio.create_task(offload.run(lambda: done.append(1))) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        offload.close()
        assert len(done) == 5
        await asyncio.gather(first, *rest)

    asyncio.run(story())


def test_after_close_nothing_is_taken() -> None:
    offload = ThreadOffload(1)
    offload.close()
    offload.close()
    with pytest.raises(RuntimeError):
        asyncio.run(offload.run(fail))


def test_a_cancelled_waiter_does_not_stop_the_work(offload: ThreadOffload) -> None:
    gate, done = threading.Event(), threading.Event()

    def work() -> None:
        assert gate.wait(timeout=60)
        done.set()

    async def story() -> None:
        task = asyncio.create_task(offload.run(work))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await offload.run(lambda: done.wait(timeout=60))

    asyncio.run(story())


def test_work_outlives_a_loop_that_is_closed_meanwhile(offload: ThreadOffload) -> None:
    gate, done = threading.Event(), threading.Event()

    def work() -> None:
        assert gate.wait(timeout=60)
        done.set()

    async def story() -> None:
        task = asyncio.create_task(offload.run(work))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(story())
    gate.set()
    assert done.wait(timeout=60)
    assert asyncio.run(offload.run(lambda: "goes on")) == "goes on"


def test_a_finished_work_holds_nothing() -> None:
    offload = ThreadOffload(1)

    def run(thing: Thing) -> None:
        asyncio.run(offload.run(lambda: str(thing)))

    thing = Thing()
    gone = weakref.ref(thing)
    run(thing)
    del thing
    # The second work starts only after the first has been let go.
    asyncio.run(offload.run(lambda: None))
    gc.collect()
    assert gone() is None
    offload.close()
