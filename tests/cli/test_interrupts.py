import os
import signal

import pytest

from respool.cli.interrupts import noticing_ctrl_c


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
