"""The records of a share partition that are not finished, and those between them, as runs of equal state. Pure.

```
 start                                             end
   | held by a | accepted        | available | held by b | never acquired ...
```
Runs have no gaps. Adjacent runs of equal state are one, finished ones whatever their delivery counts. So the memory
depends on what is unfinished, not on how far apart `start` and `end` are.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from respool.coordination.share.share_state import FINISHED_STATES, NOT_DELAYED
from respool.model.ids import Offset

# Acquired by a member: the one state that is never stored.
HELD = 1


class Lock:
    """One acquisition: its records belong to the member until its end."""

    __slots__ = ("ends_at_ms", "member")

    def __init__(self, member: str, ends_at_ms: int) -> None:
        self.member = member
        self.ends_at_ms = ends_at_ms


class RecordRun(NamedTuple):
    """Consecutive records of equal state."""

    last: int
    state: int
    delivery_count: int = 0
    # Of held records. Of available ones: the lock that ended last, if nobody has acquired them since.
    lock: Lock | None = None
    # Of available records: when they may be acquired again.
    due_at_ms: int = NOT_DELAYED
    # Of archiving records: a member rejected them. False: they were delivered too often.
    is_rejected: bool = False

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED_STATES


Change = Callable[[RecordRun], RecordRun]


class InFlight:
    def __init__(self, start: Offset) -> None:
        # The first record that is not finished.
        self.start = start
        # After the last record that ever was acquired.
        self.end = start
        self.unfinished = 0
        self.held = 0
        self._firsts: list[int] = []
        self._runs: list[RecordRun] = []

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[tuple[int, RecordRun]]:
        """First offset and run, in order. Nothing may change meanwhile."""
        return zip(self._firsts, self._runs, strict=True)

    def between(self, first: int, last: int) -> list[tuple[int, int, RecordRun]]:
        """First and last offset of each part of a run from `first` to `last`; all within start and end."""
        if first > last:
            return []
        firsts, runs = self._firsts, self._runs
        index = bisect_right(firsts, first) - 1
        run = runs[index]
        if run.last >= last:
            return [(first, last, run)]
        found = [(first, run.last, run)]
        index += 1
        while index < len(runs) and firsts[index] <= last:
            run = runs[index]
            found.append((firsts[index], min(run.last, last), run))
            index += 1
        return found

    def run_at(self, offset: int) -> RecordRun:
        return self._runs[bisect_right(self._firsts, offset) - 1]

    def first_where(self, is_wanted: Callable[[RecordRun], bool], *, at_least: int) -> int | None:
        """The lowest offset from `at_least` on whose run is wanted."""
        index = max(0, bisect_right(self._firsts, at_least) - 1)
        runs = self._runs
        for place in range(index, len(runs)):
            run = runs[place]
            if run.last >= at_least and is_wanted(run):
                return max(self._firsts[place], at_least)
        return None

    def extend(self, run: RecordRun) -> None:
        """Add records at the end."""
        assert run.last >= self.end, f"a run that ends at {run.last}, before {self.end}"
        self._count(self.end, run, 1)
        if self._runs and _is_joined(self._runs[-1], run):
            self._runs[-1] = _join(self._runs[-1], run)
        else:
            self._firsts.append(self.end)
            self._runs.append(run)
        self.end = Offset(run.last + 1)

    def change(self, first: int, last: int, change: Change) -> None:
        """Replace each part of a run from `first` to `last`, all within start and end."""
        if first > last:
            return
        assert self.start <= first, f"{first} is below the start {self.start}"
        assert last < self.end, f"{last} is not below the end {self.end}"
        low = bisect_right(self._firsts, first) - 1
        high = bisect_right(self._firsts, last)
        pieces: list[tuple[int, RecordRun]] = []
        # The runs before and after may be joined with what lies between.
        before, after = max(0, low - 1), min(len(self._runs), high + 1)
        for index in range(before, after):
            run_first, run = self._firsts[index], self._runs[index]
            if run.last < first or run_first > last:
                _add(pieces, run_first, run)
                continue
            if run_first < first:
                _add(pieces, run_first, run._replace(last=first - 1))
            part_first, part_last = max(run_first, first), min(run.last, last)
            part = run._replace(last=part_last)
            changed = change(part)
            assert changed.last == part_last
            self._count(part_first, part, -1)
            self._count(part_first, changed, 1)
            _add(pieces, part_first, changed)
            if run.last > last:
                _add(pieces, last + 1, run)
        self._firsts[before:after] = [piece[0] for piece in pieces]
        self._runs[before:after] = [piece[1] for piece in pieces]

    def advance_start(self) -> bool:
        """Forget finished records at the start. True: the start has moved."""
        runs = self._runs
        if not runs or not runs[0].is_finished:
            return False
        index = 0
        while index < len(runs) and runs[index].is_finished:
            index += 1
        self.start = Offset(self._firsts[index]) if index < len(runs) else self.end
        del self._firsts[:index], runs[:index]
        return True

    @property
    def finished(self) -> int:
        """Finished records from the start on."""
        return self.end - self.start - self.unfinished

    def _count(self, first: int, run: RecordRun, sign: int) -> None:
        if not run.is_finished:
            self.unfinished += sign * (run.last - first + 1)
            if run.state == HELD:
                self.held += sign * (run.last - first + 1)


def _add(pieces: list[tuple[int, RecordRun]], first: int, run: RecordRun) -> None:
    if pieces and _is_joined(pieces[-1][1], run):
        pieces[-1] = pieces[-1][0], _join(pieces[-1][1], run)
    else:
        pieces.append((first, run))


def _is_joined(one: RecordRun, following: RecordRun) -> bool:
    if one.state != following.state:
        return False
    return one.is_finished or one[2:] == following[2:]


def _join(one: RecordRun, following: RecordRun) -> RecordRun:
    count = max(one.delivery_count, following.delivery_count)
    return one._replace(last=following.last, delivery_count=count)
