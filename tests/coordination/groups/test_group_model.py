"""One group under random members, clocks and crashes of clients and coordinator.

What must never be seen is named as in RELIABILITY.md: B1, B2, B3, B7, B8, C14.
"""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from coordination.group_world import FUZZ, GROUP, SESSION_MS, TOPIC, GroupWorld
from coordination.sim_client import PARTITIONS, SimClient, Vice
from respool.coordination.decision import Decision, Ticket
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.group_records import StoredGroup, read_group_value, write_group_key
from respool.coordination.groups.group_requests import (
    FenceGroup,
    GroupRequest,
    GroupState,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.ids import Offset
from support.model_runs import run_machine

CLIENTS_MAX = 5
REBALANCE_MS = 12_000
TICK_MS = 1_000
# Pending members, a join phase, a sync phase, sessions of those who crashed, and all that a second time.
SETTLE_TICKS = 3 * (SESSION_MS + 2 * REBALANCE_MS) // TICK_MS

clients = st.integers(0, CLIENTS_MAX - 1)
partitions = st.sampled_from(PARTITIONS)
offsets = st.integers(0, 100)


class LaggingWorld(GroupWorld):
    """Replies are held back until the log is committed, and what is not committed can be lost."""

    def __init__(self) -> None:
        self.is_lagging = False
        self.committed_end = 0
        self._held: list[tuple[Ticket, Any]] = []
        super().__init__()

    def carry_out(self, decision: Decision) -> None:
        held = Decision(records=decision.records, timers=decision.timers)
        super().carry_out(held)
        self._held += ((answer.ticket, answer.reply) for answer in decision.answers)
        if not self.is_lagging:
            self.catch_up()

    def catch_up(self) -> None:
        self.committed_end = len(self.log)
        for ticket, reply in self._held:
            assert ticket not in self.replies
            self.replies[ticket] = reply
        self._held.clear()

    @property
    def held_tickets(self) -> set[Ticket]:
        return {ticket for ticket, _ in self._held}

    def crash(self, *, keeping: int) -> None:
        """The coordinator starts again with what was committed and `keeping` records more."""
        del self.log[self.committed_end + keeping :]
        self._held.clear()
        self.reload()


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LaggingWorld()
        self.clients: list[SimClient] = []
        # Requests not answered yet, of this coordinator.
        self.open_tickets: set[Ticket] = set()
        # What was committed, with where in the log it is.
        self.commits: list[tuple[int, int, int]] = []

    # --- what clients do

    @initialize(instances=st.lists(st.sampled_from([None, "i1", "i2"]), max_size=3))
    def begin_with_a_group(self, instances: list[str | None]) -> None:
        for instance in instances:
            self.start_client(instance, ("range", "sticky"), is_old=False, vice=Vice.NONE)
        self.live(10)

    @rule(
        instance=st.sampled_from([None, "i1", "i2"]),
        # All know both. The log has only the chosen one of each member, so who knows one only may be refused by a
        # coordinator that has just started, as with Kafka.
        protocols=st.sampled_from([("range", "sticky"), ("sticky", "range")]),
        is_old=st.booleans(),
        vice=st.sampled_from([Vice.NONE, Vice.NONE, *Vice]),
    )
    def start_client(
        self, instance: str | None, protocols: tuple[str, ...], *, is_old: bool, vice: Vice
    ) -> None:
        if instance is not None and vice is Vice.NEVER_REJOINS:
            # Its session keeps its place, as with Kafka. On its own it would rebalance for ever, to nobody's harm.
            vice = Vice.NONE
        if sum(client.is_alive for client in self.clients) < CLIENTS_MAX:
            self.clients.append(
                SimClient(
                    self.ask,
                    instance_id=instance,
                    protocols=protocols,
                    rebalance_timeout_ms=REBALANCE_MS,
                    is_old=is_old,
                    vice=vice,
                )
            )

    @rule(number=clients, count=st.integers(1, 4))
    def step_client(self, number: int, count: int) -> None:
        client = self.client(number)
        for _ in range(count):
            if client is not None:
                self.take_reply(client)
                client.step()

    @rule(ticks=st.integers(1, 30))
    def live_a_while(self, ticks: int) -> None:
        self.live(ticks)

    @rule()
    def step_all(self) -> None:
        for client in self.clients:
            self.take_reply(client)
            client.step()

    @rule(number=clients, luck=st.booleans())
    def kill_client(self, number: int, luck: bool) -> None:
        client = self.client(number)
        if client is not None and luck:
            client.is_alive = False

    @rule(number=clients, ticks=st.integers(1, 5))
    def bounce_static_client(self, number: int, ticks: int) -> None:
        client = self.client(number)
        if client is not None and client.instance_id is not None:
            client.is_alive = False
            self.start_client(
                client.instance_id, client.protocols, is_old=client.is_old, vice=Vice.NONE
            )
            self.live(ticks)

    @rule(number=clients)
    def stop_client(self, number: int) -> None:
        client = self.client(number)
        if client is not None and client.member_id:
            client.leave()

    @rule(number=clients)
    def cut_connection(self, number: int) -> None:
        client = self.client(number)
        if client is not None:
            client.lose_connection()

    @rule(number=clients, partition=partitions, offset=offsets)
    def commit(self, number: int, partition: int, offset: int) -> None:
        client = self.client(number)
        if client is None or client.ticket is not None or client.generation < 0:
            return
        group = self.group
        is_current = (
            group is not None
            and group.generation == client.generation
            and client.member_id in group.members
            and group.state is not GroupState.COMPLETING_REBALANCE
        )
        position = len(self.world.log)
        client.commit(partition, offset)
        # B2: accepted exactly from current members.
        assert (len(self.world.log) > position) == is_current
        if is_current:
            self.commits.append((position, partition, offset))

    # --- what others do

    @rule(partition=partitions, offset=offsets)
    def commit_with_a_tool(self, partition: int, offset: int) -> None:
        position = len(self.world.log)
        is_empty = self.group is None or self.group.state is GroupState.EMPTY
        topics = (TopicToCommit(TOPIC, (OffsetToCommit(partition, Offset(offset)),)),)
        self.ask(OffsetCommit(group_id=GROUP, topics=topics))
        assert (len(self.world.log) > position) == is_empty
        if is_empty:
            self.commits.append((position, partition, offset))

    @rule(partition=partitions, offset=offsets, luck=st.integers(0, 5))
    def force_a_reset(self, partition: int, offset: int, luck: int) -> None:
        # Seldom: it takes all the group has come to.
        if luck < 5:
            return
        topics = (TopicToCommit(TOPIC, (OffsetToCommit(partition, Offset(offset)),)),)
        self.commits.append((len(self.world.log), partition, offset))
        self.ask(FenceGroup(group_id=GROUP, topics=topics))
        assert self.group is None or not self.group.members

    @rule(ms=st.sampled_from([1, 100, 2_999, 3_000, 5_000, SESSION_MS - 1, SESSION_MS, 20_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def fall_behind(self) -> None:
        self.world.is_lagging = True

    @rule()
    def catch_up(self) -> None:
        self.world.is_lagging = False
        self.world.catch_up()

    @rule(keeping=st.integers(0, 5))
    def crash_coordinator(self, keeping: int) -> None:
        keeping = min(keeping, len(self.world.log) - self.world.committed_end)
        self.world.crash(keeping=keeping)
        end = len(self.world.log)
        self.commits = [commit for commit in self.commits if commit[0] < end]
        self.open_tickets.clear()
        for client in self.clients:
            if client.ticket is not None and not self.world.has_reply(client.ticket):
                client.lose_connection()
            # The log does not say who had synced, so nobody can tell any more that this one never will.
            if client.vice is Vice.NEVER_SYNCS and client.member_id:
                client.is_alive = False

    @precondition(lambda self: any(client.is_alive for client in self.clients))
    @rule()
    def settle(self) -> None:
        """B8: when everybody alive does its part, the group comes to rest; B7: and stays there."""
        self.catch_up()
        self.live(SETTLE_TICKS)
        alive = [client for client in self.clients if client.is_alive]
        assert all(client.is_settled for client in alive)
        if not alive:
            assert self.group is None or self.group.state is GroupState.EMPTY
            return
        assert self.group is not None
        assert self.group.state is GroupState.STABLE
        assert set(self.group.members) == {client.member_id for client in alive}
        owned = [partition for client in alive for partition in client.owned or ()]
        assert sorted(owned) == list(PARTITIONS)

        generation = self.group.generation
        self.world.crash(keeping=0)
        self.open_tickets.clear()
        for client in self.clients:
            client.lose_connection()
        self.live(3 * SESSION_MS // TICK_MS)
        assert self.group.generation == generation
        assert self.group.state is GroupState.STABLE

    def live(self, ticks: int) -> None:
        for _ in range(ticks):
            self.world.advance(TICK_MS)
            self.step_all()

    # --- what must always hold

    @invariant()
    def offsets_are_what_was_committed_last(self) -> None:
        """B3."""
        expected = dict.fromkeys(PARTITIONS, -1) | {p: offset for _, p, offset in self.commits}
        for shard in (self.world.shard, self.world.folded()):
            found = shard._offsets._groups.get(GROUP, {}).get(TOPIC)
            stored = {} if found is None else found.values
            offsets = {
                p: -1 if p not in stored else int.from_bytes(stored[p][2:10], "big")
                for p in PARTITIONS
            }
            assert offsets == expected

    @invariant()
    def what_is_stored_is_the_fold_of_the_log(self) -> None:
        """C14."""
        folded = self.world.folded()._classic.groups.get(GROUP)
        stored = None if self.group is None else self.group.stored
        assert stored == (None if folded is None else folded.stored)

    @invariant()
    def every_partition_has_one_owner_in_a_stable_group(self) -> None:
        """B1."""
        group = self.group
        if group is None or group.state is not GroupState.STABLE:
            return
        assert group.stored is not None
        assert group.generation == group.stored.generation
        assert list(group.members) == [member.member_id for member in group.stored.members]
        shares = {member.member_id: member.assignment for member in group.stored.members}
        assert sorted(b"".join(shares.values())) == list(PARTITIONS)
        for client in self.clients:
            if client.member_id in shares and client.generation == group.generation:
                assert client.owned is None or client.owned == frozenset(shares[client.member_id])

    @invariant()
    def a_new_sharing_out_has_a_new_generation(self) -> None:
        key = write_group_key(GROUP)
        last: StoredGroup | None = None
        for record in self.world.log:
            if record.key != key:
                continue
            # Long empty, and gone: who joins then begins another group of that name.
            stored = None if record.value is None else read_group_value(record.value)
            if stored is not None and last is not None and stored.generation <= last.generation:
                # The one exception: a static member has taken its own place again.
                assert stored.generation == last.generation
                assert shares_by_instance(stored) == shares_by_instance(last)
            last = stored

    @invariant()
    def every_request_is_answered_or_waits_in_the_group(self) -> None:
        answered = {ticket for ticket in self.open_tickets if self.world.has_reply(ticket)}
        self.open_tickets -= answered
        waiting = self.open_tickets - self.world.held_tickets
        group = self.group
        known = (
            set()
            if group is None
            else {*group.joins_waiting.values(), *group.syncs_waiting.values()}
        )
        assert waiting == known

    @invariant()
    def the_timer_rings_before_every_deadline(self) -> None:
        group = self.group
        if group is None:
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.joins_waiting.keys() <= group.members.keys()
        assert group.syncs_waiting.keys() <= group.members.keys()
        deadlines = [*group.pending_joins.values()]
        deadlines += (
            member.expires_at_ms
            for member in group.members.values()
            if member.is_new or not group.is_waiting(member)
        )
        deadlines += (due for due in (group.join_due_ms, group.sync_due_ms) if due is not None)
        if deadlines:
            assert self.world.timers[("classic group", GROUP)] <= min(deadlines)
        assert not group.members or deadlines

    # --- helpers

    @property
    def group(self) -> ClassicGroup | None:
        return self.world.shard._classic.groups.get(GROUP)

    def client(self, number: int) -> SimClient | None:
        alive = [client for client in self.clients if client.is_alive]
        return alive[number % len(alive)] if alive else None

    def ask(self, request: GroupRequest) -> Ticket:
        ticket = self.world.ask(request)
        self.open_tickets.add(ticket)
        return ticket

    def take_reply(self, client: SimClient) -> None:
        if client.is_alive and client.ticket is not None and self.world.has_reply(client.ticket):
            client.on_reply(self.world.replies[client.ticket])

    def teardown(self) -> None:
        if any(client.is_alive for client in self.clients):
            self.settle()


def shares_by_instance(stored: StoredGroup) -> dict[str, bytes]:
    return {member.instance_id or member.member_id: member.assignment for member in stored.members}


def test_a_group_under_random_members_clocks_and_crashes() -> None:
    run_machine(GroupMachine, examples=60, steps=40)


@pytest.mark.long
@pytest.mark.skipif(not FUZZ, reason="make fuzz")
@pytest.mark.timeout(3_600)
def test_a_group_under_random_members_clocks_and_crashes_at_length() -> None:
    run_machine(GroupMachine, examples=1_500, steps=60)
