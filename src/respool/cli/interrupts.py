"""Ctrl-C as a question instead of an exception, for loops that must not stop half-way through a step."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
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


@contextmanager
def handling_signals(
    numbers: Sequence[signal.Signals], handle: Callable[[], None]
) -> Iterator[None]:
    """The running loop calls `handle` for each of these signals; afterwards the previous handlers are back.

    A loop that removes its handlers, or is closed, sets Python's defaults instead; uvloop leaves its own in place.
    """
    import asyncio  # `--help` must not wait for it.

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # None: it was not set by Python, which cannot set it again.
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def calling_on_signals(
    numbers: Sequence[signal.Signals], handle: Callable[[], None]
) -> Iterator[threading.Event]:
    """Call `handle` for each of these signals, in a command whose work is in other threads; the event is set too."""
    caught = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        caught.set()
        handle()

    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
