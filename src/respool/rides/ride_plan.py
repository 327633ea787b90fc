"""Parameters of generated rides: a validated `RidePlan`. Equal plans produce the same events, byte for byte."""

from dataclasses import dataclass

from respool.rides.cities import CITIES, BadPlan, City

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAYS_MAX = 366
# With a larger share hardly any ride would be on time, because a late ride stays late from one of its events on.
SHARE_MAX = 0.5
# The largest number of riders or drivers that fits into ids and draws.
PEOPLE_MAX = 100_000_000
# The last millisecond of year 9999: years must have four digits. (Kafka has no timestamps before 1970.)
EPOCH_MS_MAX = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class RidePlan:
    seed: int = 0
    # The first ride is requested at `start_ms`, and the history ends before `until_ms`.
    start_ms: int
    until_ms: int
    # Either the average number of events per second over the history, or their exact number.
    rate: float | None = None
    count: int | None = None
    cities: tuple[City, ...] = CITIES
    # None: a number that fits the number of rides.
    riders: int | None = None
    drivers: int | None = None
    # Share of rides.
    fraud_share: float = 0.01
    # Shares of events.
    late_share: float = 0.02
    malformed_share: float = 0.001
    duplicate_share: float = 0.005

    def __post_init__(self) -> None:
        """
        Raises:
            BadPlan: an argument is invalid.
        """
        span_ms = self.until_ms - self.start_ms
        if not HOUR_MS <= span_ms <= DAYS_MAX * DAY_MS:
            raise BadPlan(
                f"a history of {span_ms / DAY_MS:g} days: it is an hour (0.042) to {DAYS_MAX} days"
            )
        if self.start_ms < DAY_MS or self.until_ms > EPOCH_MS_MAX - 10 * DAYS_MAX * DAY_MS:
            raise BadPlan("the history begins before 1970 or ends near the year 9999")
        if (self.rate is None) == (self.count is None):
            raise BadPlan("either a rate or a count is needed, and not both")
        if self.rate is not None and not 0.001 <= self.rate <= 1_000_000:
            raise BadPlan(f"a rate of {self.rate:g} events per second: it is 0.001 to 1,000,000")
        if self.count is not None and not 1 <= self.count <= 10**12:
            raise BadPlan(f"a count of {self.count} events: it is 1 to 10**12")
        if not self.cities:
            raise BadPlan("at least one city is needed")
        for name, people in (("riders", self.riders), ("drivers", self.drivers)):
            if people is not None and not len(self.cities) <= people <= PEOPLE_MAX:
                raise BadPlan(
                    f"{people} {name}: each of {len(self.cities)} cities needs one, and {PEOPLE_MAX:,} are the most"
                )
        for name in ("fraud", "late", "malformed", "duplicate"):
            share = getattr(self, f"{name}_share")
            if not 0 <= share <= SHARE_MAX:
                raise BadPlan(f"a {name} share of {share:g}: it is 0 to {SHARE_MAX}")

    @property
    def span_ms(self) -> int:
        return self.until_ms - self.start_ms
