import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from respool.cli.interrupts import handling_signals, noticing_ctrl_c


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_ctrl_c_is_noted_and_the_step_goes_on() -> None:
    with noticing_ctrl_c() as ctrl_c:
        assert not ctrl_c.pressed
        press_ctrl_c()
        assert ctrl_c.pressed


def test_the_second_ctrl_c_interrupts() -> None:
    with noticing_ctrl_c():
        press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()


def test_afterwards_ctrl_c_means_what_it_meant_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noticing_ctrl_c():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_after_a_loop_that_handled_ctrl_c_the_handler_of_before_is_back(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    def theirs(*_: object) -> None: ...

    async def work() -> None:
        pressed = asyncio.Event()
        with handling_signals([signal.SIGINT, signal.SIGTERM], pressed.set):
            press_ctrl_c()
            await pressed.wait()
        assert signal.getsignal(signal.SIGINT) is theirs

    # As Spark does it for its session.
    before = signal.signal(signal.SIGINT, theirs)
    try:
        run(work())
        assert signal.getsignal(signal.SIGINT) is theirs
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
