"""After the bad time: everything works again, and all must come right."""

from replication.sim_checks import Violation
from replication.sim_odds import Odds
from replication.sim_world import World
from respool.replication.follower import Follower
from respool.replication.leader import Leader


def heal(world: World) -> None:
    world.trace("healed")
    world.odds = Odds()
    world.cuts.clear()
    for broker, replica in world.replicas.items():
        replica.paused_until_ms = min(replica.paused_until_ms, world.now_ms)
        if replica.is_up and broker not in world.store.brokers:
            replica.broker_epoch = world.store.register(broker)
        if not replica.is_up:
            world.boot(broker)
        world.read_store(replica)


def can_heal(world: World) -> bool:
    """Someone is left who has everything. Else nobody may be elected, and that is right."""
    image = world.store.image
    return bool(image.isr or image.elr)


def is_converged(world: World) -> bool:
    image = world.store.image
    if image.leader is None or image.adding or set(image.isr) != set(image.replicas):
        return False
    leader = world.replicas[image.leader]
    for replica in map(world.replicas.__getitem__, image.replicas):
        role, log = replica.role, replica.log
        if replica is leader:
            if not isinstance(role, Leader) or role.image != image:
                return False
        elif not isinstance(role, Follower):
            return False
        # One that led before may have deleted more than the leader of now has heard of.
        if log.log_end != leader.log.log_end or log.log_start < leader.log.log_start:
            return False
        if replica.high_watermark != log.log_end or replica.pending:
            return False
    return True


def check_converged(world: World) -> None:
    image = world.store.image
    if not is_converged(world):
        states = [
            f"{one.me}: {type(one.role).__name__} {one.log.log_start} to {one.log.log_end}"
            f" hw {one.high_watermark} epochs {[tuple(e) for e in one.log.epochs.entries]}"
            for one in world.replicas.values()
        ]
        raise Violation(f"not healed: {image}; {'; '.join(states)}")
    assert image.leader is not None
    leader = world.replicas[image.leader].log
    for replica in map(world.replicas.__getitem__, image.replicas):
        world.checker.check_all_of(replica.me, replica.log)
        if replica.log.entries != leader.entries[replica.log.log_start - leader.log_start :]:
            raise Violation(f"{replica.me} and {image.leader} have different logs")
