"""A simulated member of a classic consumer group: joins, reads its partitions, commits; sometimes leaves or hangs."""

import json
from collections.abc import Sequence
from typing import Any

from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord
from respool.sim.checks.history import GroupView
from respool.sim.clients.consumers import SimConsumer, fetch_offset
from respool.sim.clients.sim_client import OFFSET_OUT_OF_RANGE, OK, RETRIABLE
from respool.wire.api_table import Api

ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
# The member's generation or id is outdated, so it joins again.
OUTDATED = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS})

SESSION_TIMEOUT_MS = 8_000
REBALANCE_TIMEOUT_MS = 12_000
HEARTBEAT_MS = 2_000


class GroupMember(SimConsumer):
    session_timeout_ms = SESSION_TIMEOUT_MS
    # A subscription in the consumers' format, for brokers that look into it.
    subscription = b""
    # Whether it sometimes leaves, and sometimes hangs.
    has_whims = True

    def __init__(self, name: str, *, group: str, view: GroupView, **consumer: Any) -> None:
        super().__init__(name, **consumer)
        self._group = group
        self._view = view
        self._member_id = ""
        self._generation = -1
        self._positions: dict[TopicPartition, int] = {}
        self._heard_s = 0.0

    async def work(self) -> None:
        while not self.is_winding_down:
            try:
                if not await self._join():
                    await self.pause(500)
                    continue
                await self._serve()
            except PeerUnreachable:
                await self.pause(500)
        try:
            await self._leave()
        except PeerUnreachable:
            return

    async def _serve(self) -> None:
        """Read and commit until the group rebalances."""
        for name in self._positions:
            position = await self._committed(name)
            if position is None:
                return
            self._positions[name] = position
        while not self.is_winding_down:
            if self.has_passed(self._heard_s, HEARTBEAT_MS) and not await self._heartbeat():
                return
            for name in self._positions:
                await self._read_on(name)
            if self.rng.random() < 0.4 and not await self._commit():
                return
            whim = self.rng.random() if self.has_whims else 1.0
            if whim < 0.01:
                await self._leave()
                return
            if whim < 0.02:
                # It hangs until the group has removed it, and then tries to commit what it has read.
                await self.pause(2 * SESSION_TIMEOUT_MS)
                if not await self._commit():
                    return
            await self.pause(150)

    async def _read_on(self, name: TopicPartition) -> None:
        polled = await self.poll(name, self._positions[name])
        if polled.code == OFFSET_OUT_OF_RANGE:
            self._violate("A16", name, f"there is nothing at {self._positions[name]} any more")
        if polled.code:
            await self.pause()
            return
        for offset, record in polled.records:
            self.on_record(name, offset, record)
            self._view.delivered.setdefault(name, set()).add(offset)
        self._positions[name] = polled.next_offset

    def on_record(self, name: TopicPartition, offset: int, record: NewRecord) -> None:
        self.history.on_read(name, offset, record, is_committed=self.is_committed)

    # -- membership --------------------------------------------------------------------------------------------------

    async def _join(self) -> bool:
        reply = await self._ask(
            Api.JOIN_GROUP,
            9,
            patiently=True,
            session_timeout=self.session_timeout_ms,
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "share", "metadata": self.subscription}],
            reason=None,
        )
        code = int(reply.error_code)
        if code == MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            return await self._join()
        if code == UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if not self._is_fine(code):
            return False
        self._member_id = reply.member_id
        self._generation = reply.generation_id
        self._heard_s = self.loop.time()
        members = (
            [one.member_id for one in reply.members] if reply.leader == self._member_id else []
        )
        return await self._sync(members)

    async def _sync(self, members: Sequence[str]) -> bool:
        shares: dict[str, list[TopicPartition]] = {one: [] for one in members}
        for number, name in enumerate(self.names if members else ()):
            shares[members[number % len(members)]].append(name)
        reply = await self._ask(
            Api.SYNC_GROUP,
            5,
            patiently=True,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="share",
            assignments=[
                {"member_id": one, "assignment": json.dumps(share).encode()}
                for one, share in shares.items()
            ],
        )
        if not self._is_fine(int(reply.error_code)):
            return False
        names = [TopicPartition(*one) for one in json.loads(reply.assignment or b"[]")]
        self._positions = dict.fromkeys(names, 0)
        self._on_share(set(names))
        return True

    def _on_share(self, names: set[TopicPartition]) -> None:
        view = self._view
        view.generation = max(view.generation, self._generation)
        shares = view.shares.setdefault(self._generation, {})
        for other, others in shares.items():
            if other != self._member_id and others & names:
                self.history.violate(
                    "B1", f"{self._group}: {other} and {self._member_id} both have {others & names}"
                )
        shares[self._member_id] = names
        self.history.counts["shares of groups"] += 1

    async def _heartbeat(self) -> bool:
        reply = await self._ask(
            Api.HEARTBEAT,
            4,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
        )
        self._heard_s = self.loop.time()
        return self._is_fine(int(reply.error_code))

    async def _leave(self) -> int:
        """Return the reply's error code."""
        if not self._member_id:
            return OK
        who = {"member_id": self._member_id, "group_instance_id": None, "reason": None}
        self._member_id = ""
        reply = await self._ask(Api.LEAVE_GROUP, 5, members=[who])
        return int(reply.error_code)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def _committed(self, name: TopicPartition) -> int | None:
        floor = self._view.committed.get(name, -1)
        code, offset = await fetch_offset(self, self._group, name, is_stable=True)
        if not self._is_fine(code):
            return None
        if offset < floor:
            self.history.violate(
                "B3", f"{self._group}: {name} is at {offset}, {floor} was committed"
            )
        return max(0, offset)

    async def _commit(self) -> bool:
        positions = dict(self._positions)
        if not positions:
            return True
        newest = self._view.generation
        topics: dict[str, list[dict[str, Any]]] = {}
        for name, offset in positions.items():
            topics.setdefault(name.topic, []).append(
                {
                    "partition_index": name.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        reply = await self._ask(
            Api.OFFSET_COMMIT,
            8,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
        )
        codes = [int(one.error_code) for topic in reply.topics for one in topic.partitions]
        if not all(self._is_fine(code) for code in codes):
            return False
        self.history.counts["commits of groups"] += 1
        if newest > self._generation:
            self.history.violate(
                "B2",
                f"{self._group}: generation {self._generation} committed after {newest} had begun",
            )
        for name, offset in positions.items():
            self._view.committed[name] = max(offset, self._view.committed.get(name, -1))
        return True

    async def _ask(self, api: Api, version: int, *, patiently: bool = False, **fields: Any) -> Any:
        return await self.ask_coordinator(
            "group", self._group, api, version, patiently=patiently, group_id=self._group, **fields
        )

    def _is_fine(self, code: int) -> bool:
        if code == OK:
            return True
        if code not in OUTDATED and code not in RETRIABLE:
            self.unexpected(f"a member of {self._group}", code)
        if code == UNKNOWN_MEMBER_ID:
            self._member_id = ""
        self.on_code(code, coordinator=("group", self._group))
        return False
