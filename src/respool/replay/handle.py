"""A started replay: its progress, and methods to pause, stop and wait for it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self

from respool.client.kafka.cluster import Cluster
from respool.replay.audit import FAILED, INTERRUPTED, RUNNING, AuditEntry
from respool.replay.copy_plan import Span
from respool.replay.copy_run import Control, RunProgress

Work = Callable[[Control, Callable[[RunProgress], None]], AuditEntry]
# (messages left, messages per second, last timestamp sent) -> seconds
Estimate = Callable[[int, float, int], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """A snapshot of the progress. Counts include earlier runs of the same replay."""

    # How many source offsets are processed, of `total`. Without a key or header filter these are messages.
    done: int
    total: int
    # Messages in the target.
    copied: int
    # The timestamp of the last message sent, in milliseconds; -1 before the first.
    timestamp_ms: int
    # The rate of this run, without the time for which it was paused.
    messages_per_second: float
    # None: unknown.
    seconds_left: float | None


class Replay:
    """A replay that runs in a background thread, or is already done.

    As a context manager it is stopped at the end of the block if it is still running. An exception of the replay is
    raised there, unless the block raised one.
    """

    def __init__(
        self,
        cluster: Cluster,
        entry: AuditEntry,
        spans: Mapping[int, Span],
        *,
        work: Work | None,
        estimate: Estimate | None = None,
        is_resumed: bool = False,
        messages_left: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`work` copies the messages; None: there is nothing left to do. The cluster is closed when the replay ends."""
        self._cluster = cluster
        self._entry = entry
        self._spans = dict(spans)
        self._work = work
        self._estimate = estimate
        self._is_resumed = is_resumed
        self._messages_left = messages_left
        self._clock = clock
        self._control = Control(clock=clock)
        self._ended = Event()
        self._failure: BaseException | None = None
        self._began_at = clock()
        self._first_done: int | None = None
        total = sum(span.messages for span in spans.values())
        self._progress = ReplayProgress(
            done=0 if work is not None else total,
            total=total,
            copied=entry.messages,
            timestamp_ms=-1,
            messages_per_second=0.0,
            seconds_left=None,
        )
        if work is None:
            cluster.close()
            self._ended.set()
            return
        # A daemon thread: an exiting interpreter does not wait for it, and the replay can be resumed.
        Thread(target=self._run, name=f"respool-replay-{entry.id}", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._ended.wait()
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        entry = self._entry
        return f"<Replay {entry.id} of {entry.source} into {entry.target}: {self._state}>"

    @property
    def _state(self) -> str:
        # The entry of a resumed replay has the state in which its last run ended.
        if self.is_running:
            return "paused" if self.is_paused else RUNNING
        return self._entry.state if self._failure is None else FAILED

    @property
    def id(self) -> str:
        """The id with which it can be resumed."""
        return self._entry.id

    @property
    def entry(self) -> AuditEntry:
        """Its audit entry as last recorded by this process."""
        return self._entry

    @property
    def spans(self) -> Mapping[int, Span]:
        """The offset span of each source partition."""
        return self._spans

    @property
    def progress(self) -> ReplayProgress:
        return self._progress

    @property
    def messages_left(self) -> int:
        """For a group: the number of messages that it has not read yet."""
        return self._messages_left

    @property
    def was_done(self) -> bool:
        """True if an earlier run had finished the replay, so that there was nothing left to do."""
        return self._work is None and self._is_resumed

    @property
    def is_resumed(self) -> bool:
        """True if it continues a replay that was started earlier."""
        return self._is_resumed

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def is_paused(self) -> bool:
        return self.is_running and self._control.is_paused

    def pause(self) -> None:
        """Send nothing more until `unpause`. Batches in flight are still acknowledged."""
        self._control.pause()

    def unpause(self) -> None:
        """Continue after `pause`; the pace continues where it stopped."""
        self._control.unpause()

    def stop(self) -> None:
        """Request a stop at a position from which the replay can resume. Returns at once; `wait` waits for the end."""
        self._control.stop()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end without raising its exception. Returns False if it is still running after `seconds`."""
        return self._ended.wait(seconds)

    def wait(self, seconds: float | None = None) -> AuditEntry:
        """Wait for the end. The entry's state is 'done', or 'interrupted' after `stop`.

        Raises:
            ReplayError: it failed; it continues when started again with the same arguments or with resume=ID.
            TimeoutError: it is still running after `seconds`.
        """
        if not self._ended.wait(seconds):
            raise TimeoutError(f"replay {self.id} is still running after {seconds:g} seconds")
        if self._failure is not None:
            raise self._failure
        return self._entry

    @property
    def is_interrupted(self) -> bool:
        """True if it was stopped before its end, and can be resumed."""
        return self._state == INTERRUPTED

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._entry = self._work(self._control, self._on_progress)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it.
            self._failure = error
        finally:
            self._cluster.close()
            self._ended.set()

    def _on_progress(self, progress: RunProgress) -> None:
        if self._first_done is None:
            self._first_done = progress.done
        seconds = max(self._clock() - self._began_at - self._control.paused_seconds, 0.001)
        rate = (progress.done - self._first_done) / seconds
        total, seconds_left = self._progress.total, None
        if self._estimate is not None:
            seconds_left = self._estimate(total - progress.done, rate, progress.timestamp_ms)
        self._progress = ReplayProgress(
            done=progress.done,
            total=total,
            copied=progress.copied,
            timestamp_ms=progress.timestamp_ms,
            messages_per_second=rate,
            seconds_left=seconds_left,
        )
