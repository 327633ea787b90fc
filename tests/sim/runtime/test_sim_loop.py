"""The simulated loop keeps asyncio's promises, and a seed decides the rest."""

import asyncio
import gc
import os
import subprocess
import sys

import pytest

from respool.sim.runtime.process import current_process
from respool.sim.runtime.sim_loop import SimLoop, SimulationStuck
from respool.sim.runtime.trace import Trace


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimLoop(1)

    async def story() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.run(story) == 3600


def test_callbacks_of_one_process_run_in_the_order_they_were_scheduled() -> None:
    for seed in range(20):
        loop = SimLoop(seed)
        ran: list[int] = []

        async def story(loop: SimLoop = loop, ran: list[int] = ran) -> None:
            for number in range(10):
                loop.call_soon(ran.append, number)
            for number in range(10, 20):
                loop.call_later(0.001, ran.append, number)
            await asyncio.sleep(1)

        loop.run(story)
        assert ran == list(range(20))


def order_of_processes(seed: int) -> list[str]:
    loop = SimLoop(seed)
    ran: list[str] = []

    async def work() -> None:
        for _ in range(5):
            ran.append(current_process().name)
            await asyncio.sleep(0)

    async def story() -> None:
        tasks = [loop.new_process(name).spawn(work()) for name in "abc"]
        await asyncio.gather(*tasks)

    loop.run(story)
    return ran


def test_which_process_runs_next_is_decided_by_the_seed() -> None:
    assert order_of_processes(1) == order_of_processes(1)
    assert len({tuple(order_of_processes(seed)) for seed in range(10)}) > 5


def test_tasks_overtake_each_other_only_where_that_is_asked_for() -> None:
    def order(seed: int, *, shuffles: bool) -> list[int]:
        loop = SimLoop(seed)
        ran: list[int] = []

        async def work(number: int) -> None:
            ran.append(number)

        async def story() -> None:
            process = loop.new_process("p")
            process.shuffles_tasks = shuffles
            for number in range(6):
                process.spawn(work(number))
                loop.call_soon(ran.append, 100 + number, context=process.context)
            await asyncio.sleep(1)

        loop.run(story)
        assert [one for one in ran if one >= 100] == list(range(100, 106))
        return [one for one in ran if one < 100]

    assert all(order(seed, shuffles=False) == list(range(6)) for seed in range(10))
    assert any(order(seed, shuffles=True) != list(range(6)) for seed in range(10))


def test_a_paused_process_stands_still_and_goes_on_where_it_was() -> None:
    loop = SimLoop(1)
    beats: list[float] = []

    async def beat() -> None:
        for _ in range(5):
            await asyncio.sleep(1)
            beats.append(loop.time())

    async def story() -> None:
        process = loop.new_process("p")
        task = process.spawn(beat())
        await asyncio.sleep(2.5)
        process.is_paused = True
        await asyncio.sleep(10)
        process.is_paused = False
        await task

    loop.run(story)
    assert beats == [1, 2, 12.5, 13.5, 14.5]


def test_a_killed_process_does_nothing_more_not_even_clean_up() -> None:
    loop = SimLoop(1)
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            done.append("cleaned up")

    async def story() -> None:
        process = loop.new_process("p")
        process.spawn(work())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(100)
        assert done == []
        assert loop.unfinished_tasks() == []

    loop.run(story)
    assert loop.unhandled == []


@pytest.mark.parametrize(
    ("dies", "waits", "is_told"), [(True, True, False), (True, False, True), (False, False, True)]
)
def test_a_failure_that_nobody_hears_counts_unless_who_waits_for_it_dies(
    dies: bool, waits: bool, is_told: bool
) -> None:
    """Seeds 200304 and 200779: power was cut between a failure and the turn of whoever waited for it."""
    loop = SimLoop(1)
    promised: list[asyncio.Future[None]] = []

    async def work() -> None:
        promised.append(loop.create_future())
        await (promised[0] if waits else asyncio.sleep(100))

    async def story() -> None:
        process = loop.new_process("p")
        process.spawn(work())
        await asyncio.sleep(1)
        promised.pop().set_exception(ValueError("unheard"))
        if dies:
            process.kill()
        await asyncio.sleep(200)

    loop.run(story)
    gc.collect()
    assert [str(one) for one in loop.unhandled] == (["unheard"] if is_told else [])


def test_what_is_left_undone_is_known() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        task = asyncio.ensure_future(asyncio.sleep(100))
        await asyncio.sleep(1)
        assert loop.unfinished_tasks() == [task]

    loop.run(story)


def test_an_exception_that_nobody_catches_is_kept() -> None:
    loop = SimLoop(1)

    def fail() -> None:
        raise ValueError("nobody listens")

    async def story() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(1)

    loop.run(story)
    assert [str(one) for one in loop.unhandled] == ["nobody listens"]


def test_a_run_that_can_never_end_is_stopped() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    for story in (wait_for_ever, spin):
        with pytest.raises(SimulationStuck):
            SimLoop(1).run(story)


def test_callbacks_and_timers_have_all_that_asyncios_own_have() -> None:
    """They are made without asking asyncio, so a version that wants more of them must be noticed."""
    loop = SimLoop(1)

    async def story() -> None:
        callback, timer = loop.call_soon(print), loop.call_later(5, print)
        wanted = {*asyncio.Handle.__slots__, *asyncio.TimerHandle.__slots__}
        assert all(hasattr(timer, one) for one in wanted)
        assert all(hasattr(callback, one) for one in asyncio.Handle.__slots__)
        assert timer.when() == 5
        for one in (callback, timer):
            one.cancel()
            assert one.cancelled()
            assert "cancelled" in repr(one)

    loop.run(story)


def test_there_are_no_threads() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(AssertionError, match="no threads"):
        loop.run(story)


def test_a_trace_tells_runs_apart() -> None:
    one, other = Trace(), Trace()
    for trace in (one, other):
        trace.step(1, 1000)
        trace.note(1.0, "the same")
    assert one.digest == other.digest
    one.note(2.0, "this")
    other.note(2.0, "that")
    assert one.digest != other.digest


DIGEST = """
from respool.sim.run import simulate
print(*(simulate(seed, broker_count=count).digest for seed, count in ((15, 1), (8, 3))))
"""


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Whatever the addresses and the hashes of strings are."""
    from respool.sim.run import simulate

    runs = ((15, 1), (8, 3))
    here = [simulate(seed, broker_count=count).digest for seed, count in runs]
    again = [simulate(seed, broker_count=count).digest for seed, count in runs]
    assert here == again
    assert digests("1") == digests("2") == " ".join(map(str, here)) + "\n"
