"""How rides end, and how many events they have: the basis of shares of events."""

from enum import IntEnum


class EventType(IntEnum):
    """The lower-case names are the event types. A cancelled ride's last event is CANCELLED."""

    REQUESTED = 0
    ASSIGNED = 1
    STARTED = 2
    FINISHED = 3
    PAID = 4
    CANCELLED = 5


class RideOutcome(IntEnum):
    PAID = 0
    # No driver came, or the rider did not wait.
    CANCELLED_BEFORE_DRIVER = 1
    CANCELLED_AFTER_DRIVER = 2


class Fraud(IntEnum):
    """Fraud patterns; their lower-case names are used in the truth."""

    NONE = 0
    FAKE_GPS = 1
    COLLUSION = 2
    STOLEN_PAYMENT = 3
    FARE_INFLATION = 4


class Malformed(IntEnum):
    """Defects of an event's value."""

    NONE = 0
    TRUNCATED = 1
    NOT_JSON = 2
    EMPTY = 3
    MISSING_FIELD = 4
    WRONG_TYPE = 5
    NEGATIVE_FARE = 6
    UNKNOWN_EVENT = 7
    BAD_TIME = 8


STAGES_MAX = 5
STAGES = {
    RideOutcome.PAID: 5,
    RideOutcome.CANCELLED_BEFORE_DRIVER: 2,
    RideOutcome.CANCELLED_AFTER_DRIVER: 3,
}
# Shares of honest rides. Fraudulent rides are always paid.
CANCELLED_BEFORE = 0.05
CANCELLED_AFTER = 0.07


def events_per_ride(fraud_share: float) -> float:
    """The average number of events of a ride, without duplicates."""
    return _mean(fraud_share, {outcome: float(stages) for outcome, stages in STAGES.items()})


def late_events_per_late_ride(fraud_share: float) -> float:
    """The average number of late events: a late ride is late from one of its events on, chosen uniformly."""
    return _mean(fraud_share, {outcome: (stages + 1) / 2 for outcome, stages in STAGES.items()})


def _mean(fraud_share: float, of: dict[RideOutcome, float]) -> float:
    honest = (
        of[RideOutcome.CANCELLED_BEFORE_DRIVER] * CANCELLED_BEFORE
        + of[RideOutcome.CANCELLED_AFTER_DRIVER] * CANCELLED_AFTER
        + of[RideOutcome.PAID] * (1 - CANCELLED_BEFORE - CANCELLED_AFTER)
    )
    return fraud_share * of[RideOutcome.PAID] + (1 - fraud_share) * honest
