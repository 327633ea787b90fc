"""Failures that are retried, each reported once and again on recovery; and the timeout of a run with `once`."""

import math

from respool.mirror.progress import MirrorEvent, OnEvent, Severity
from respool.model.operator_errors import OperatorError


class RetryLog:
    """Not a RateLimitedLog: a failure is reported again only for another reason, and its end is an event, too."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._why: dict[str, str] = {}

    def on_failed(self, what: str, error: Exception) -> None:
        hint = error.hint if isinstance(error, OperatorError) else ""
        self.on_failed_because(what, f"{error}; {hint}" if hint else str(error))

    def on_failed_because(self, what: str, why: str) -> None:
        if why != self._why.get(what):
            self._on_event(MirrorEvent(f"{what}: {why}; retrying"))
        self._why[what] = why

    def on_passed(self, what: str) -> None:
        if self._why.pop(what, ""):
            self._on_event(MirrorEvent(f"{what}: recovered", Severity.RECOVERED))

    def why(self, what: str) -> str:
        """The reason of the last failure; empty after recovery."""
        return self._why.get(what, "")

    def all(self) -> set[str]:
        return set(self._why.values())


class StallTimeout:
    """Expires when nothing was copied for `seconds_max`. Pure: the caller brings the time.

    When all records are copied it applies to the groups' offsets, beginning with the first pass that failed.
    """

    def __init__(self, *, seconds_max: float, now_s: float) -> None:
        self._seconds_max = seconds_max
        self._bytes_copied = -1
        self._messages_progressed_s = now_s
        # Infinite until the first pass over the groups has ended: with many groups a pass may take long.
        self._groups_progressed_s = math.inf
        self._groups_failed = False

    def on_copies(self, bytes_copied: int, *, now_s: float) -> None:
        if bytes_copied != self._bytes_copied:
            self._bytes_copied, self._messages_progressed_s = bytes_copied, now_s

    def on_pause(self, *, now_s: float) -> None:
        """A time in which nothing is copied on purpose does not count."""
        self._messages_progressed_s = now_s
        if not math.isinf(self._groups_progressed_s):
            self._groups_progressed_s = now_s

    def on_groups(self, *, has_failed: bool, has_committed: bool, now_s: float) -> None:
        """A pass over the groups has ended; `has_committed`: some offsets were committed at the target."""
        if has_committed or not self._groups_failed:
            self._groups_progressed_s = now_s
        self._groups_failed = has_failed

    def is_over(self, *, waits_for_groups: bool, now_s: float) -> bool:
        since_s = self._messages_progressed_s
        if waits_for_groups:
            since_s = max(since_s, self._groups_progressed_s)
        return now_s - since_s > self._seconds_max
