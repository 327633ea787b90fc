"""Hurts a cluster of real processes at random: kills, pauses and stops them, and cuts the links between them.

All choices come from a seed and are kept as lines of text. The moments they meet are those of real processes: a seed
repeats the troubles, not the run.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from support.broker_cluster import BrokerCluster
from support.links import Link, Way
from support.waiting import wait_until

HEAL_SECONDS_MAX = 90.0
# Nobody may be there to lead in its place, and requests that cannot be answered are waited for too.
STOP_SECONDS_MAX = 60.0
NO_ETCD = "no etcd member replies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    kind: str
    target: str
    begin: Callable[[], object]
    end: Callable[[], object]


class Nemesis:
    """`run` for a while, in any thread; afterwards everything is whole again, or about to be."""

    def __init__(self, cluster: BrokerCluster, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self._cluster = cluster
        self._rng = random.Random(seed)

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            troubles = self._choose()
            hold = min(left, self._hold_seconds())
            what = " and ".join(f"{one.kind} {one.target}" for one in troubles)
            self.story.append(f"{time.monotonic() - began:6.1f} s: {what} for {hold:.2f} s")
            # Also when one of them goes wrong: who waits for the cluster then must not wait for ever.
            with ExitStack() as ends:
                for one in troubles:
                    one.begin()
                    ends.callback(one.end)
                    self.counts[one.kind] += 1
                time.sleep(hold)
            self._start_again()
            time.sleep(self._rng.uniform(0.1, 1.5))

    def _hold_seconds(self) -> float:
        """Mostly too short to be taken for dead, sometimes long enough."""
        ttl = self._cluster.session_ttl_s
        if self._rng.random() < 0.6:
            return self._rng.uniform(0.05, ttl / 2)
        return self._rng.uniform(ttl / 2, ttl * 1.8)

    def _choose(self) -> list[Trouble]:
        troubles = [self._one()]
        if self._rng.random() < 0.3:
            second = self._one()
            if second.target != troubles[0].target:
                troubles.append(second)
        # What begins first ends last: a broker that stops needs etcd for it.
        return sorted(troubles, key=lambda one: one.kind != "stop")

    def _one(self) -> Trouble:
        if self._rng.random() < 0.7:
            return self._trouble_for_broker(self._rng.choice(list(self._cluster.brokers)))
        return self._trouble_for_etcd(self._rng.randrange(len(self._cluster.etcd.members)))

    def _trouble_for_broker(self, number: int) -> Trouble:
        door, to_etcd = self._cluster.doors[number], self._cluster.to_etcd[number]
        begin, end = {
            "kill": (lambda: self._kill(number), lambda: self._revive(number)),
            "stop": (
                lambda: self._signal(number, signal.SIGTERM),
                lambda: self._after_stop(number),
            ),
            "pause": (
                lambda: self._signal(number, signal.SIGSTOP),
                lambda: self._signal(number, signal.SIGCONT),
            ),
            "cut": self._cut([door]),
            "cut from etcd": self._cut(to_etcd),
            "cut from one etcd member": self._cut([self._rng.choice(to_etcd)]),
            "isolate": self._cut([door, *to_etcd]),
        }[kind := self._rng.choice(BROKER_TROUBLES)]
        return Trouble(kind=kind, target=f"broker {number}", begin=begin, end=end)

    def _trouble_for_etcd(self, number: int) -> Trouble:
        member = self._cluster.etcd.members[number]
        begin, end = {
            "kill etcd": (member.kill, member.start),
            "pause etcd": (member.pause, member.go_on),
            "cut etcd": self._cut([self._cluster.etcd_peers[number]]),
        }[kind := self._rng.choice(ETCD_TROUBLES)]
        return Trouble(kind=kind, target=f"member {number}", begin=begin, end=end)

    def _cut(self, links: list[Link]) -> tuple[Callable[[], object], Callable[[], object]]:
        how = self._rng.choice(("freeze", "freeze", "refuse", "requests", "replies"))

        def begin() -> None:
            for link in links:
                if how == "refuse":
                    link.refuse()
                elif how == "freeze":
                    link.freeze()
                else:
                    link.freeze(Way(how))

        def end() -> None:
            for link in links:
                link.heal()

        return begin, end

    def _signal(self, number: int, name: signal.Signals) -> None:
        broker = self._cluster.brokers[number]
        if broker.is_running:
            broker.send_signal(name)

    def _kill(self, number: int) -> None:
        broker = self._cluster.brokers[number]
        if broker.is_running:
            broker.kill()

    def _after_stop(self, number: int) -> None:
        """It may take a while to end, for it waits until others lead in its place."""
        broker = self._cluster.brokers[number]
        # One that has only just been started does not listen to signals yet, and may have given up by itself.
        code = broker.wait_for_end(STOP_SECONDS_MAX)
        said = broker.log.splitlines()[-1]
        is_fine = code in {0, -signal.SIGTERM} or NO_ETCD in said
        assert is_fine, f"broker {number} stopped with {code}: {said}"
        broker.launch()

    def _revive(self, number: int) -> None:
        broker = self._cluster.brokers[number]
        if not broker.is_running:
            broker.launch()

    def heal(self) -> None:
        """Make everything whole, and wait until it is."""
        self._cluster.etcd.heal()

        def is_well() -> bool:
            self._start_again()
            return self._cluster.is_well()

        wait_until(is_well, "the cluster is well again", seconds=HEAL_SECONDS_MAX)
        self._cluster.wait_until_well()

    def _start_again(self) -> None:
        """As whoever looks after services does: a broker that finds no etcd when it starts gives up."""
        for number, broker in self._cluster.brokers.items():
            if broker.has_ended_by_itself:
                code = broker.wait_for_end()
                said = broker.log.splitlines()[-1]
                assert NO_ETCD in said, f"broker {number} ended by itself with {code}: {said}"
                self.counts["start without etcd"] += 1
                broker.launch()


BROKER_TROUBLES = (
    "kill",
    "kill",
    "stop",
    "pause",
    "pause",
    "cut",
    "cut",
    "cut from etcd",
    "cut from one etcd member",
    "isolate",
)
ETCD_TROUBLES = ("kill etcd", "pause etcd", "cut etcd")


@contextmanager
def told(nemesis: Nemesis) -> Iterator[None]:
    """A failure inside tells what was done to the cluster."""
    try:
        yield
    except BaseException as error:
        error.add_note("what the nemesis did:\n" + "\n".join(nemesis.story))
        raise
