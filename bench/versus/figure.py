"""One figure from several rounds: the median, and between which values the rounds were."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        if not samples:
            raise ValueError("a figure of no samples")
        return cls(median=median(samples), low=min(samples), high=max(samples), rounds=len(samples))

    @property
    def spread(self) -> float:
        """How far the rounds are apart, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0
