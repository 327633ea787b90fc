"""How much the demo publishes: what `make demo` shows, or less for a test."""

from dataclasses import dataclass

from demo.rides import STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    # Of the first act.
    rides: int
    # Of the second act, with Spark.
    spark_events: int

    @property
    def events(self) -> int:
        return self.rides * len(STEPS)


FULL = Size(rides=25_000, spark_events=20_000)
