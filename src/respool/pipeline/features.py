"""Features of a fraud model: each finished ride's speed and price, and its rider's activity in the days before.

Every window looks back from the ride's own end. So a ride has the same features whether it is scored live or replayed
later, provided that the same history is available.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column, Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
# How far back features look, at most.
HISTORY_DAYS = 7
SHORT_KM = 1.5
LONG_KM = 8.0

FEATURES = (
    "speed_kmh",
    "distance_km_",
    "price_ratio",
    "pair_rides_day",
    "pair_short_rides_week",
    "rider_rides_day",
    "rider_long_card_rides_6h",
    "rider_known_hours",
)


def finished_rides(events: "DataFrame") -> "DataFrame":
    """Return one row for each finished ride: its `finished` event."""
    return events.where("event_type = 'finished' and duration_s > 0 and fare is not null")


def with_features(rides: "DataFrame", prices: "DataFrame") -> "DataFrame":
    """Add features. `rides`: finished rides with their history; `prices`: the `price_level` of each city."""
    at = f.col("event_time").cast("long")
    km, hours = _km(), f.col("duration_s") / HOUR_S
    rider = Window.partitionBy("rider_id").orderBy(at)
    pair = Window.partitionBy("rider_id", "driver_id").orderBy(at)
    day, week = (-DAY_S, 0), (-HISTORY_DAYS * DAY_S, 0)
    is_long_by_card = (f.col("payment_method") == "card") & (km >= LONG_KM)
    first_seen = f.min(at).over(rider.rangeBetween(*week))
    usual = _or_one(f.col("price_level"))
    return rides.join(f.broadcast(prices), "city", "left").select(
        *(rides[name] for name in rides.columns),
        f.coalesce(f.try_divide(km, hours), f.lit(0.0)).alias("speed_kmh"),
        km.alias("distance_km_"),
        (price_level() / usual).alias("price_ratio"),
        f.count("*").over(pair.rangeBetween(*day)).cast("double").alias("pair_rides_day"),
        _number(km < SHORT_KM).over(pair.rangeBetween(*week)).alias("pair_short_rides_week"),
        f.count("*").over(rider.rangeBetween(*day)).cast("double").alias("rider_rides_day"),
        _number(is_long_by_card)
        .over(rider.rangeBetween(-6 * HOUR_S, 0))
        .alias("rider_long_card_rides_6h"),
        ((at - first_seen) / HOUR_S).alias("rider_known_hours"),
    )


def usual_prices(rides: "DataFrame") -> "DataFrame":
    """Return each city's price level: the median of its rides' prices relative to the price list."""
    levels = rides.select("city", price_level().alias("level"))
    return levels.groupBy("city").agg(f.percentile_approx("level", 0.5).alias("price_level"))


def price_level() -> Column:
    """The fare divided by surge times (2.50 + 1.15 per km + 0.28 per minute).

    A missing or invalid surge counts as 1.
    """
    listed = 2.5 + 1.15 * _km() + 0.28 * f.col("duration_s") / 60
    # The list price is at least 2.50, except for negative distances.
    found = f.try_divide(f.col("fare").cast("double"), _or_one(f.col("surge")) * listed)
    return f.coalesce(found, f.lit(1.0))


def _km() -> Column:
    return f.coalesce(f.col("distance_km").cast("double"), f.lit(0.0))


def _or_one(factor: Column) -> Column:
    """Return the factor, or 1 if it is unusable as a divisor: otherwise the ride would get no score."""
    return f.when((factor > 0) & ~f.isnan(factor), factor).otherwise(1.0)


def _number(condition: Column) -> Column:
    return f.sum(f.when(condition, 1.0).otherwise(0.0))
