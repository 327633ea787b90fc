"""Ride events as the company's services would emit them: seeded, so that two runs count the same."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

STEPS = ("requested", "assigned", "picked_up", "finished")
TOPIC = "rides"
CITIES = ("Lagos", "Lisbon", "Lima", "Lyon")


@dataclass(frozen=True, slots=True, kw_only=True)
class RideEvent:
    ride_id: str
    step: str
    city: str
    fare_cents: int
    at_ms: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def ride_events(*, rides: int, start_ms: int, end_ms: int, seed: int = 7) -> Iterator[RideEvent]:
    """Four events per ride, spread over the time given, oldest first."""
    rng = random.Random(seed)
    total = rides * len(STEPS)
    cities = [rng.choice(CITIES) for _ in range(rides)]
    fares = [rng.randrange(500, 9000) for _ in range(rides)]
    for number in range(total):
        step, ride = divmod(number, rides)
        yield RideEvent(
            ride_id=f"ride-{ride:06d}",
            step=STEPS[step],
            city=cities[ride],
            fare_cents=fares[ride] if STEPS[step] == "finished" else 0,
            at_ms=start_ms + (end_ms - start_ms) * number // total,
        )
