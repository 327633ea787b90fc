"""What a test may do to a simulated disk, and what it may count on it.

A fault is ordered beforehand ("the second sync of a .log fails") and strikes when the call comes; the code under
test cannot tell it from the real thing.
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
# The calls that leave the disk as it is; all others count as changes.
_LOOKS = frozenset({"read"})


class ProcessGone(Exception):
    """The simulated process was killed or lost its power; its handles reach nothing any more."""


@dataclass(slots=True)
class DiskCounters:
    """What the process asked of the disk since it opened it."""

    appends: int = 0
    appended_bytes: int = 0
    reads: int = 0
    # Out of log files by `read`; small files read whole are counted apart.
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
    # How many matching calls still pass before the failure begins, and how many fail then (None: all).
    passes: int
    fails: int | None
    error: type[StorageError]


@dataclass(slots=True)
class DiskFaults:
    """The faults ordered for one disk."""

    # Bytes of file content the disk holds at the most; None for no limit.
    capacity_bytes: int | None = None
    # Told when the power goes during a call, before the call raises ProcessGone.
    on_cut: Callable[[], None] = lambda: None
    # How many calls have failed as ordered.
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
        """Let the nth such call from now raise `error`, and those after it, `times` in all (None: for ever).

        `path` is a shell pattern in which `*` also matches '/', such as `*.log`.
        """
        assert nth >= 1
        self._failures.append(
            _Failure(call=call, path=path, passes=nth - 1, fails=times, error=error)
        )

    def cut_power_after(self, changes: int) -> None:
        """Let that many changing calls succeed; the next one is interrupted and raises ProcessGone.

        Counting up from 0 walks a test through every point at which a power cut may come.
        """
        assert changes >= 0
        self._changes_left = changes

    def heal(self) -> None:
        """Forget every fault ordered, the capacity too."""
        self.capacity_bytes = None
        self._failures.clear()
        self._changes_left = None

    def strike(self, call: DiskCall, path: str) -> None:
        """Raise what was ordered for this call, if anything."""
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

    def is_cut(self, call: DiskCall) -> bool:
        """Whether the power goes during this call."""
        if self._changes_left is None or call in _LOOKS:
            return False
        if self._changes_left:
            self._changes_left -= 1
            return False
        return True
