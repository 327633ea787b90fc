"""Progress and result of a job."""

from dataclasses import dataclass, field
from typing import Protocol


class ProgressListener(Protocol):
    """Receives a job's progress."""

    def step(self, text: str) -> None:
        """Report the current step."""

    def rows(self, count: int) -> None:
        """Report that `count` more rows are done."""


class Silent:
    def step(self, text: str) -> None:
        pass

    def rows(self, count: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    job: str
    # Counts, in display order.
    counts: dict[str, int]
    # Ratios by name, such as 0.93.
    figures: dict[str, float] = field(default_factory=dict)
    # Files for people.
    files: tuple[str, ...] = ()
