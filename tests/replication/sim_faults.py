"""What goes wrong in the simulated world while clients go on producing."""

from replication.sim_world import World
from respool.model.ids import BrokerId, Offset


def start_load(world: World, *, until_ms: int) -> None:
    rng = world.rng

    def load() -> None:
        for _ in range(rng.choice((1, 1, 3))):
            world.produce(wants_all=rng.random() < 0.7)
        if world.now_ms < until_ms:
            world.at(rng.randint(2, 40), load)

    def fault() -> None:
        if world.now_ms < until_ms:
            do_fault(world, rng.choice(world.odds.faults))
            world.at(rng.randint(1, 2 * world.odds.fault_every_ms), fault)

    def flush() -> None:
        for replica in world.replicas.values():
            if rng.random() < 0.3:
                replica.checkpoint_high_watermark()
            if not world.is_synced and rng.random() < 0.2:
                log = replica.log
                log.durable_end = Offset(rng.randint(log.durable_end, log.log_end))
        if world.now_ms < until_ms:
            world.at(50, flush)

    world.at(20, load)
    world.at(30, flush)
    if world.odds.fault_every_ms:
        world.at(rng.randint(20, 200), fault)


def do_fault(world: World, kind: str) -> None:
    rng = world.rng
    broker = rng.choice(list(world.replicas))
    replica = world.replicas[broker]
    world.counts.faults[kind] = world.counts.faults.get(kind, 0) + 1
    if kind in {"crash", "blink"}:
        # A blink is over before anybody notices.
        back = rng.randint(5, 60) if kind == "blink" else rng.randint(50, 1500)
        if world.is_synced or is_spare(world, broker):
            log = replica.log
            kept = Offset(rng.randint(log.durable_end, log.log_end))
            world.crash(broker, kept_end=kept, back_after_ms=back)
    elif kind == "stop":
        world.stop(broker, back_after_ms=rng.randint(50, 800))
    elif kind == "pause":
        world.pause(broker, rng.choice((50, 350, 900)))
    elif kind == "cut":
        other = rng.choice([one for one in world.replicas if one != broker])
        world.cut({(broker, other)}, rng.randint(50, 900))
    elif kind == "isolate":
        pairs = {pair for one in world.replicas for pair in ((broker, one), (one, broker))}
        world.cut(pairs, rng.randint(50, 900))
        if rng.random() < 0.5 and replica.is_up:
            world.lose_lease(replica, until_ms=world.now_ms + 900)
    elif kind == "elect":
        world.elect()
    elif kind == "flip":
        leader = world.store.image.leader
        world.elect()
        world.at(rng.randint(1, 100), lambda: world.elect_again(leader))
    elif kind == "move":
        world.move(broker)
    elif kind == "min isr":
        world.set_min_isr(rng.choice((1, 2)), told_within_ms=200)
    elif kind == "delete":
        replica.delete_records(Offset(replica.high_watermark - rng.randint(0, 5)))


def is_spare(world: World, broker: BrokerId) -> bool:
    """Where records are only in memory, all who have them must not lose power at once: that is no bug."""
    image = world.store.image
    complete = [
        one
        for one in (*image.isr, *image.elr)
        if world.replicas[one].is_up and one in world.store.brokers
    ]
    return len([one for one in complete if one != broker]) >= 1
