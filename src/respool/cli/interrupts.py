"""Ctrl-C as a flag instead of an exception, for loops that must not stop half-way through a step."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Says whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.pressed = False


@contextmanager
def noticing_ctrl_c() -> Iterator[CtrlC]:
    """The first Ctrl-C sets the flag; a second one interrupts, for writes blocked on a pipe that nobody reads."""
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
    """Make the running loop call `handle` for each of these signals; restore the previous handlers afterwards.

    A loop that removes its handlers, or is closed, sets Python's defaults instead; uvloop leaves its own installed.
    """
    import asyncio  # Imported late to keep `--help` fast.

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # None: the handler was not set by Python, which cannot restore it.
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def calling_on_signals(
    numbers: Sequence[signal.Signals], handle: Callable[[], None]
) -> Iterator[threading.Event]:
    """Call `handle` and set the event on each of these signals, for a command whose work runs in other threads."""
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
