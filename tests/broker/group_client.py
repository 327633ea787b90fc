"""Members of a group, as clients see it: requests and replies in bytes, and time that passes when the test says so."""

import asyncio
from typing import Any

from broker.running_broker import RunningBroker, StartBroker
from respool.broker.coordinators.runtime import CoordinatorRuntime, _State
from respool.wire.api_table import Api

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
OFFSET_COMMIT_VERSION = 9
OFFSET_FETCH_VERSION = 9

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 30_000

COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86


def start_with_groups(start_broker: StartBroker, **settings: Any) -> RunningBroker:
    """A broker whose groups have few partitions, do not wait for more members, and can be used at once."""
    broker = start_broker(
        **{"offsets_topic_partitions": 3, "group_initial_rebalance_delay_ms": 0, **settings}
    )
    find_coordinator(broker)
    return broker


def find_coordinator(broker: RunningBroker) -> None:
    reply = broker.ask(Api.FIND_COORDINATOR, 2, key="any", key_type=0)
    assert reply.error_code == 0


def runtimes(broker: RunningBroker) -> list[CoordinatorRuntime]:
    return [runtime for _, runtime in broker.broker.groups.runtimes]


def wait_until_loaded(broker: RunningBroker) -> None:
    async def wait() -> None:
        while not all(runtime.is_active for runtime in runtimes(broker)):
            await asyncio.sleep(0)

    broker.run(wait())


def begin_to_load(broker: RunningBroker) -> None:
    """Restart the broker to where its groups are not read yet."""
    restart(broker, crash=False)
    for runtime in runtimes(broker):
        runtime._state = _State.LOADING


def restart(broker: RunningBroker, *, crash: bool) -> None:
    broker.restart(crash=crash)
    wait_until_loaded(broker)


def let_pass(broker: RunningBroker, ms: int) -> None:
    """Time passes, and the coordinators notice."""

    async def ring() -> None:
        for runtime in runtimes(broker):
            runtime._timers._ring()
        await turns()

    broker.clock.advance(ms)
    broker.run(ring())


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Member:
    """One client in a group. It keeps what it is told, as clients do."""

    def __init__(
        self,
        broker: RunningBroker,
        group_id: str = "drivers",
        *,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        topics: bytes = b"rides",
        gives: bytes | None = None,
    ) -> None:
        self.broker = broker
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.topics = topics
        # What it gives to everyone as a leader; without it, each gets a share named for it.
        self.gives = gives
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: tuple[str, ...] = ()
        self.assignment = b""

    @property
    def is_leader(self) -> bool:
        return bool(self.member_id) and self.member_id == self.leader

    # Inside the loop.

    async def join(self, **changes: Any) -> Any:
        """Join, with the id we are given if we must have one first. Keep what the reply says."""
        reply = await self._join(**changes)
        if reply.error_code == MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            reply = await self._join(**changes)
        if reply.error_code == 0:
            self.member_id = reply.member_id
            self.generation = reply.generation_id
            self.leader = reply.leader
            self.members = tuple(one.member_id for one in reply.members)
        return reply

    async def sync(self, version: int = SYNC_VERSION, **changes: Any) -> Any:
        """Ask for the share, and as a leader bring what everyone gets."""
        assignments = [
            {"member_id": one, "assignment": self.gives or b"share of " + one.encode()}
            for one in self.members
        ]
        fields = {
            **self._who(),
            "protocol_type": "consumer",
            "protocol_name": None,
            "assignments": assignments if self.is_leader else [],
        }
        reply = await self.broker.answer(Api.SYNC_GROUP, version, **{**fields, **changes})
        if reply.error_code == 0:
            self.assignment = reply.assignment
        return reply

    async def join_and_sync(self) -> None:
        """Do so until the group is settled."""
        while True:
            joined = await self.join()
            if joined.error_code == UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            assert joined.error_code == 0, joined
            synced = await self.sync()
            if synced.error_code == 0:
                return
            assert synced.error_code == REBALANCE_IN_PROGRESS, synced

    # From outside of it.

    def settle(self) -> None:
        self.broker.run(self.join_and_sync())

    def heartbeat(self, version: int = HEARTBEAT_VERSION, **changes: Any) -> int:
        reply = self.broker.ask(Api.HEARTBEAT, version, **{**self._who(), **changes})
        return int(reply.error_code)

    def leave(self) -> Any:
        who = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        return self.broker.ask(
            Api.LEAVE_GROUP, LEAVE_VERSION, group_id=self.group_id, members=[who]
        )

    def commit(self, *offsets: tuple[str, int, int], version: int = OFFSET_COMMIT_VERSION) -> Any:
        return commit(
            self.broker,
            self.group_id,
            *offsets,
            version=version,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    async def _join(self, version: int = JOIN_VERSION, **changes: Any) -> Any:
        fields = {
            "group_id": self.group_id,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": self.topics} for name in self.protocols],
        }
        return await self.broker.answer(Api.JOIN_GROUP, version, **{**fields, **changes})


def settled(broker: RunningBroker, group_id: str, count: int, **member: Any) -> list[Member]:
    """So many members with a share each."""
    members = [Member(broker, group_id, **member) for _ in range(count)]

    async def settle() -> None:
        for number, newcomer in enumerate(members):
            joining = asyncio.ensure_future(newcomer.join_and_sync())
            await turns()
            # The others come back, as their heartbeats tell them to.
            await asyncio.gather(joining, *(one.join_and_sync() for one in members[:number]))

    broker.run(settle())
    return members


def commit(
    broker: RunningBroker,
    group_id: str,
    *offsets: tuple[str, int, int],
    version: int = OFFSET_COMMIT_VERSION,
    metadata: str | None = "",
    leader_epoch: int = -1,
    **fields: Any,
) -> list[int]:
    """Commit (topic, partition, offset), by default as nobody's member, and return the error codes."""
    reply = broker.ask(
        Api.OFFSET_COMMIT,
        version,
        **{
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    **broker.topic_ref(topic),
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": leader_epoch,
                            "committed_metadata": metadata,
                        }
                    ],
                }
                for topic, partition, offset in offsets
            ],
            **fields,
        },
    )
    return [one.error_code for topic in reply.topics for one in topic.partitions]


def committed(broker: RunningBroker, group_id: str) -> dict[tuple[str, int], int]:
    """All the group has committed."""
    reply = broker.ask(
        Api.OFFSET_FETCH,
        OFFSET_FETCH_VERSION,
        groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}],
        require_stable=True,
    )
    (group,) = reply.groups
    assert group.error_code == 0
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in group.topics
        for one in topic.partitions
    }
