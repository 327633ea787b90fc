"""One seed, from a bad time to a healed cluster."""

from random import Random

from replication.sim_checks import Violation
from replication.sim_controller import ALL_CONTROLLER_RULES, ControllerRules
from replication.sim_faults import start_load
from replication.sim_healing import can_heal, check_converged, heal, is_converged
from replication.sim_odds import Odds
from replication.sim_world import World

BAD_MS = 2500
HEAL_MS = 6000


def run_seed(
    seed: int,
    *,
    controller_rules: ControllerRules = ALL_CONTROLLER_RULES,
) -> World:
    """Play the seed to its end.

    Raises:
        Violation: something was seen that must never be. The message names the seed.
    """
    rng = Random(seed * 7919 + 1)
    world = World(
        seed,
        brokers=rng.choice((2, 3, 3, 3, 4)),
        spares=rng.choice((0, 0, 1, 2)),
        min_isr=rng.choice((1, 2, 2, 2)),
        is_synced=rng.random() < 0.6,
        odds=Odds.drawn(rng),
        controller_rules=controller_rules,
    )
    try:
        start_load(world, until_ms=BAD_MS)
        world.run_until(BAD_MS)
        heal(world)
        # First without a new record: nothing must need one to come right.
        world.run_until(BAD_MS + HEAL_MS, is_done=lambda: is_converged(world))
        if not can_heal(world):
            return world
        check_converged(world)
        _produce_once(world)
        world.run_until(world.now_ms + HEAL_MS, is_done=lambda: is_converged(world))
        check_converged(world)
    except Exception as error:
        error.add_note(f"seed {seed}")
        error.add_note("\n".join(world.log[-60:]))
        raise
    return world


def _produce_once(world: World) -> None:
    if world.produce() is None:
        raise Violation("healed, but no record is taken")
