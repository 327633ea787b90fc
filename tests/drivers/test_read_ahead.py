"""Hints for the disk are given by another thread, and never waited for."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, current_thread

import pytest

from respool.drivers import read_ahead
from respool.drivers.read_ahead import WAITING_MAX, Descriptor, ReadAhead


@pytest.fixture
def descriptor(tmp_path: Path) -> Descriptor:
    return Descriptor(os.open(tmp_path / "a.log", os.O_RDWR | os.O_CREAT))


def by(note: Callable[[int], None]) -> Callable[[int, int, int, int], None]:
    def hint(_fd: int, position: int, _size: int, _advice: int) -> None:
        note(position)

    return hint


def test_a_disk_that_takes_its_time_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, descriptor: Descriptor
) -> None:
    told: list[int] = []
    goes_on = Event()

    def slowly(position: int) -> None:
        assert goes_on.wait(30)
        told.append(position)

    monkeypatch.setattr(os, "posix_fadvise", by(slowly))
    ahead = ReadAhead()
    for number in range(3 * WAITING_MAX):
        ahead.request(descriptor, number)
    assert told == []
    goes_on.set()
    ahead.drain()
    # One may have been under way; what did not fit was passed over.
    assert told[:WAITING_MAX] == list(range(WAITING_MAX))
    assert len(told) <= WAITING_MAX + 1


def test_the_thread_ends_when_there_is_nothing_to_do_and_another_comes(
    monkeypatch: pytest.MonkeyPatch, descriptor: Descriptor
) -> None:
    threads = []
    monkeypatch.setattr(os, "posix_fadvise", by(lambda _: threads.append(current_thread())))
    monkeypatch.setattr(read_ahead, "IDLE_S", 0.001)
    ahead = ReadAhead()
    for number in range(2):
        ahead.request(descriptor, number)
        ahead.drain()
        threads[-1].join(30)
        assert not threads[-1].is_alive()
    assert threads[0] is not threads[1]


def test_a_hint_that_is_refused_is_only_a_hint(
    monkeypatch: pytest.MonkeyPatch, descriptor: Descriptor
) -> None:
    def refuse(position: int) -> None:
        raise OSError(22, f"not at {position}")

    monkeypatch.setattr(os, "posix_fadvise", by(refuse))
    ahead = ReadAhead()
    ahead.request(descriptor, 0)
    ahead.drain()
    assert ahead._has_thread
