"""Transactions under random histories: several clients, power cuts at any sync, full disks, time-outs, zombies.

A client here does what a careful one does: it sends again what was not answered, asks again for an end whose answer was
lost, and starts anew when it is fenced. Whatever happens, readers of committed records must see each transaction whole
or not at all, in the same order for ever, and no request may hang.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    NEW,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OLD,
    PRODUCER_FENCED,
    STORAGE_ERROR,
    TIMEOUT_MS,
    Producer,
    fetch_offsets,
    has_open_transaction,
    last_stable_offset,
    let_pass,
    read,
    release,
    restart,
    retry_at_once,
    settle,
    start_with_transactions,
    wait_until_loaded,
)
from respool.wire.api_table import Api

EXAMPLES = 1_500 if os.environ.get("RESPOOL_FUZZ") == "long" else 25
HOLD_MS = 1_000
WORKS_MAX = 50

FENCED = {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
PASSING = {
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    CONCURRENT_TRANSACTIONS,
    STORAGE_ERROR,
}
Name = tuple[str, int]
NAMES: tuple[Name, ...] = (("rides", 0), ("rides", 1), ("fares", 0))


@dataclass(eq=False)
class Attempt:
    """One transaction, as its client knows it."""

    sent: list[tuple[Name, bytes]] = field(default_factory=list)
    acked: list[tuple[Name, bytes]] = field(default_factory=list)
    offset: int | None = None
    # None: its end was never asked for.
    wish: bool | None = None
    is_told: bool = False


class Client:
    def __init__(self, broker: RunningBroker, name: str, speaks: dict[str, int]) -> None:
        self.broker = broker
        self.name = name
        self.speaks = speaks
        self.attempts: list[Attempt] = []
        self.zombies: list[Producer] = []
        self._producer: Producer | None = None
        self._current: Attempt | None = None
        self._ending: Attempt | None = None
        # Sent and not answered: it must be sent again before anything else.
        self._unacked: tuple[Name, bytes] | int | None = None
        self._count = 0

    async def write(self, name: Name) -> None:
        if await self._is_ready():
            self._count += 1
            self._unacked = (name, f"{self.name}.{self._count}".encode())
            self._attempt.sent.append(self._unacked)
            await self._send_unacked()

    async def commit_offset(self) -> None:
        if await self._is_ready():
            self._count += 1
            self._unacked = self._count
            await self._send_unacked()

    async def end(self, *, is_commit: bool) -> None:
        if await self._is_ready() and self._current is not None:
            self._ending, self._current = self._current, None
            self._ending.wish = is_commit
            await self._ask_for_the_end()

    async def start_anew(self) -> None:
        """Another process of the same name takes over."""
        producer = Producer(self.broker, self.name, speaks=self.speaks, init=False)
        reply = await producer.init_()
        if reply.error_code:
            assert reply.error_code in PASSING, reply
            return
        if self._producer is not None:
            self.zombies.append(self._producer.zombie())
        self._forget()
        self._producer = producer

    async def haunt(self) -> None:
        """A process that was replaced, or found itself fenced, tries everything once more."""
        for zombie in self.zombies[-2:]:
            codes = [
                (await zombie.send_("rides", 0, b"zombie")).error_code,
                *await zombie.commit_offsets_(self.name, ("rides", 0, 666)),
                (await zombie.end_(commit=True)).error_code,
            ]
            assert set(codes) <= FENCED | PASSING, codes

    @property
    def _attempt(self) -> Attempt:
        if self._current is None:
            self._current = Attempt()
            self.attempts.append(self._current)
        return self._current

    async def _is_ready(self) -> bool:
        """Finish what is unfinished. Says whether there is nothing left of it."""
        if self._producer is None:
            await self.start_anew()
        if self._producer is not None and self._ending is not None:
            await self._ask_for_the_end()
        if self._producer is not None and self._unacked is not None:
            await self._send_unacked()
        return self._producer is not None and self._ending is None and self._unacked is None

    async def _send_unacked(self) -> None:
        unacked, attempt, producer = self._unacked, self._attempt, self._producer
        assert producer is not None
        assert unacked is not None
        if isinstance(unacked, int):
            if not producer.is_new and not self._is_fine(await producer.add_offsets_(self.name)):
                return
            offsets = await producer.commit_offsets_(self.name, ("rides", 0, unacked))
            if self._is_fine(*offsets):
                attempt.offset, self._unacked = unacked, None
            return
        name, value = unacked
        if not producer.is_new and not self._is_fine(*(await producer.add_(name)).values()):
            return
        if self._is_fine((await producer.send_(*name, value)).error_code):
            attempt.acked.append(unacked)
            self._unacked = None

    async def _ask_for_the_end(self) -> None:
        assert self._producer is not None
        assert self._ending is not None
        reply = await self._producer.end_(commit=bool(self._ending.wish))
        if self._is_fine(reply.error_code):
            assert self._ending is not None
            self._ending.is_told = True
            self._ending = None

    def _is_fine(self, *codes: int) -> bool:
        assert set(codes) <= {0} | FENCED | PASSING, codes
        if set(codes) & FENCED:
            assert self._producer is not None
            self.zombies.append(self._producer.zombie())
            self._forget()
        return set(codes) == {0}

    def _forget(self) -> None:
        self._producer = self._current = self._ending = self._unacked = None


class History:
    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.clients = [
            Client(broker, "old", OLD),
            Client(broker, "new", NEW),
            Client(broker, "newer", NEW),
        ]
        self._seen: dict[Name, list[bytes]] = {name: [] for name in NAMES}
        self._stable: dict[Name, int] = dict.fromkeys(NAMES, 0)

    def step(self, mode: "Mode", works: int, acts: "list[Act]") -> None:
        """Clients act at the same time, each in order, while something happens to the broker."""
        by_client: dict[int, list[Act]] = {}
        for act in acts:
            by_client.setdefault(act[0], []).append(act)
        if mode != "calm":
            self.broker.offload.hold()
        tasks = [self.broker.start(self._act(*each)) for each in by_client.values()]
        for _ in range(works):
            if self.broker.offload.held:
                release(self.broker, 1)
        if mode == "power cut":
            for task in tasks:
                task.cancel()
            restart(self.broker, crash=True)
        elif mode == "full disk":
            self.broker.disk.faults.capacity_bytes = 0
        # What was held back is done one by one, so that much can come in between.
        for _ in range(WORKS_MAX):
            if self.broker.offload.held:
                release(self.broker, 1)
        release(self.broker)
        self._calm_down()
        for task in tasks:
            assert task.done(), "a request hangs"
            if not task.cancelled():
                self.broker.finish(task)
        self.look()

    async def _act(self, *acts: "Act") -> None:
        for number, verb, place in acts:
            client = self.clients[number]
            if verb == "write":
                await client.write(NAMES[place])
            elif verb in ("commit", "abort"):
                await client.end(is_commit=verb == "commit")
            elif verb == "offset":
                await client.commit_offset()
            elif verb == "start anew":
                await client.start_anew()
            else:
                await client.haunt()

    def _calm_down(self) -> None:
        settle(self.broker)
        self.broker.disk.faults.capacity_bytes = None
        wait_until_loaded(self.broker)
        settle(self.broker)
        # Whoever waits for markers is answered after this at the latest; a client may wait several times.
        for _ in range(6):
            let_pass(self.broker, HOLD_MS)

    def look(self) -> None:
        """What readers have seen stays as it is, and they never go back."""
        for name in NAMES:
            stable, seen = last_stable_offset(self.broker, *name), read(self.broker, *name)
            assert stable >= self._stable[name]
            assert seen[: len(self._seen[name])] == self._seen[name]
            self._stable[name], self._seen[name] = stable, seen

    def close(self) -> None:
        let_pass(self.broker, TIMEOUT_MS)
        self._calm_down()
        self.look()
        listed = self.broker.ask(
            Api.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[]
        ).transaction_states
        idle = {"Empty", "CompleteCommit", "CompleteAbort"}
        assert {one.transaction_state for one in listed} <= idle
        assert not any(has_open_transaction(self.broker, *name) for name in NAMES)
        visible = [(name, value) for name in NAMES for value in self._seen[name]]
        assert len(set(visible)) == len(visible), "a record is there twice"
        for client in self.clients:
            self._check(client, set(visible))

    def _check(self, client: Client, visible: set[tuple[Name, bytes]]) -> None:
        offsets = {-1}
        for attempt in client.attempts:
            seen = visible & set(attempt.sent)
            acked = set(attempt.acked)
            if not attempt.wish:
                assert not seen, "an aborted record is visible"
            elif attempt.is_told:
                assert seen == acked, "a committed record is missing"
            else:
                assert not seen or seen == acked, "a transaction is torn"
            if attempt.offset is None or not attempt.wish:
                continue
            is_known = attempt.is_told or acked
            is_committed = attempt.is_told or bool(seen)
            if not is_known:
                offsets.add(attempt.offset)
            elif is_committed:
                offsets = {attempt.offset}
        code, offset = fetch_offsets(self.broker, client.name, "rides", 0, stable=True)
        assert code == 0
        assert offset in offsets, "the offsets are not those of the last committed transaction"


Mode = Literal["calm", "slow", "power cut", "full disk"]
Verb = Literal["write", "offset", "commit", "abort", "start anew", "haunt"]
Act = tuple[int, Verb, int]

VERBS: list[Verb] = ["write", "write", "offset", "commit", "commit", "abort", "start anew", "haunt"]
MODES: list[Mode] = ["calm", "slow", "power cut", "power cut", "full disk"]
an_act = st.tuples(st.integers(0, 2), st.sampled_from(VERBS), st.integers(0, len(NAMES) - 1))
a_step = st.tuples(st.sampled_from(MODES), st.integers(0, 8), st.lists(an_act, max_size=8))
a_pause = st.sampled_from([1_000, TIMEOUT_MS // 2, TIMEOUT_MS])
a_restart = st.just("restart")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(a_step | a_step | a_step | a_pause | a_restart, max_size=12))
def test_every_transaction_is_seen_whole_or_not_at_all(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    retry_at_once(monkeypatch)
    broker = start_with_transactions(start_broker)
    history = History(broker)
    for step in steps:
        if step == "restart":
            restart(broker, crash=False)
            history.look()
        elif isinstance(step, int):
            let_pass(broker, step)
            history.look()
        else:
            history.step(*step)
    history.close()
    assert not broker.broker.failed.done()
