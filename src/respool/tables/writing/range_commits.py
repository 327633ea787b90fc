"""Commits ranges of a topic to a table, each exactly once, even if a commit gets no answer: see
`planning/commit_decision.py`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from respool.tables.errors import CommitUnknown, TableAltered, TableConflict
from respool.tables.formats.table_log import TableChange, TableLog, TableState, WrittenFile
from respool.tables.planning.commit_decision import CommitVerdict, decide
from respool.tables.planning.positions import TopicRange

_log = logging.getLogger("respool.tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRange:
    """A range of one partition whose rows are in complete files."""

    range: TopicRange
    files: Sequence[WrittenFile]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    state: TableState
    # The partitions whose ranges are in the table by this commit.
    done: frozenset[int]
    # Those whose offsets another writer had committed first; their files are deleted.
    overtaken: frozenset[int]


class Committer:
    def __init__(
        self,
        log: TableLog,
        *,
        new_token: Callable[[], str],
        wait: Callable[[int], None],
    ) -> None:
        """`wait` sleeps after that many failures without an answer, or raises when the writer is stopped."""
        self._log = log
        self._new_token = new_token
        self._wait = wait

    def commit(
        self, state: TableState, finished: Mapping[int, FinishedRange], *, note: str = ""
    ) -> Committed:
        """
        Raises:
            TableAltered: the table was replaced.
        """
        token, base = self._new_token(), state
        left = dict(finished)
        overtaken: set[int] = set()
        failures = 0
        while left:
            try:
                state = self._log.commit(state, _change(left, token, note))
                break
            except (TableConflict, CommitUnknown) as error:
                _log.info("a commit to %s: %s", self._log.files.location, error)
                if isinstance(error, CommitUnknown):
                    failures += 1
                    self._wait(failures)
            state, is_found = self._reloaded(token, base)
            verdicts = decide(
                {number: one.range for number, one in left.items()},
                found=state.positions,
                is_token_found=is_found,
            )
            if is_found:
                break
            for number, verdict in verdicts.items():
                if verdict is CommitVerdict.DISCARD:
                    overtaken.add(number)
                    delete_files(self._log, left.pop(number))
        return Committed(
            state=state, done=frozenset(finished) - overtaken, overtaken=frozenset(overtaken)
        )

    def _reloaded(self, token: str, base: TableState) -> tuple[TableState, bool]:
        failures = 0
        while True:
            try:
                state = self._log.load()
                if state.table_id != base.table_id:
                    raise TableAltered(
                        f"the table at {self._log.files.location} was replaced while it was written",
                        hint="nothing of the new one was changed; start the writer again to continue with it",
                    )
                return state, self._log.has_token(token, since=base)
            except (CommitUnknown, OSError) as error:
                _log.warning("%s cannot be loaded: %s", self._log.files.location, error)
                failures += 1
                self._wait(failures)


def delete_files(log: TableLog, finished: FinishedRange) -> None:
    """Delete files that no commit refers to; if that fails, expiry deletes them later."""
    for one in finished.files:
        try:
            log.files.delete(one.path)
        except OSError as error:
            _log.info("%s stays for now: %s", one.path, error)


def _change(left: Mapping[int, FinishedRange], token: str, note: str) -> TableChange:
    return TableChange(
        token=token,
        added=[file for one in left.values() for file in one.files],
        positions={number: one.range.end for number, one in left.items()},
        note=note,
    )
