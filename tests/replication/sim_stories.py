"""Stories of single bugs, step by step: what chance finds too seldom. Each ends well as long as the rules hold.

A story takes the rules to play by and raises `Violation` when something is seen that must never be.
"""

from collections.abc import Callable
from dataclasses import dataclass

from replication.sim_checks import Violation
from replication.sim_controller import ALL_CONTROLLER_RULES, ControllerRules, led_by
from replication.sim_healing import can_heal, check_converged, heal, is_converged
from replication.sim_world import LEASE_MS, World
from respool.model.ids import BrokerId, Offset

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    controller_rules: ControllerRules = ALL_CONTROLLER_RULES


class StoryBroken(Exception):
    """It does not come to the point: that says nothing about any rule."""


Story = Callable[[Settings], None]


def late_fetch_of_an_earlier_epoch(settings: Settings) -> None:
    """1 leads, then 2, then 1 again. What 3 said to 1 the first time is no longer true."""
    world = _world(settings, brokers=3)
    # 3 has all five records, 2 has none. That 3 has them is said in a fetch that takes its time.
    world.cuts.add((ONE, TWO))
    _produce(world, ONE, 5)
    _run(world, until=lambda: _end(world, THREE) == 5)
    world.hold(THREE, ONE)
    _run(world, for_ms=40)
    # 2 leads from the start of the log, and 3 follows it; 1 sleeps through that.
    world.pause(ONE, 350)
    _elect(world, TWO)
    _run(world, until=lambda: _end(world, THREE) == 0)
    _elect(world, ONE)
    world.cuts.clear()
    _run(world, until=lambda: _end(world, TWO) == 5)
    # Now the fetch arrives. 3 is in the ISR and has nothing; what 3 asks for now is lost.
    first = world.held.pop((THREE, ONE))[0]
    world.cuts.add((THREE, ONE))
    first()
    _run(world, for_ms=100)
    _heal(world)


def late_fetch_from_before_a_crash(settings: Settings) -> None:
    """A follower has caught up and says so; then it loses all, and only now its fetch arrives (KIP-903)."""
    world = _world(settings, brokers=3, is_synced=False)
    world.cuts |= {(ONE, THREE), (THREE, ONE)}
    _produce(world, ONE, 1)
    _run(world, until=lambda: world.store.image.isr == (ONE, TWO))
    _run(world, until=lambda: world.replicas[ONE].high_watermark == 1)
    world.cuts.clear()
    world.hold(ONE, THREE)
    _run(world, until=lambda: bool(world.held[ONE, THREE]))
    world.hold(THREE, ONE)
    world.release(ONE, THREE)
    _run(world, until=lambda: bool(world.held[THREE, ONE]))
    world.crash(THREE, kept_end=Offset(0), back_after_ms=20)
    _run(world, until=lambda: world.replicas[THREE].is_up)
    first = world.held.pop((THREE, ONE))[0]
    world.cuts.add((THREE, ONE))
    first()
    _run(world, for_ms=100)
    _heal(world)


def leader_comes_back_with_less(settings: Settings) -> None:
    """The leader loses what it had not synced, and is elected again. Its follower has records that nobody else has."""
    world = _world(settings, brokers=3)
    world.slow_disks.add(ONE)
    _produce(world, ONE, 2)
    _run(world, until=lambda: _end(world, THREE) == 2 == _end(world, TWO))
    world.crash(ONE, kept_end=Offset(0), back_after_ms=20)
    _run(world, until=lambda: world.store.image.leader is None)
    world.slow_disks.clear()
    world.hold(THREE, ONE)
    world.hold(TWO, ONE)
    _elect(world, ONE)
    _run(world, until=lambda: world.produce(ONE) is not None)
    _produce(world, ONE, 4)
    world.release(THREE, ONE)
    world.release(TWO, ONE)
    _run(world, for_ms=200)
    _heal(world)


def reply_of_an_earlier_epoch(settings: Settings) -> None:
    """A reply of the old leader comes when the follower is, with other records, at the same offset again."""
    world = _world(settings, brokers=3)
    _produce(world, ONE, 2)
    _run(world, until=lambda: _end(world, TWO) == 2 == _end(world, THREE))
    world.cuts.add((ONE, TWO))
    _produce(world, ONE, 2)
    _run(world, until=lambda: world.replicas[THREE].log.durable_end == 4)
    world.hold(ONE, THREE)
    _produce(world, ONE, 1)
    _run(world, until=lambda: bool(world.held[ONE, THREE]) and _is_asked_at(world, THREE, 4))
    world.cuts.clear()
    _elect(world, TWO)
    _run(world, until=lambda: world.produce(TWO) is not None)
    _produce(world, TWO, 1)
    _run(world, until=lambda: world.replicas[THREE].high_watermark == 4)
    world.release(ONE, THREE)
    _run(world, for_ms=100)
    _heal(world)


def lowered_min_isr_while_some_are_eligible(settings: Settings) -> None:
    """One replica is enough from now on; but the other one may still be elected."""
    world = _world(settings, brokers=2)
    world.cuts |= {(ONE, TWO), (TWO, ONE)}
    world.produce(ONE, wants_all=False)
    _run(world, until=lambda: world.store.image.elr == (TWO,))
    _run(world, for_ms=50)
    world.set_min_isr(1)
    _run(world, for_ms=200)
    if world.replicas[ONE].high_watermark != 1:
        raise Violation("one replica is enough, but nothing is committed")
    _heal(world)


def too_few_in_sync(settings: Settings) -> None:
    """acks=all says at once that it cannot be kept."""
    world = _world(settings, brokers=2)
    world.cuts |= {(ONE, TWO), (TWO, ONE)}
    _produce(world, ONE, 1)
    _run(world, until=lambda: world.store.image.isr == (ONE,))
    _run(world, for_ms=50)
    if world.produce(ONE) is not None:
        raise Violation("taken with one in sync of two that are asked for")
    _heal(world)


def committed_with_too_few(settings: Settings) -> None:
    """A record was taken with two in sync; then one of them left. It is not safe before that one is back."""
    world = _world(settings, brokers=2)
    world.cuts |= {(ONE, TWO), (TWO, ONE)}
    _produce(world, ONE, 1)
    _run(world, until=lambda: world.store.image.isr == (ONE,))
    # And lost its disk, so that it is not even eligible.
    world.store.write(world.store.image.with_isr((ONE,), min_isr=2, lost=(TWO,)))
    _run(world, for_ms=100)
    _heal(world)


def last_one_standing(settings: Settings) -> None:
    """The leader is alone in sync and loses its memory. The other one left the ISR, but nothing was committed since."""
    world = _world(settings, brokers=2, is_synced=False, has_controller=True)
    _produce(world, ONE, 3)
    _run(world, until=lambda: world.replicas[TWO].high_watermark == 3)
    world.cuts |= {(ONE, TWO), (TWO, ONE)}
    world.produce(ONE, wants_all=False)
    _run(world, until=lambda: world.store.image.isr == (ONE,))
    world.crash(ONE, kept_end=Offset(0), back_after_ms=2 * LEASE_MS)
    world.cuts.clear()
    _run(world, for_ms=3 * LEASE_MS)
    _heal(world)


def last_one_standing_after_a_stop(settings: Settings) -> None:
    """As before, but it is the controller that takes the other one out of the ISR."""
    world = _world(settings, brokers=2, is_synced=False, has_controller=True)
    _produce(world, ONE, 3)
    _run(world, until=lambda: world.replicas[TWO].high_watermark == 3)
    world.stop(TWO, back_after_ms=100)
    _run(world, until=lambda: world.store.image.isr == (ONE,))
    world.crash(ONE, kept_end=Offset(0), back_after_ms=2 * LEASE_MS)
    _run(world, for_ms=3 * LEASE_MS)
    _heal(world)


def write_that_comes_late(settings: Settings) -> None:
    """The store does not answer. The leader reads the old ISR, and only then its own write is carried out."""
    world = _world(settings, brokers=3)
    world.cuts |= {(ONE, THREE), (THREE, ONE)}
    _produce(world, ONE, 1)
    _run(world, until=lambda: world.store.image.isr == (ONE, TWO))
    world.held_writes = []
    world.cuts.clear()
    _run(world, until=lambda: bool(world.held_writes))
    joining = world.held_writes[0]
    # Given up and read again: 3 is not there. Then 3 is gone, and records are committed.
    _run(world, for_ms=200)
    world.cuts |= {(ONE, THREE), (THREE, ONE)}
    _run(world, for_ms=400)
    _produce(world, ONE, 3)
    _run(world, for_ms=150)
    joining()
    world.held_writes = None
    _run(world, for_ms=100)
    _heal(world)


def _world(
    settings: Settings, *, brokers: int, is_synced: bool = True, has_controller: bool = False
) -> World:
    world = World(
        1,
        brokers=brokers,
        is_synced=is_synced,
        has_controller=has_controller,
        controller_rules=settings.controller_rules,
    )
    world.sync_ms_max = 5
    _run(world, for_ms=100)
    return world


def _run(world: World, *, for_ms: int = 2000, until: Callable[[], bool] | None = None) -> None:
    is_done = world.run_until(world.now_ms + for_ms, is_done=until)
    if not is_done and until is not None:
        raise StoryBroken("the story does not get there")


def _produce(world: World, broker: BrokerId, count: int) -> None:
    for _ in range(count):
        if world.produce(broker) is None:
            raise StoryBroken(f"{broker} does not take a record")


def _elect(world: World, broker: BrokerId) -> None:
    if world.store.write(led_by(broker, world.store.image, world.controller_rules)) is None:
        raise StoryBroken(f"{broker} is not elected")


def _end(world: World, broker: BrokerId) -> int:
    return world.replicas[broker].log.log_end


def _is_asked_at(world: World, broker: BrokerId, offset: int) -> bool:
    return world.replicas[broker].log.durable_end == offset


def _heal(world: World) -> None:
    heal(world)
    world.at(5, world.control)
    world.run_until(world.now_ms + 6000, is_done=lambda: is_converged(world))
    if not can_heal(world):
        raise Violation("nobody is left who may be elected")
    check_converged(world)
