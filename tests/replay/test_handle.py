"""What the handle to a running replay says about it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from respool.client.kafka.cluster import Cluster
from respool.replay.audit import DONE, INTERRUPTED, RUNNING, AuditEntry
from respool.replay.copy_plan import Span
from respool.replay.copy_run import Control, RunProgress
from respool.replay.errors import ReplayFailed
from respool.replay.handle import Replay

ENTRY = AuditEntry(
    id="aa",
    kind="replay",
    who="me",
    begun_ms=1,
    updated_ms=1,
    source="rides",
    target="copy",
    from_text="earliest",
    to_text="now",
)
WAIT_SECONDS = 60


class Run:
    """A run whose clock and progress the test decides."""

    def __init__(self, *, state: str = RUNNING) -> None:
        self.now = 0.0
        self.failure: Exception | None = None
        self.end = Event()
        self._has_begun = Event()
        self._on_progress: Callable[[RunProgress], None] = lambda progress: None
        self.replay = Replay(
            cast(Cluster, SimpleNamespace(close=lambda: None)),
            replace(ENTRY, state=state),
            {0: Span(0, 100)},
            work=self._work,
            is_resumed=state != RUNNING,
            clock=lambda: self.now,
        )
        assert self._has_begun.wait(WAIT_SECONDS)

    def _work(self, _control: Control, on_progress: Callable[[RunProgress], None]) -> AuditEntry:
        self._on_progress = on_progress
        self._has_begun.set()
        self.end.wait()
        if self.failure is not None:
            raise self.failure
        return replace(ENTRY, state=DONE)

    def at(self, seconds: float, *, done: int) -> None:
        self.now = seconds
        self._on_progress(RunProgress(done=done, copied=done, timestamp_ms=1))


@contextmanager
def run(**given: Any) -> Iterator[Run]:
    one = Run(**given)
    try:
        yield one
    finally:
        one.end.set()
        one.replay.join(WAIT_SECONDS)


def test_pauses_do_not_count_into_the_rate() -> None:
    with run() as one:
        one.at(0, done=0)
        one.at(10, done=20)
        assert one.replay.progress.messages_per_second == 2
        one.replay.pause()
        one.now = 50
        one.replay.pause()
        # The last batches in flight are acknowledged during the pause.
        one.at(110, done=30)
        assert one.replay.progress.messages_per_second == 3
        one.replay.unpause()
        one.replay.unpause()
        one.at(120, done=60)
        assert one.replay.progress.messages_per_second == 3


def test_a_replay_that_was_just_resumed_is_running() -> None:
    with run(state=INTERRUPTED) as one:
        assert repr(one.replay) == "<Replay aa of rides into copy: running>"
        assert not one.replay.is_interrupted
        one.replay.pause()
        assert repr(one.replay).endswith(": paused>")
    assert repr(one.replay).endswith(": done>")


def test_a_replay_that_failed_says_so() -> None:
    with run() as one:
        one.failure = ReplayFailed("no space left")
    assert repr(one.replay).endswith(": failed>")
    with pytest.raises(ReplayFailed):
        one.replay.wait()
