"""How bad the simulated world is."""

from dataclasses import dataclass
from random import Random


@dataclass(kw_only=True)
class Odds:
    """How bad the world is. Each seed draws its own."""

    lost: float = 0.0
    late: float = 0.0
    delay_ms_max: int = 10
    store_lost: float = 0.0
    store_late: float = 0.0
    watch_ms_max: int = 20
    # Between two faults; 0: none.
    fault_every_ms: int = 0
    faults: tuple[str, ...] = ()

    @classmethod
    def drawn(cls, rng: Random) -> "Odds":
        kinds = (
            *("crash", "crash", "stop", "blink", "pause", "cut", "isolate"),
            *("elect", "flip", "move", "move", "delete", "min isr"),
        )
        return cls(
            lost=rng.choice((0.0, 0.02, 0.1)),
            late=rng.choice((0.0, 0.05, 0.2)),
            delay_ms_max=rng.choice((3, 10, 40)),
            store_lost=rng.choice((0.0, 0.1, 0.3)),
            store_late=rng.choice((0.0, 0.1, 0.3)),
            watch_ms_max=rng.choice((5, 50, 300)),
            fault_every_ms=rng.choice((60, 150, 400)),
            faults=tuple(rng.sample(kinds, rng.randint(2, len(kinds)))),
        )
