"""Looks at the share partitions inside of brokers: their invariants, and what a member holds there."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from respool.broker.share.share_partition import SharePartition
from respool.broker.share.share_sessions import SessionKey
from respool.broker.share.shares import Shares
from respool.coordination.share.in_flight import HELD
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import ARCHIVING
from respool.model.errors import RequestError
from respool.model.ids import TopicPartition
from respool.sim.checks.history import History
from respool.sim.machine import Machine

LOOK_EVERY_S = 0.1


class QueueWatch:
    def __init__(
        self, *, machines: Sequence[Machine], history: History, batch_records_max: int
    ) -> None:
        """`batch_records_max`: a batch is acquired as a whole, so as many may be unfinished beyond the limit."""
        self._machines = machines
        self._history = history
        self._batch_records_max = batch_records_max
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._watch())

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        for _, share, machine in self._loaded():
            self._check(share, machine)

    def _loaded(self) -> Iterator[tuple[Shares, SharePartition, SharePartitionMachine]]:
        for one in self._machines:
            broker = one.broker
            for share in () if broker is None else broker.shares:
                if share.is_gone or not share.is_loaded or not share.partition.is_leading:
                    continue
                try:
                    machine = share.machine()
                except RequestError:
                    continue
                assert broker is not None
                yield broker.shares, share, machine

    def _check(self, share: SharePartition, machine: SharePartitionMachine) -> None:
        expected, unfinished, held, dying = machine.start, 0, 0, 0
        for first, run in machine.runs():
            if first != expected or run.last < first:
                self._violate(
                    "Q1", share, f"{first} to {run.last} comes where {expected} should be"
                )
            expected, count = type(expected)(run.last + 1), run.last - first + 1
            unfinished += 0 if run.is_finished else count
            held += count if run.state == HELD else 0
            dying += count if run.state == ARCHIVING else 0
            if (run.state == HELD) > (run.lock is not None):
                self._violate("Q1", share, f"{first} to {run.last} is held by nobody")
        if expected != machine.end:
            self._violate("Q1", share, f"the last one is {expected - 1}, the end {machine.end}")
        found = (machine.unfinished, machine.held, machine.dying)
        if found != (unfinished, held, dying):
            self._violate("Q1", share, f"counts {found}, there are {unfinished, held, dying}")
        limit = machine.settings.record_locks_max + self._batch_records_max
        if unfinished > limit:
            self._violate("Q6", share, f"{unfinished} records are unfinished, of {limit}")

    def _violate(self, rule: str, share: SharePartition, text: str) -> None:
        self._history.violate(rule, f"{share.key.group}: {share.partition.name}: {text}")

    def kept(self, group: str, name: TopicPartition, member: str) -> Callable[[], bool] | None:
        """Whether what the member holds is held still: neither its session nor what is loaded has ended."""
        for shares, share, _ in self._loaded():
            session = shares.sessions.of_member(SessionKey(group, member))
            if share.key.group == group and share.partition.name == name and session is not None:
                return lambda: session.is_open and not share.is_gone and self._is_running(shares)
        return None

    def _is_running(self, shares: Shares) -> bool:
        """What a killed broker had in memory still says what it said."""
        return any(one.broker is not None and one.broker.shares is shares for one in self._machines)

    def states(self) -> Mapping[str, str]:
        """For a report: what is loaded, by group and partition."""
        return {
            f"{share.key.group} {share.partition.name}": f"{machine.start} to {machine.end}: {machine.runs()}"
            for _, share, machine in self._loaded()
        }
