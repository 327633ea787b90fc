"""Requests that wait for others, over a real socket: what becomes of them when either side goes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.group_client import runtimes
from broker.running_broker import RunningBroker
from broker.wire_client import decode_reply, encode_request
from respool.model.settings import Settings
from respool.server.listener import Listener
from respool.wire.api_table import Api

JOIN = {
    "group_id": "drivers",
    "session_timeout": 10_000,
    "rebalance_timeout": 600_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
JOIN_VERSION = 3


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    """A broker in which whoever joins waits for minutes: the first one, for more to come."""
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_flat(
        listen="127.0.0.1:0",
        offsets_topic_partitions=2,
        group_initial_rebalance_delay_ms=600_000,
        stop_grace_ms=600_000,
    )
    with asyncio.Runner() as runner:
        broker = RunningBroker(runner, settings)
        yield broker
        broker.stop()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *requests: tuple[Api, int, dict[str, Any]]) -> None:
        """All in one write."""
        frames = [encode_request(api, version, **fields) for api, version, fields in requests]
        self.writer.write(b"".join(len(one).to_bytes(4, "big") + one for one in frames))

    async def receive(self, api: Api, version: int) -> Any:
        size = await self.reader.readexactly(4)
        body = await self.reader.readexactly(int.from_bytes(size, "big"))
        return decode_reply(api, version, size + body)


def tell(broker: RunningBroker, story: Callable[[Listener, Client], Awaitable[None]]) -> None:
    """Run the story with a listener, and one client that knows its coordinator."""

    async def run() -> None:
        listener = Listener(broker.broker)
        client = Client(*await asyncio.open_connection(*await listener.start()))
        client.send((Api.FIND_COORDINATOR, 1, {"key": "drivers", "key_type": 0}))
        assert (await client.receive(Api.FIND_COORDINATOR, 1)).error_code == 0
        await asyncio.wait_for(story(listener, client), 10)
        client.writer.close()
        await listener.stop()

    broker.run(run())


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def waiting(broker: RunningBroker) -> list[Any]:
    """What clients wait for in the coordinators, and has not been given up."""
    return [
        one for runtime in runtimes(broker) for one in runtime._waiting.values() if not one.done()
    ]


def test_a_client_that_vanishes_while_it_joins_is_not_waited_for(broker: RunningBroker) -> None:
    async def story(listener: Listener, client: Client) -> None:
        client.send((Api.JOIN_GROUP, JOIN_VERSION, JOIN))
        await until(lambda: waiting(broker))
        assert len(listener._tasks) == 1

        client.writer.transport.abort()

        await until(lambda: not waiting(broker))
        await until(lambda: not listener._tasks)

    tell(broker, story)


def test_a_broker_stops_at_once_though_members_wait(broker: RunningBroker) -> None:
    async def story(listener: Listener, client: Client) -> None:
        client.send((Api.JOIN_GROUP, JOIN_VERSION, JOIN))
        await until(lambda: waiting(broker))

        await listener.stop()

        assert await client.reader.read() == b""

    tell(broker, story)


def test_members_are_described_by_where_they_come_from(broker: RunningBroker) -> None:
    async def story(listener: Listener, client: Client) -> None:
        client.send((Api.JOIN_GROUP, JOIN_VERSION, JOIN))
        await until(lambda: waiting(broker))

        reply = await broker.answer(Api.DESCRIBE_GROUPS, 0, groups=["drivers"])

        (member,) = reply.groups[0].members
        assert (member.client_id, member.client_host) == ("tester", "/127.0.0.1")

    tell(broker, story)


def test_requests_sent_in_one_go_have_their_effects_one_after_the_other_and_replies_in_order(
    broker: RunningBroker,
) -> None:
    broker.create_topic("rides")
    partition = {
        "partition_index": 0,
        "committed_offset": 3,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    commit = {
        "group_id": "drivers",
        "member_id": "",
        "topics": [{"name": "rides", "partitions": [partition]}],
    }
    fetch = {"group_id": "drivers", "topics": [{"name": "rides", "partition_indexes": [0]}]}

    async def story(listener: Listener, client: Client) -> None:
        other = Client(*await asyncio.open_connection(*listener.address))
        other.send((Api.JOIN_GROUP, JOIN_VERSION, JOIN))
        await until(lambda: waiting(broker))
        described = await broker.answer(Api.DESCRIBE_GROUPS, 0, groups=["drivers"])
        leaving = [{"member_id": described.groups[0].members[0].member_id}]

        client.send(
            (Api.LEAVE_GROUP, 3, {"group_id": "drivers", "members": leaving}),
            (Api.OFFSET_COMMIT, 8, commit),
            (Api.OFFSET_FETCH, 2, fetch),
        )

        assert (await client.receive(Api.LEAVE_GROUP, 3)).members[0].error_code == 0
        committed = await client.receive(Api.OFFSET_COMMIT, 8)
        assert committed.topics[0].partitions[0].error_code == 0
        fetched = await client.receive(Api.OFFSET_FETCH, 2)
        assert fetched.topics[0].partitions[0].committed_offset == 3
        # The member that was thrown out is told so.
        assert (await other.receive(Api.JOIN_GROUP, JOIN_VERSION)).error_code == 25
        other.writer.close()

    tell(broker, story)
