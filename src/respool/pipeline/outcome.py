"""What a job says while it works, and in the end."""

from dataclasses import dataclass, field
from typing import Protocol


class Teller(Protocol):
    """Who shows a job's progress."""

    def step(self, text: str) -> None:
        """What is being done now."""

    def rows(self, count: int) -> None:
        """So many more rows are done."""


class Silent:
    def step(self, text: str) -> None:
        pass

    def rows(self, count: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    job: str
    # What was counted, in the order in which it is shown.
    counts: dict[str, int]
    # Shares and the like: name -> 0.93.
    figures: dict[str, float] = field(default_factory=dict)
    # Files made for people.
    files: tuple[str, ...] = ()
