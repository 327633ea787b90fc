"""The result of a comparison of two models. Imports nothing: reports are written without Spark, too."""

from dataclasses import dataclass

BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How many rides were rightly or wrongly called fraud, and how many frauds were missed."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 0.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    # Rides scored by both models, or by one of them only.
    both: int
    only_live: int
    only_new: int
    # Of the rides that both scored: how many were called fraud by both, and by each.
    fraud_to_both: int
    fraud_to_live: int
    fraud_to_new: int
    difference_mean: float
    # Histograms in `BINS` bins from 0 to 1, of all rides that the model scored.
    live_histogram: tuple[int, ...]
    new_histogram: tuple[int, ...]
    # None if the truth is unknown.
    live_quality: Quality | None = None
    new_quality: Quality | None = None
    # Fraud pattern, rides with it, found by the live model, found by the new one.
    patterns: tuple[tuple[str, int, int, int], ...] = ()
    # The rides with the largest differences: ride, live score, new score, pattern.
    differing: tuple[tuple[str, float, float, str], ...] = ()

    @property
    def agreement(self) -> float:
        """Of the rides that both scored, the share with the same verdict."""
        if not self.both:
            return 0.0
        differ = self.fraud_to_live + self.fraud_to_new - 2 * self.fraud_to_both
        return 1 - differ / self.both
