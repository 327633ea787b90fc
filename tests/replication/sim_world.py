"""A cluster of one partition, driven by a seed: replicas, a store, a controller, late and lost messages, and faults.

Time is a number and everything that will happen is in one queue. The same seed plays the same story.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Protocol

from replication.sim_checks import Checker, Violation
from replication.sim_controller import (
    ALL_CONTROLLER_RULES,
    ControllerRules,
    led_by,
    settled,
    without,
)
from replication.sim_log import Entry
from replication.sim_odds import Odds
from replication.sim_replica import PendingProduce, Replica
from replication.sim_store import MemoryStore
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.effects import AskLeaderRange, ProposeIsr
from respool.replication.follower import Fetched, FetchFrom
from respool.replication.leader import Leader

REPLY_TIMEOUT_MS = 120
STORE_TIMEOUT_MS = 150
LEASE_MS = 400


class OnFailed(Protocol):
    def __call__(self, *, is_known: bool) -> None: ...


@dataclass(kw_only=True)
class Counts:
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class World:
    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        spares: int = 0,
        min_isr: int = 2,
        is_synced: bool = True,
        odds: Odds | None = None,
        controller_rules: ControllerRules = ALL_CONTROLLER_RULES,
        has_controller: bool = True,
    ) -> None:
        self.rng = Random(seed)
        self.controller_rules = controller_rules
        self.odds = odds or Odds()
        self.min_isr = min_isr
        # What it ever was: a record may have been acknowledged under that.
        self._min_isr_least = min_isr
        # respool.flush=always: only what is synced counts.
        self.is_synced = is_synced
        self.lag_ms_max = 300
        self.sync_ms_max = self.rng.choice((3, 30))
        self.now_ms = 0
        self.checker = Checker()
        self.counts = Counts()
        self.log: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        # One-way: (from, to).
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()
        # For stories: messages from and to there wait until they are let go; so do writes to the store.
        self.held: dict[tuple[BrokerId, BrokerId], list[Callable[[], None]]] = {}
        self.held_writes: list[Callable[[], None]] | None = None
        self.slow_disks: set[BrokerId] = set()
        self._next_value = 0
        ids = tuple(BrokerId(number) for number in range(1, brokers + spares + 1))
        replicas = ids[:brokers]
        image = PartitionImage(
            replicas=replicas, isr=replicas, leader=ids[0], leader_epoch=LeaderEpoch(0)
        )
        self.store = MemoryStore(image)
        self.store.on_change = self._on_store_change
        self.replicas = {broker: Replica(self, broker) for broker in ids}
        for broker in ids:
            self.boot(broker)
        if has_controller:
            self.at(5, self.control)

    # -- time --------------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def after(self, delay_ms: int, replica: Replica, action: Callable[[], None]) -> None:
        """In that process, if it still runs; when it is frozen, afterwards."""
        incarnation = replica.incarnation

        def run() -> None:
            if not replica.is_up or replica.incarnation != incarnation:
                return
            if self.now_ms < replica.paused_until_ms:
                self.at(replica.paused_until_ms - self.now_ms, run)
                return
            action()

        self.at(delay_ms, run)

    def run_until(self, end_ms: int, *, is_done: Callable[[], bool] | None = None) -> bool:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            self.counts.events += 1
            action()
            if is_done is not None and is_done():
                return True
        self.now_ms = end_ms
        return False

    def trace(self, text: str, *parts: object) -> None:
        self.log.append(f"{self.now_ms:6} {text % parts}")

    # -- messages ----------------------------------------------------------------------------------------------------

    def _delay_ms(self, *, late: float) -> int:
        delay = self.rng.randint(0, self.odds.delay_ms_max)
        if self.rng.random() < late:
            delay += self.rng.randint(0, 700)
        return delay

    def _send(self, source: BrokerId, target: BrokerId, deliver: Callable[[Replica], None]) -> None:
        """To the process that runs there now. What its sender does meanwhile does not hold it up."""
        if (source, target) in self.cuts or self.rng.random() < self.odds.lost:
            return
        replica = self.replicas[target]
        if not replica.is_up:
            return
        arrive = partial(
            self.after, self._delay_ms(late=self.odds.late), replica, partial(deliver, replica)
        )
        if (source, target) in self.held:
            self.held[source, target].append(arrive)
        else:
            arrive()

    def hold(self, source: BrokerId, target: BrokerId) -> None:
        self.held[source, target] = []

    def release(self, source: BrokerId, target: BrokerId) -> None:
        """Let go what waits, and hold nothing any more."""
        for arrive in self.held.pop((source, target)):
            arrive()

    def fetch(
        self,
        follower: Replica,
        asked: FetchFrom,
        *,
        on_reply: Callable[[Fetched, Sequence[Entry]], None],
        on_lost: Callable[[], None],
    ) -> None:
        broker_epoch, me = follower.broker_epoch, follower.me
        answered = False

        def at_leader(leader: Replica) -> None:
            reply, records = leader.answer_fetch(me, broker_epoch, asked)

            def back(replica: Replica) -> None:
                nonlocal answered
                # Also after it was given up: the machine has to know.
                answered = True
                on_reply(reply, records)

            self._send(leader.me, me, back)

        def give_up() -> None:
            if not answered:
                on_lost()

        self._send(me, asked.leader, at_leader)
        self.after(REPLY_TIMEOUT_MS, follower, give_up)

    def ask_range(
        self,
        follower: Replica,
        effect: AskLeaderRange,
        *,
        on_reply: Callable[[Offset, Offset], None],
        on_lost: Callable[[], None],
    ) -> None:
        me = follower.me
        answered = False

        def at_leader(leader: Replica) -> None:
            role = leader.role
            if not isinstance(role, Leader) or role.leader_epoch != effect.leader_epoch:
                return
            log_start, log_end = leader.log.log_start, leader.log.log_end

            def back(replica: Replica) -> None:
                nonlocal answered
                answered = True
                on_reply(log_start, log_end)

            self._send(leader.me, me, back)

        def give_up() -> None:
            if not answered:
                on_lost()

        self._send(me, effect.leader, at_leader)
        self.after(REPLY_TIMEOUT_MS, follower, give_up)

    # -- the store ---------------------------------------------------------------------------------------------------

    def _on_store_change(self) -> None:
        revision, image, brokers = self.store.revision, self.store.image, self.store.brokers
        self.trace(
            "store %s: leader %s epoch %s isr %s elr %s live %s",
            revision,
            image.leader,
            image.leader_epoch,
            image.isr,
            image.elr,
            sorted(brokers),
        )
        self._check_candidates()
        for replica in self.replicas.values():
            if replica.is_up:
                delay = self.rng.randint(0, self.odds.watch_ms_max)
                self.after(delay, replica, partial(replica.on_store, revision, image, brokers))

    def read_store(self, replica: Replica) -> None:
        def read() -> None:
            store = self.store
            seen = partial(replica.on_store, store.revision, store.image, store.brokers)
            self.after(self.rng.randint(0, 20), replica, seen)

        self.at(self.rng.randint(0, 20), read)

    def write_store(
        self,
        replica: Replica,
        proposal: ProposeIsr,
        *,
        on_written: Callable[[int], None],
        on_failed: OnFailed,
    ) -> None:
        """It may be lost, or carried out long after the writer gave up."""
        is_settled = False

        def settle(revision: int | None) -> None:
            nonlocal is_settled
            if is_settled:
                return
            is_settled = True
            if revision is None:
                on_failed(is_known=True)
            else:
                on_written(revision)

        def apply() -> None:
            revision = self.store.write(proposal.image, registered=proposal.joiners)
            if self.rng.random() >= self.odds.store_lost:
                self.after(self.rng.randint(0, 20), replica, lambda: settle(revision))

        def give_up() -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                on_failed(is_known=False)

        if self.held_writes is not None:
            self.held_writes.append(apply)
        elif self.rng.random() >= self.odds.store_lost:
            self.at(self._delay_ms(late=self.odds.store_late), apply)
        self.after(STORE_TIMEOUT_MS, replica, give_up)

    # -- the controller ----------------------------------------------------------------------------------------------

    def control(self) -> None:
        """It looks, thinks, and writes: in between others may have written."""
        seen, live = self.store.image, set(self.store.brokers)
        wanted = settled(
            seen,
            live,
            min_isr=self.min_isr,
            choose=self.rng.choice,
            rules=self.controller_rules,
        )
        if wanted is not seen:
            self.at(self.rng.randint(0, 30), lambda: self._write(wanted))
        self.at(self.rng.randint(10, 60), self.control)

    def _write(self, wanted: PartitionImage) -> None:
        # Refused if anybody has written since: it looks again.
        self.store.write(wanted)

    def elect(self, leader: BrokerId | None = None) -> None:
        """Move leadership to a member of the ISR; to the same one also means a new epoch."""
        image = self.store.image
        live = [broker for broker in image.isr if broker in self.store.brokers]
        if not live:
            return
        chosen = leader if leader is not None else self.rng.choice(live)
        self.store.write(led_by(chosen, image, self.controller_rules))

    def move(self, broker: BrokerId) -> None:
        """A replica more; when it has joined, one of the others goes."""
        image = self.store.image
        if broker not in image.replicas and not image.adding:
            replicas = (*image.replicas, broker)
            self.store.write(replace(image, replicas=replicas, adding=(broker,)))

    def elect_again(self, leader: BrokerId | None) -> None:
        if leader in self.store.image.isr and leader in self.store.brokers:
            self.elect(leader)

    def set_min_isr(self, min_isr: int, *, told_within_ms: int = 0) -> None:
        """The controller knows it at once, the brokers a little later."""
        self.trace("min.insync.replicas is %s", min_isr)
        self.min_isr = min_isr
        self._min_isr_least = min(self._min_isr_least, min_isr)
        for replica in self.replicas.values():
            self.after(self.rng.randint(0, told_within_ms), replica, replica.on_settings)

    # -- faults ------------------------------------------------------------------------------------------------------

    def boot(self, broker: BrokerId) -> None:
        """Start a broker. Before it registers it gives up what it led, and after a bad crash what it seemed to have."""
        replica, image = self.replicas[broker], self.store.image
        is_first = replica.incarnation == 0
        wanted = image
        # Under respool.flush=always it has all it ever said. Brokers do not rely on that: it may be another disk.
        may_stay = self.is_synced or replica.was_stopped_cleanly
        is_believed = broker in image.isr or broker in image.elr
        if is_believed and not may_stay and self.controller_rules.removes_after_crash:
            wanted = without(
                image, {broker}, min_isr=self.min_isr, lost=(broker,), rules=self.controller_rules
            )
        if not is_first and self.must_give_up(broker, wanted):
            wanted = led_by(None, wanted, self.controller_rules)
        if wanted is not image:
            self.store.write(wanted)
        replica.start(self.store.register(broker))
        self.read_store(replica)

    def must_give_up(self, broker: BrokerId, wanted: PartitionImage) -> bool:
        return wanted.leader == broker

    def crash(self, broker: BrokerId, *, kept_end: Offset | None, back_after_ms: int) -> None:
        replica = self.replicas[broker]
        if not replica.is_up:
            return
        self.trace("%s crashes, keeps up to %s of %s", broker, kept_end, replica.log.log_end)
        epoch = replica.broker_epoch
        replica.stop(kept_end=kept_end)
        self.at(LEASE_MS, lambda: self.store.expire(broker, epoch))
        self.at(back_after_ms, lambda: self._boot_if_down(broker))

    def stop(self, broker: BrokerId, *, back_after_ms: int) -> None:
        """A clean stop."""
        replica = self.replicas[broker]
        if not replica.is_up:
            return
        self.trace("%s stops", broker)
        replica.log.durable_end = replica.log.log_end
        replica.checkpoint_high_watermark()
        replica.stop(kept_end=None)
        self.store.expire(broker, replica.broker_epoch)
        self.at(back_after_ms, lambda: self._boot_if_down(broker))

    def _boot_if_down(self, broker: BrokerId) -> None:
        if not self.replicas[broker].is_up:
            self.trace("%s boots", broker)
            self.boot(broker)

    def pause(self, broker: BrokerId, duration_ms: int) -> None:
        """The process is frozen; for longer than its lease, others take it for dead and it does not know."""
        replica = self.replicas[broker]
        if not replica.is_up:
            return
        self.trace("%s is frozen for %s", broker, duration_ms)
        replica.paused_until_ms = max(replica.paused_until_ms, self.now_ms + duration_ms)
        if duration_ms > LEASE_MS:
            self.lose_lease(replica, until_ms=replica.paused_until_ms)

    def lose_lease(self, replica: Replica, *, until_ms: int) -> None:
        epoch, incarnation = replica.broker_epoch, replica.incarnation
        self.at(LEASE_MS, lambda: self.store.expire(replica.me, epoch))

        def register_again() -> None:
            is_same = replica.is_up and replica.incarnation == incarnation
            if is_same and replica.broker_epoch == epoch and replica.me not in self.store.brokers:
                # The same process under a new lease. It has lost nothing.
                replica.broker_epoch = self.store.register(replica.me)

        self.at(until_ms - self.now_ms + self.rng.randint(1, 50), register_again)

    def cut(self, pairs: set[tuple[BrokerId, BrokerId]], duration_ms: int) -> None:
        self.trace("cut %s", sorted(pairs))
        self.cuts |= pairs
        self.at(duration_ms, lambda: self.cuts.difference_update(pairs))

    # -- clients -----------------------------------------------------------------------------------------------------

    def produce(self, broker: BrokerId | None = None, *, wants_all: bool = True) -> int | None:
        """To a broker that believes that it leads, also if it is wrong; the value, if it was taken."""
        leaders = [
            replica
            for replica in self.replicas.values()
            if replica.is_up
            and isinstance(replica.role, Leader)
            and self.now_ms >= replica.paused_until_ms
            and (broker is None or replica.me == broker)
        ]
        if not leaders:
            return None
        self._next_value += 1
        value = self._next_value
        return value if self.rng.choice(leaders).produce(value, wants_all=wants_all) else None

    def on_acknowledged(self, replica: Replica, produce: PendingProduce) -> None:
        self.checker.on_acknowledged(
            replica.me,
            produce.offset,
            produce.value,
            acknowledged_before=produce.acknowledged_before,
        )
        self._check_copies(replica, produce)

    # -- checks ------------------------------------------------------------------------------------------------------

    def on_high_watermark(self, replica: Replica, before: Offset) -> None:
        self.checker.on_high_watermark(replica.me, replica.log, before, replica.high_watermark)
        if isinstance(replica.role, Leader):
            self._check_candidates()

    def on_truncating(self, replica: Replica, offset: Offset, *, is_anew: bool) -> None:
        if offset < replica.high_watermark:
            raise Violation(
                f"{replica.me} cuts off at {offset}, its high watermark is {replica.high_watermark}"
            )

    def _check_copies(self, replica: Replica, produce: PendingProduce) -> None:
        """What is acknowledged is on as many disks as were asked for."""
        if not self.is_synced:
            return
        copies = [
            one.me
            for one in self.replicas.values()
            if produce.offset < one.log.durable_end
            and (
                produce.offset < one.log.log_start
                or one.log.entries[produce.offset - one.log.log_start][1] == produce.value
            )
        ]
        if len(copies) < self.store.image.min_isr(self._min_isr_least):
            raise Violation(f"{produce.value} at {produce.offset} is only on {copies}")

    def _check_candidates(self) -> None:
        """Whoever may be elected has all that is committed; and a leader reckons with everyone in the ISR."""
        image = self.store.image
        for broker in (*image.isr, *image.elr):
            replica = self.replicas[broker]
            log = replica.log
            if self.is_synced:
                self.checker.check_complete(broker, log, log.durable_end, "may be elected")
            elif replica.is_up:
                self.checker.check_complete(broker, log, log.log_end, "may be elected")
        for replica in self.replicas.values():
            role = replica.role
            if isinstance(role, Leader) and role.leader_epoch == image.leader_epoch:
                self.checker.check_maximal(replica.me, role.in_sync, image)
