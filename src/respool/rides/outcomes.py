"""How rides end, and how many events they have: what the shares of events are reckoned with."""

from enum import IntEnum


class EventType(IntEnum):
    """The names are what stands in events, in small letters. A cancelled ride's last event is its cancellation."""

    REQUESTED = 0
    ASSIGNED = 1
    STARTED = 2
    FINISHED = 3
    PAID = 4
    CANCELLED = 5


class Outcome(IntEnum):
    PAID = 0
    # Nobody came, or the rider did not want to wait.
    CANCELLED_BEFORE_DRIVER = 1
    CANCELLED_AFTER_DRIVER = 2


class Fraud(IntEnum):
    """What is wrong with a ride; the names, in small letters, are the truth's patterns."""

    NONE = 0
    FAKE_GPS = 1
    COLLUSION = 2
    STOLEN_PAYMENT = 3
    FARE_INFLATION = 4


class Malformed(IntEnum):
    """What is wrong with an event's value."""

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
    Outcome.PAID: 5,
    Outcome.CANCELLED_BEFORE_DRIVER: 2,
    Outcome.CANCELLED_AFTER_DRIVER: 3,
}
# Of honest rides. Fraud is always paid: it would not be worth the trouble.
CANCELLED_BEFORE = 0.05
CANCELLED_AFTER = 0.07


def events_per_ride(fraud_share: float) -> float:
    """Without those that are sent twice."""
    return _mean(fraud_share, {outcome: float(stages) for outcome, stages in STAGES.items()})


def late_events_per_late_ride(fraud_share: float) -> float:
    """A ride is late from any of its events on, each as likely as the others."""
    return _mean(fraud_share, {outcome: (stages + 1) / 2 for outcome, stages in STAGES.items()})


def _mean(fraud_share: float, of: dict[Outcome, float]) -> float:
    honest = (
        of[Outcome.CANCELLED_BEFORE_DRIVER] * CANCELLED_BEFORE
        + of[Outcome.CANCELLED_AFTER_DRIVER] * CANCELLED_AFTER
        + of[Outcome.PAID] * (1 - CANCELLED_BEFORE - CANCELLED_AFTER)
    )
    return fraud_share * of[Outcome.PAID] + (1 - fraud_share) * honest
