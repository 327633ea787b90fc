"""`respool.start_mirror`: a mirror in a background thread, and the handle to it."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Event, Thread
from types import TracebackType
from typing import NoReturn, Self

import uvloop

from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.mirror.clusters import NO_TIMEOUTS
from respool.mirror.mirror_run import MirrorPlan, MirrorRun
from respool.mirror.progress import MirrorEvent, MirrorStatus, OnEvent, Severity
from respool.mirror.target_topics import TopicFilter, parse_patterns
from respool.model.operator_errors import OperatorError, UsageError

POLL_SECONDS = 0.1
_log = logging.getLogger(__name__)

_LOG_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.RECOVERED: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


def start_mirror(
    source: str,
    target: str,
    *,
    topics: str | Iterable[str],
    exclude: str | Iterable[str] = (),
    groups: str | Iterable[str] = (),
    once: bool = False,
    keep_longer: bool = False,
    from_security: Security | None = None,
    to_security: Security | None = None,
    from_timeouts: Mapping[str, int] | None = None,
    to_timeouts: Mapping[str, int] | None = None,
    on_event: OnEvent | None = None,
) -> "Mirror":
    """Copy topics of the source cluster to the target cluster, with the same offsets, in a background thread.

    `source` and `target` are HOST:PORT of one broker or of several, separated by commas; the target is a Respool
    cluster. `topics`, `exclude` and `groups` are regular expressions for whole names. With `groups`, the committed
    offsets of these consumer groups are copied too. With `once` the mirror ends when everything that existed at the
    start is copied; otherwise it follows the source until `Mirror.stop`. With `keep_longer`, records that the source
    deletes stay in the copy. `from_timeouts` and `to_timeouts` may have `connect_timeout_ms`, `request_timeout_ms` and
    `retry_ms`, in place of the mirror's own. `on_event` is called in the mirror's thread; the default writes events to
    the log.

    Raises:
        UsageError: an argument has another type, a pattern is not a regular expression, a timeout has another name,
            or source and target are the same cluster.
        Unreachable: one of the clusters does not answer.
    """
    for name, security in (("from_security", from_security), ("to_security", to_security)):
        if security is not None and not isinstance(security, Security):
            raise UsageError(f"{name}={security!r}: a respool.Security is needed")
    for name, timeouts in (("from_timeouts", from_timeouts), ("to_timeouts", to_timeouts)):
        if timeouts is not None and not isinstance(timeouts, Mapping):
            raise UsageError(f"{name}={timeouts!r}: a dict of names and milliseconds is needed")
    for name, address in (("source", source), ("target", target)):
        if not isinstance(address, str):
            raise UsageError(f"{name}={address!r}: text is needed, HOST:PORT")
    plan = MirrorPlan(
        source=source,
        target=target,
        topics=TopicFilter(
            parse_patterns(_each("topics", topics), option="topics"),
            parse_patterns(_each("exclude", exclude), option="exclude"),
        ),
        groups=parse_patterns(_each("groups", groups), option="groups"),
        once=once,
        keep_longer=keep_longer,
        from_security=from_security or IN_THE_CLEAR,
        to_security=to_security or IN_THE_CLEAR,
        from_timeouts=from_timeouts or NO_TIMEOUTS,
        to_timeouts=to_timeouts or NO_TIMEOUTS,
    )
    return Mirror(MirrorRun(plan, on_event=on_event or _log_event))


class MirrorEnded(OperatorError):
    """The mirror ended before it caught up."""


class Mirror:
    """A running mirror, from `start_mirror`. As a context manager it stops at the end of the block.

    Its methods may be called from any thread.
    """

    def __init__(self, run: MirrorRun) -> None:
        self._run = run
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_loop = Event()
        self._thread = Thread(target=self._run_in_thread, name="respool-mirror", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            # The block's own exception matters more than the mirror's.
            self.request_stop()
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        return self.is_running and self._run.is_paused

    def pause(self) -> None:
        """Fetch no more messages until `unpause`; those in flight to the target are still written.

        Connections stay open, and topics and the offsets of groups are followed as before.
        """
        self._run.pause()

    def unpause(self) -> None:
        """Continue after `pause`, at the ends of the copies."""
        self._run.unpause()

    def status(self) -> MirrorStatus:
        """How far each topic is copied, and its lag. Also available after the end."""
        return self._run.status

    def wait_until_started(self) -> None:
        """Return when the mirror knows which topics to copy, or has ended."""
        while self.is_running and not self._run.has_started.wait(POLL_SECONDS):
            pass

    def wait_until_caught_up(self, timeout_s: float | None = None) -> None:
        """Return when the target has everything that the source had at the time of the call.

        That includes topics created before the call, and the offsets of the groups.

        Raises:
            TimeoutError: it took longer.
            OperatorError: a topic cannot be mirrored, or the mirror has failed or ended.
        """
        self._has_loop.wait()
        assert self._loop is not None
        waiting = self._run.wait_until_caught_up()
        try:
            caught_up = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        except RuntimeError:
            waiting.close()
            self._raise_ended()
        try:
            caught_up.result(timeout_s)
        except FutureTimeout:
            caught_up.cancel()
            raise TimeoutError(f"not caught up within {timeout_s:g} seconds") from None
        except CancelledError:
            self._raise_ended()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the mirror has ended; False if it is still running after `timeout_s`.

        A mirror ends by itself with `once`, when every topic is stopped, and on a failure; otherwise by `stop`.

        Raises:
            OperatorError: topics or groups could not be mirrored, or a cluster does not answer.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def request_stop(self) -> None:
        """Request a stop, and return at once. Safe in signal handlers."""
        self._run.request_stop()

    def stop(self) -> None:
        """Stop the mirror, and wait until it has ended. The next run continues at the ends of the copies.

        Raises:
            OperatorError: as `wait`.
        """
        self.request_stop()
        self.wait()

    def _raise_ended(self) -> NoReturn:
        self.wait()
        raise MirrorEnded("the mirror has ended")

    def _run_in_thread(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                self._has_loop.set()
                runner.run(self._run.run())
        except BaseException as error:  # noqa: BLE001 - it is raised where the mirror is waited for
            self._failure = error
        finally:
            self._has_loop.set()


def _log_event(event: MirrorEvent) -> None:
    text = f"{event.message}; {event.hint}" if event.hint else event.message
    _log.log(_LOG_LEVELS[event.severity], "%s", text)


def _each(name: str, patterns: str | Iterable[str]) -> list[str]:
    """
    Raises:
        UsageError: they are not text.
    """
    if isinstance(patterns, str):
        return [patterns]
    found = list(patterns) if isinstance(patterns, Iterable) else None
    if found is None or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{name}={patterns!r}: a regular expression is needed, or several")
    return found
