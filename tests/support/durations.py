"""Durations of a test run: the slowest files and cases at its end, and all of them in `.durations/`.

A pytest plugin for the process that prints: with xdist the controller, which gets the reports of all workers. A case
takes what its setup, call and teardown take together.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

FOLDER = ".durations"
SHOWN_MAX = 15
# Faster ones are not worth a line at the end of a run.
SHOWN_SECONDS_MIN = 1.0


class Durations:
    """Adds up reports as they come."""

    def __init__(self) -> None:
        self.cases: defaultdict[str, float] = defaultdict(float)
        self.workers: defaultdict[str, float] = defaultdict(float)

    @property
    def files(self) -> dict[str, float]:
        total: defaultdict[str, float] = defaultdict(float)
        for case, seconds in self.cases.items():
            total[case.partition("::")[0]] += seconds
        return total

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.cases[without_group(report.nodeid)] += report.duration
        self.workers[getattr(report, "worker_id", "main")] += report.duration

    @pytest.hookimpl
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        folder = config.rootpath / FOLDER
        self.write(folder)
        for line in self.summary():
            terminalreporter.write_line(line)

    def write(self, folder: Path) -> None:
        """Replace the lists of the last run: seconds, a tab, and the file or case; the slowest first."""
        folder.mkdir(exist_ok=True)
        for name, seconds_of in (("files", self.files), ("cases", self.cases)):
            lines = (f"{seconds:.3f}\t{what}\n" for what, seconds in slowest_first(seconds_of))
            (folder / f"{name}.tsv").write_text("".join(lines))

    def summary(self) -> list[str]:
        """Lines for the terminal; none for a run without anything slow."""
        lines: list[str] = []
        for name, seconds_of in (("files", self.files), ("cases", self.cases)):
            slow = [one for one in slowest_first(seconds_of) if one[1] >= SHOWN_SECONDS_MIN]
            if slow:
                lines.append(f"slowest {name} (all: {FOLDER}/{name}.tsv)")
                lines += [f"{seconds:8.1f} s  {what}" for what, seconds in slow[:SHOWN_MAX]]
        if lines:
            busy = ", ".join(f"{name} {self.workers[name]:.0f} s" for name in sorted(self.workers))
            lines.append(f"in tests: {busy}")
        return lines


def slowest_first(seconds_of: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds_of.items(), key=lambda one: (-one[1], one[0]))


def without_group(nodeid: str) -> str:
    """xdist appends `@group` to the id of a case; a parameter may hold an @ as well."""
    return nodeid.rpartition("@")[0] if nodeid.rfind("@") > nodeid.rfind("]") else nodeid
