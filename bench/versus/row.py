"""One row of the comparison: what was measured, in which unit, and every contender's samples."""

from dataclasses import dataclass, field
from enum import StrEnum

from bench.versus.contender import KAFKA, RESPOOL
from bench.versus.figure import Figure

# Closer than this the rounds say nothing about who is ahead.
EVEN_WITHIN = 0.03


class Unit(StrEnum):
    MESSAGES_PER_S = "messages/s"
    CPU_S_PER_MILLION = "CPU-s per million"
    MILLISECONDS = "ms"
    SECONDS = "s"
    MEGABYTES = "MB"

    @property
    def is_higher_better(self) -> bool:
        return self is Unit.MESSAGES_PER_S


class Verdict(StrEnum):
    RESPOOL_AHEAD = "Respool ahead"
    EVEN = "even"
    KAFKA_AHEAD = "Kafka ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    family: str
    name: str
    unit: Unit
    # By contender's name, one for each round.
    samples: dict[str, list[float]] = field(default_factory=dict)

    def figure(self, contender: str) -> Figure | None:
        found = self.samples.get(contender)
        return Figure.of(found) if found else None

    def ratio(self, contender: str = RESPOOL) -> float | None:
        """A contender's median over Kafka's: above 1 is better for rates, worse for times and sizes."""
        ours, theirs = self.figure(contender), self.figure(KAFKA)
        if ours is None or theirs is None or not theirs.median:
            return None
        return ours.median / theirs.median

    def advantage(self, contender: str = RESPOOL) -> float | None:
        """How many times better than Kafka, whatever the unit: below 1 Kafka is ahead."""
        ratio = self.ratio(contender)
        if ratio is None or self.unit.is_higher_better:
            return ratio
        return 1 / ratio if ratio else None

    @property
    def verdict(self) -> Verdict | None:
        advantage = self.advantage()
        if advantage is None:
            return None
        if abs(advantage - 1) <= EVEN_WITHIN:
            return Verdict.EVEN
        return Verdict.RESPOOL_AHEAD if advantage > 1 else Verdict.KAFKA_AHEAD
