"""One connection over a fake socket: order, holding back, memory, goodbyes."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import CORRELATION_ID, encode_request
from respool.broker.broker import Broker
from respool.broker.memory import MemoryBudget
from respool.broker.outcome import Outcome
from respool.records.build import NewRecord, build_batch
from respool.server.client_connection import ClientConnection
from respool.wire.api_table import Api
from respool.wire.codec import Request
from server.fake_transport import FakeTransport, OpenDoor

Story = Callable[["Client"], Awaitable[None]]


class Client:
    """What a test sends, and what comes back."""

    def __init__(self, broker: RunningBroker, transport: FakeTransport) -> None:
        self.broker = broker
        self.transport = transport
        self.door = OpenDoor()
        self.connection = ClientConnection(broker=broker.broker, owner=self.door)
        transport.attach(self.connection)

    def send(self, *frames: bytes | memoryview) -> None:
        self.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        while data and not self.transport.is_reading_paused and not self.transport.is_closing():
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.connection.buffer_updated(count)

    def replies(self) -> list[int]:
        """The correlation ids that came back, in order."""
        ids, position = [], 0
        while position < len(self.transport.sent):
            size, correlation_id = struct.unpack_from(">ii", self.transport.sent, position)
            ids.append(correlation_id)
            position += 4 + size
        return ids


def numbered(frame: memoryview, number: int) -> bytes:
    """The same request under another correlation id."""
    return bytes(frame[:4]) + struct.pack(">i", number) + bytes(frame[8:])


def produce(value: bytes = b"v", *, acks: int = -1, topic: str = "rides") -> memoryview:
    records = build_batch([NewRecord(value=value, timestamp_ms=0)])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return encode_request(
        Api.PRODUCE, 9, transactional_id=None, acks=acks, timeout=30_000, topic_data=data
    )


def fetch(*, max_wait: int = 60_000, offset: int = 0) -> memoryview:
    target = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return encode_request(
        Api.FETCH,
        4,
        replica_id=-1,
        max_wait=max_wait,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[{"topic": "rides", "partitions": [target]}],
    )


def api_versions() -> memoryview:
    return encode_request(Api.API_VERSIONS, 0)


async def turn() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def play(broker: RunningBroker, story: Story, *, room: int = 1 << 30) -> Client:
    async def run() -> Client:
        client = Client(broker, FakeTransport(room=room))
        await story(client)
        client.transport.abort()
        await turn()
        assert broker.broker.memory.used == 0, "a closed connection keeps no memory"
        return client

    broker.create_topic("rides")
    return broker.run(run())


def test_replies_leave_in_the_order_of_their_requests(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(numbered(produce(), 1), numbered(produce(), 2), numbered(api_versions(), 3))
        await turn()
        # The third could be answered at once, and waits for those before it.
        assert client.replies() == []
        client.broker.offload.release()
        await turn()
        assert client.replies() == [1, 2, 3]

    play(running_broker, story)


def test_replies_settled_by_one_sync_leave_with_one_write(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(*(numbered(produce(), number) for number in range(10)))
        await turn()
        client.broker.offload.release()
        await turn()
        assert client.replies() == list(range(10))
        assert client.transport.writes == 1

    play(running_broker, story)


def test_a_request_waits_until_the_one_before_has_had_its_effects(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        topic = {"name": "fresh", "num_partitions": 1, "replication_factor": 1}
        create = encode_request(
            Api.CREATE_TOPICS,
            5,
            topics=[{**topic, "assignments": [], "configs": []}],
            timeout=1000,
            validate_only=False,
        )
        client.send(numbered(create, 1), numbered(produce(topic="fresh"), 2))
        while len(client.replies()) < 2:
            await asyncio.sleep(0)
        assert client.replies() == [1, 2]
        assert client.broker.broker.partitions.find("fresh", 0).log.log_end == 1

    play(running_broker, story)


def test_only_so_many_requests_are_under_way_and_the_rest_go_on_later(
    start_broker: StartBroker,
) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(*(numbered(produce(), number) for number in range(5)))
        await turn()
        assert len(client.door.requests) == 2
        client.broker.offload.release()
        await turn()
        await turn()
        assert client.replies() == list(range(5))

    play(start_broker(requests_pipelined_max=2), story)


def test_a_client_that_takes_nothing_is_read_no_further_and_its_replies_are_charged(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send(*(numbered(api_versions(), number) for number in range(3)))
        assert client.broker.broker.memory.used > 0
        handled = len(client.door.requests)
        client.send(numbered(api_versions(), 3))
        assert len(client.door.requests) == handled
        client.transport.make_room(1 << 20)
        assert client.replies() == [0, 1, 2, 3]
        assert client.broker.broker.memory.used == 0

    play(running_broker, story, room=10)


def test_what_a_follower_does_not_take_is_charged_as_a_followers(
    running_broker: RunningBroker,
) -> None:
    def answer(request: Request, _broker: Broker) -> Outcome:
        request.is_of_follower = request.api.key == Api.FETCH
        return [bytes(1_000)]

    async def story(client: Client) -> None:
        memory = client.broker.broker.memory = MemoryBudget(80_000, has_followers=True)
        client.connection = ClientConnection(
            broker=client.broker.broker, owner=client.door, handler=answer
        )
        client.transport.attach(client.connection)
        for frame, kept in ((fetch(), 9_000), (api_versions(), 10_000)):
            client.transport.room = 0
            client.send(frame)
            assert memory.used == 1_000
            assert memory.available_for_replies == 60_000 - 1_000 - kept
            client.transport.make_room(1_000)
            assert memory.used == 0

    play(running_broker, story)


def test_a_fetch_is_not_read_before_the_client_has_taken_the_one_before(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send(produce(b"x" * 10_000))
        await turn()
        client.transport.room = 0
        client.send(*(numbered(fetch(), number) for number in range(5)))
        # Else a client could have as many replies in memory as requests fit into its buffer.
        assert client.broker.broker.memory.used < 2 * 10_200
        client.transport.make_room(1 << 20)
        await turn()
        assert client.replies() == [CORRELATION_ID, 0, 1, 2, 3, 4]

    play(running_broker, story)


def test_many_requests_answered_at_once_leave_with_few_writes_and_none_is_left_behind(
    start_broker: StartBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send(
            *(numbered(produce(acks=1, topic="unsynced"), number) for number in range(10)),
            numbered(api_versions(), 10),
        )
        assert client.replies() == list(range(11))
        assert client.transport.writes <= 4

    broker = start_broker(requests_pipelined_max=4)
    broker.create_topic("unsynced", respool_flush="os")
    play(broker, story)


def test_replies_do_not_pile_up_behind_one_that_waits_for_its_sync(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send(numbered(produce(b"x" * 10_000), 1))
        await turn()
        client.broker.offload.hold()
        client.send(numbered(produce(), 2), *(numbered(fetch(), n) for n in range(3, 7)))
        await turn()
        assert [one.api.key for one in client.door.requests] == [Api.PRODUCE, Api.PRODUCE]
        client.broker.offload.release()
        await turn()
        assert client.replies() == [1, 2, 3, 4, 5, 6]

    play(running_broker, story)


def test_a_client_may_ask_on_behind_a_too_new_api_versions(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        too_new = struct.pack(">hhih", Api.API_VERSIONS, 99, 1, -1)
        client.send(too_new, numbered(api_versions(), 2), numbered(fetch(max_wait=0), 3))
        await turn()
        assert client.replies() == [1, 2, 3]

    play(running_broker, story)


def test_a_large_buffer_is_given_back_at_once_when_others_wait_for_memory(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        memory = client.broker.broker.memory
        client.send(produce(b"x" * 200_000))
        await turn()
        granted: list[int] = []
        assert not memory.receive(
            memory.limit, turn=memory.next_turn(), on_granted=lambda: granted.append(memory.limit)
        )
        client.send(produce(b"x" * 100))
        assert granted == [memory.limit]
        memory.release_received(memory.limit)

    play(running_broker, story)


def test_one_that_leaves_while_it_waits_for_memory_is_forgotten(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        memory = client.broker.broker.memory
        memory.charge(memory.limit)
        client.send(produce(b"x" * 200_000))
        assert client.connection.is_waiting_for_memory
        client.transport.abort()
        await turn()
        assert not memory.is_short_for_requests
        memory.release(memory.limit)

    play(running_broker, story)


def test_a_client_is_stalled_while_it_takes_nothing_of_its_reply(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        now = asyncio.get_running_loop().time()
        connection = client.connection
        assert connection.stalled_s(now + 100) == 0
        client.send(api_versions())
        # The first look only learns how much there is to take.
        assert connection.stalled_s(now + 10) >= 9
        client.transport.make_room(20)
        assert connection.stalled_s(now + 20) == 0
        assert connection.stalled_s(now + 25) == 5
        client.transport.make_room(1 << 20)
        assert connection.stalled_s(now + 30) == 0

    play(running_broker, story, room=10)


def test_a_large_request_waits_for_memory_and_is_then_read(start_broker: StartBroker) -> None:
    async def story(client: Client) -> None:
        memory = client.broker.broker.memory
        memory.charge(memory.limit)
        frame = numbered(produce(b"x" * 200_000), 7)
        data = struct.pack(">i", len(frame)) + frame
        client.send_bytes(data[:65_536])
        assert client.transport.is_reading_paused
        memory.release(memory.limit)
        assert not client.transport.is_reading_paused
        client.send_bytes(data[65_536:])
        await turn()
        assert client.replies() == [7]

    play(start_broker(), story)


def test_an_idle_connection_gives_a_large_buffer_back(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.send(produce(b"x" * 200_000))
        await turn()
        assert client.broker.broker.memory.used > 0
        client.connection.shrink()
        client.connection.shrink()
        assert client.broker.broker.memory.used == 0

    play(running_broker, story)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 10) + b"\xff" * 10,
        struct.pack(">ihhih", 10, 999, 0, 5, -1),
        struct.pack(">ihhih", 10, 0, 99, 5, -1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_whoever_does_not_speak_the_protocol_is_shown_out(
    running_broker: RunningBroker, data: bytes
) -> None:
    async def story(client: Client) -> None:
        client.send_bytes(data)
        assert client.transport.is_closing()

    assert play(running_broker, story).replies() == []


def test_replies_that_are_ready_still_leave_before_a_client_is_shown_out(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send_bytes(
            struct.pack(">i", len(api_versions())) + bytes(api_versions()) + struct.pack(">i", -1)
        )
        assert client.replies() == [CORRELATION_ID]
        assert client.transport.is_closing()

    play(running_broker, story)


def test_a_too_new_api_versions_is_answered_so_that_the_client_can_ask_again(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.send(struct.pack(">hhih", Api.API_VERSIONS, 99, 42, -1))
        assert client.replies() == [42]
        assert struct.unpack_from(">h", client.transport.sent, 8) == (35,)
        client.send(numbered(api_versions(), 43))
        assert client.replies() == [42, 43]

    play(running_broker, story)


def test_acks_0_leaves_no_gap_in_the_replies(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.send(numbered(produce(acks=0), 1), numbered(produce(acks=1), 2))
        await turn()
        assert client.replies() == [2]

    play(running_broker, story)


def test_a_refused_acks_0_closes_the_connection(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.send(produce(acks=0, topic="nowhere"))
        assert client.transport.is_closing()

    play(running_broker, story)


def test_a_client_that_leaves_takes_its_waiting_fetch_along(running_broker: RunningBroker) -> None:
    async def story(client: Client) -> None:
        client.send(fetch())
        await turn()
        partition = client.broker.broker.partitions.find("rides", 0)
        assert any(partition.watermarks._waiting)
        client.transport.abort()
        await turn()
        assert not any(partition.watermarks._waiting)
        assert client.door.gone == 1

    play(running_broker, story)


def test_a_stopping_broker_answers_what_is_under_way_and_lets_waiting_fetches_go(
    running_broker: RunningBroker,
) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(numbered(produce(), 1))
        await turn()
        client.connection.stop_taking_requests()
        assert not client.transport.is_closing()
        client.broker.offload.release()
        await turn()
        assert client.replies() == [1]
        assert client.transport.is_closing()

        other = Client(client.broker, FakeTransport())
        other.send(fetch(offset=1))
        await turn()
        other.connection.stop_taking_requests()
        assert other.transport.is_closing()
        await turn()

    play(running_broker, story)


def test_a_broken_invariant_stops_the_broker_and_tells_nobody_anything(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise AssertionError("as the test wants it")

    async def story(client: Client) -> None:
        monkeypatch.setattr("respool.server.client_connection.handle", broken)
        client.send(api_versions())
        assert client.transport.is_closing()
        assert client.broker.broker.failed.done()

    assert play(running_broker, story).replies() == []


def test_an_unforeseen_error_costs_its_client_the_connection_and_nobody_else(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("as the test wants it")

    async def story(client: Client) -> None:
        monkeypatch.setattr("respool.server.client_connection.handle", broken)
        client.send(api_versions())
        assert client.transport.is_closing()
        assert not client.broker.broker.failed.done()

    play(running_broker, story)
    assert "ApiVersions" in caplog.text
