"""Members of groups as raw sockets, one connection each, which join and then send heartbeats.

It runs in the measuring process: that one has nothing else to do, and only the broker's CPU is of interest.
"""

import random
import resource
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from bench.broker_process import BrokerProcess
from bench.requests import Client, RequestFailed, frame
from respool.wire.api_table import Api

MEMBERS_PER_GROUP = 3
HEARTBEAT_SECONDS = 3.0

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
FIND_VERSION = 6
LIST_VERSION = 5

MEMBER_ID_REQUIRED = 79
# Nobody is to drop out while thousands of others join.
SESSION_TIMEOUT = timedelta(minutes=10)
_FILES_MIN = 8_192

# A heartbeat's reply, version 4:
#   0      4                9          13           15
#   | size | correlation id | tags | throttle time | error | tags |
_HEARTBEAT_REPLY_BYTES = 16
_HEARTBEAT_ERROR = slice(13, 15)
_NO_ERROR = b"\0\0"


def group_name(number: int) -> str:
    """All of one length, so that one takes the place of another in a frame."""
    return f"group-{number:06}"


class Member(Client):
    def __init__(self, broker: BrokerProcess, group_id: str) -> None:
        super().__init__(broker.host, broker.port)
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1

    def send_join(self, metadata: bytes = b"") -> None:
        self._send(
            Api.JOIN_GROUP,
            JOIN_VERSION,
            group_id=self.group_id,
            session_timeout=SESSION_TIMEOUT,
            rebalance_timeout=SESSION_TIMEOUT,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
            reason=None,
        )

    def receive_join(self) -> Any:
        reply = self._receive(Api.JOIN_GROUP, JOIN_VERSION)
        if reply.error_code not in (0, MEMBER_ID_REQUIRED):
            raise RequestFailed(f"{self.group_id} join: {reply.error_code!r}")
        self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    def send_sync(self, member_ids: Sequence[str]) -> None:
        """`member_ids`: the members to assign to, from the leader's JoinGroup reply; empty for other members."""
        self._send(
            Api.SYNC_GROUP,
            SYNC_VERSION,
            **self._who(),
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": one, "assignment": bytes(40)} for one in member_ids],
        )

    def receive_sync(self) -> None:
        reply = self._receive(Api.SYNC_GROUP, SYNC_VERSION)
        if reply.error_code:
            raise RequestFailed(f"{self.group_id} sync: {reply.error_code!r}")

    def heartbeat_frame(self) -> bytes:
        return bytes(frame(Api.HEARTBEAT, HEARTBEAT_VERSION, **self._who()))

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    def _send(self, api: Api, version: int, **fields: Any) -> None:
        self.socket.sendall(frame(api, version, **fields))

    def _receive(self, api: Api, version: int) -> Any:
        entity, _ = entity_reader(load_response_schema(api, version))(self.read_frame()[5:], 0)
        return entity


def stable_groups(broker: BrokerProcess, count: int, stack: ExitStack) -> list[list[Member]]:
    """This many groups whose members all have their assignments. The broker must not delay first rebalances.

    Each step is taken by all groups before the next, so the broker can answer many after one sync of its disk.
    """
    groups = [
        [stack.enter_context(Member(broker, group_name(number))) for _ in range(MEMBERS_PER_GROUP)]
        for number in range(count)
    ]
    members = [member for group in groups for member in group]
    # 1. All ask for an id. A rebalance waits for those who have one and have not come back with it.
    _join_all(members)
    # 2. The first joins the empty group, and makes a generation at once, of itself.
    _join_all([group[0] for group in groups])
    # 3. It joins again, because its metadata changed, together with the others: whichever request is read first, the
    #    generation waits for all.
    for member in members:
        member.send_join(b"changed")
    for group in groups:
        replies = [member.receive_join() for member in group]
        for member, reply in zip(group, replies, strict=True):
            member.send_sync([one.member_id for one in reply.members])
        told = sum(len(reply.members) for reply in replies)
        if told != MEMBERS_PER_GROUP:
            raise RequestFailed(f"{group[0].group_id} has {told} members")
    for member in members:
        member.receive_sync()
    return groups


def _join_all(members: Sequence[Member]) -> None:
    for member in members:
        member.send_join()
    for member in members:
        member.receive_join()


@dataclass(slots=True)
class Heard:
    """What heartbeats took, in seconds."""

    taken: list[float] = field(default_factory=list)
    # How much later than planned they were sent: the client's own fault, or the machine's.
    late: list[float] = field(default_factory=list)
    # Not sent, because the one before had no reply yet.
    left_out: int = 0


def heartbeats(members: Sequence[Member], duration_s: float) -> Heard:
    """Each member sends one every three seconds, at a moment of its own, whatever became of the others'."""
    rng = random.Random(1)
    phases = sorted((rng.uniform(0, HEARTBEAT_SECONDS), index) for index in range(len(members)))
    frames = [member.heartbeat_frame() for member in members]
    indexes = {member.socket.fileno(): index for index, member in enumerate(members)}
    sent_at: dict[int, float] = {}
    heard = Heard()
    began = time.perf_counter()
    plan = _plan(phases, began, duration_s)
    due_at, index = next(plan)
    ended = False
    with select.epoll() as poll:
        for number in indexes:
            poll.register(number, select.EPOLLIN)
        while not ended or sent_at:
            wait_s = 1.0 if ended else max(0.0, due_at - time.perf_counter())
            for number, _ in poll.poll(wait_s):
                replied = indexes[number]
                _check_heartbeat(members[replied].socket.recv(64))
                heard.taken.append(time.perf_counter() - sent_at.pop(replied))
            while not ended and (now := time.perf_counter()) >= due_at:
                if index in sent_at:
                    heard.left_out += 1
                else:
                    heard.late.append(now - due_at)
                    sent_at[index] = now
                    members[index].socket.sendall(frames[index])
                due_at, index = next(plan, (due_at, -1))
                ended = index < 0
    return heard


def _plan(
    phases: Sequence[tuple[float, int]], began: float, duration_s: float
) -> Iterator[tuple[float, int]]:
    round_at = 0.0
    while True:
        for phase, index in phases:
            if round_at + phase >= duration_s:
                return
            yield began + round_at + phase, index
        round_at += HEARTBEAT_SECONDS


def _check_heartbeat(reply: bytes) -> None:
    """So small a reply comes whole."""
    if len(reply) != _HEARTBEAT_REPLY_BYTES or reply[_HEARTBEAT_ERROR] != _NO_ERROR:
        raise RequestFailed(f"heartbeat answered with {reply.hex()}")


def make_coordinator(client: Client) -> None:
    """The groups' topic is created when somebody first asks for it."""
    reply = client.call(
        Api.FIND_COORDINATOR, FIND_VERSION, key_type=0, coordinator_keys=(group_name(0),)
    )
    if reply.coordinators[0].error_code:
        raise RequestFailed(f"find coordinator: {reply.coordinators[0].error_code!r}")


def wait_for_groups(client: Client, count: int) -> None:
    """Ask until all groups are known; no shard answers before all its records are replayed."""
    while True:
        reply = client.call(Api.LIST_GROUPS, LIST_VERSION, states_filter=(), types_filter=())
        if not reply.error_code:
            break
        time.sleep(0.005)
    if len(reply.groups) != count:
        raise RequestFailed(f"{len(reply.groups)} groups after a start, {count} before")


def allow_many_files() -> None:
    """For this process and for brokers it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MIN if hard == resource.RLIM_INFINITY else min(_FILES_MIN, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
