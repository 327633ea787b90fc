"""The faults of a simulated disk, and its counters.

A test schedules a fault ("the second sync of a .log fails"), which occurs at that call; the code under test cannot tell
it from a real fault.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from respool.model.errors import DiskFailed, StorageError

DiskCall = Literal[
    "open",
    "append",
    "read",
    "sync",
    "truncate",
    "map",
    "resize",
    "replace",
    "rename",
    "delete",
    "make_folder",
    "sync_folder",
]
# Calls that only read; all others count as changes.
_LOOKS = frozenset({"read"})


class ProcessGone(Exception):
    """The simulated process was killed or lost its power; its open files are unusable."""


@dataclass(slots=True)
class DiskCounters:
    """Counters of the calls since the process opened the disk."""

    appends: int = 0
    appended_bytes: int = 0
    reads: int = 0
    # Read from log files by `read`; small files that are read whole are counted separately.
    bytes_read: int = 0
    small_files_read: int = 0
    small_file_bytes_read: int = 0
    syncs: int = 0
    map_syncs: int = 0
    folder_syncs: int = 0
    replaced_files: int = 0


@dataclass(slots=True)
class _Failure:
    call: DiskCall
    path: str
    # How many matching calls still succeed before the failure begins, and how many then fail (None: all).
    passes: int
    fails: int | None
    error: type[StorageError]


@dataclass(slots=True)
class DiskFaults:
    """The faults scheduled for one disk."""

    # The bytes of file content that the disk can hold; None: no limit.
    capacity_bytes: int | None = None
    # Called when the power fails during a call, before the call raises ProcessGone.
    on_cut: Callable[[], None] = lambda: None
    # How many calls have failed because of scheduled faults.
    failures_struck: int = 0
    _failures: list[_Failure] = field(default_factory=list)
    _changes_left: int | None = None

    def fail(
        self,
        call: DiskCall,
        *,
        nth: int = 1,
        times: int | None = 1,
        path: str = "*",
        error: type[StorageError] = DiskFailed,
    ) -> None:
        """Make `times` matching calls raise `error` (None: all), beginning with the nth from now.

        `path` is a shell pattern in which `*` also matches '/', such as `*.log`.
        """
        assert nth >= 1
        self._failures.append(
            _Failure(call=call, path=path, passes=nth - 1, fails=times, error=error)
        )

    def cut_power_after(self, changes: int) -> None:
        """Let that many changing calls succeed; the next one is interrupted and raises ProcessGone.

        A test that counts up from 0 covers every point at which the power may fail.
        """
        assert changes >= 0
        self._changes_left = changes

    def heal(self) -> None:
        """Cancel all scheduled faults, and the capacity limit."""
        self.capacity_bytes = None
        self._failures.clear()
        self._changes_left = None

    def strike(self, call: DiskCall, path: str) -> None:
        """Raise the error that is scheduled for this call, if any."""
        failed: type[StorageError] | None = None
        for failure in self._failures:
            if failure.call != call or not fnmatchcase(path, failure.path):
                continue
            if failure.passes:
                failure.passes -= 1
            elif failure.fails is None:
                failed = failure.error
            elif failure.fails:
                failure.fails -= 1
                failed = failure.error
        if failed is not None:
            self.failures_struck += 1
            raise failed(f"{call} {path}: simulated I/O error")

    def power_fails_at(self, call: DiskCall) -> bool:
        """True if the power fails during this call."""
        if self._changes_left is None or call in _LOOKS:
            return False
        if self._changes_left:
            self._changes_left -= 1
            return False
        return True
