"""Ctrl-C as a question instead of an exception, for loops that must not stop half-way through a step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Whether somebody pressed it."""

    def __init__(self) -> None:
        self.pressed = False


@contextmanager
def noticing_ctrl_c() -> Iterator[CtrlC]:
    """The first Ctrl-C is noted; a second one interrupts, for whoever is stuck writing to a pipe nobody reads."""
    noticed = CtrlC()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        noticed.pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
