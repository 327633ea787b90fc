"""Progress and result of a job."""

from dataclasses import dataclass, field
from typing import Protocol


class ProgressListener(Protocol):
    """Receives a job's progress."""

    def step(self, text: str) -> None:
        """Report the current step."""

    def rows(self, count: int) -> None:
        """Report this many more rows done."""


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
    # Ratios: name -> 0.93.
    figures: dict[str, float] = field(default_factory=dict)
    # Files for people to read.
    files: tuple[str, ...] = ()
