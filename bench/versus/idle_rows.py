"""Memory and CPU of brokers that nobody talks to."""

import time

from bench.versus.arena import MEMORY, Arena
from bench.versus.contender import Contenders
from bench.versus.row import Unit

QUIET_SECONDS = 2.0


def run(arena: Arena, contenders: Contenders) -> None:
    """Before anything else is asked of them: a heap that grew once stays large."""
    arena.progress("idle")
    time.sleep(QUIET_SECONDS)
    pair = contenders.like_with_like
    before = {one.name: one.broker.cpu() for one in pair}
    time.sleep(arena.sizes.idle_seconds)
    for one in pair:
        spent = (one.broker.cpu() - before[one.name]).total / arena.sizes.idle_seconds
        resident = one.broker.memory().resident / 1e6
        arena.results.add(MEMORY, "resident, idle", Unit.MEGABYTES, one.name, resident)
        arena.results.add(
            "Idle", "CPU of an idle broker, a second", Unit.MILLISECONDS, one.name, 1000 * spent
        )
