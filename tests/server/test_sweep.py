"""Who is shown out by the sweep, and who is not: idle, silent, stalled, or waiting for our memory."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import encode_request
from respool.broker.memory import MemoryBudget
from respool.server.client_connection import ClientConnection
from respool.server.listener import STALL_IN_NEED_S, Listener
from respool.wire.api_table import Api
from server.fake_transport import FakeTransport

MINUTE_S = 60.0
HALF_A_FRAME = struct.pack(">i", 1000) + bytes(100)
FRAME = bytes(encode_request(Api.API_VERSIONS, 0))
WHOLE_FRAME = struct.pack(">i", len(FRAME)) + FRAME


class Room:
    """A listener, one guest, and a clock that the test sets."""

    def __init__(self, broker: RunningBroker, *, taken_max: int) -> None:
        self.memory: MemoryBudget = broker.broker.memory
        self._listener = Listener(broker.broker)
        self.transport = FakeTransport(room=taken_max)
        self.connection = ClientConnection(broker=broker.broker, owner=self._listener)
        self.transport.attach(self.connection)
        self._began = asyncio.get_running_loop().time()

    def send(self, data: bytes) -> None:
        buffer = self.connection.get_buffer(-1)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def sweep(self, second: float) -> None:
        self._listener.sweep(self._began + second)

    def is_open_after(self, seconds: float) -> bool:
        """Sweep every second until then."""
        for second in range(int(seconds) + 1):
            self.sweep(second)
        return not self.transport.is_closing()


def play(
    broker: RunningBroker, story: Callable[[Room], Awaitable[None]], *, taken_max: int = 1 << 20
) -> None:
    async def run() -> None:
        room = Room(broker, taken_max=taken_max)
        await story(room)
        room.transport.abort()
        await asyncio.sleep(0)

    broker.run(run())


def test_an_idle_guest_is_shown_out_in_the_end(start_broker: StartBroker) -> None:
    async def story(room: Room) -> None:
        room.send(WHOLE_FRAME)
        assert room.is_open_after(100)
        assert not room.is_open_after(102)

    play(start_broker(connection_idle_ms=100_000), story)


def test_half_a_frame_is_waited_for_a_minute(running_broker: RunningBroker) -> None:
    async def story(room: Room) -> None:
        room.send(HALF_A_FRAME)
        assert room.is_open_after(MINUTE_S - 1)
        assert not room.is_open_after(MINUTE_S + 2)

    play(running_broker, story)


def test_a_guest_who_sends_without_a_pause_is_not_taken_for_one_who_sends_half_a_frame(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(room: Room) -> None:
        loop = asyncio.get_running_loop()
        began, half = loop.time(), len(WHOLE_FRAME) // 2
        room.send(WHOLE_FRAME[:half])
        for second in range(3 * int(MINUTE_S)):
            # Whenever the sweep looks, half of a request is there: the second half of one, the first of the next.
            with monkeypatch.context() as patch:
                patch.setattr(room.connection, "_loop", _ClockAt(began + second))
                room.send(WHOLE_FRAME[half:] + WHOLE_FRAME[:half])
            room.sweep(second)
            assert room.connection.is_mid_frame
            assert not room.transport.is_closing(), f"closed after {second} s"

    play(running_broker, story)


class _ClockAt:
    def __init__(self, now: float) -> None:
        self._now = now

    def time(self) -> float:
        return self._now


def test_half_a_frame_is_not_waited_for_long_when_others_need_memory(
    running_broker: RunningBroker,
) -> None:
    async def story(room: Room) -> None:
        room.send(HALF_A_FRAME)
        room.memory.charge(room.memory.limit)
        turn = room.memory.next_turn()
        assert not room.memory.receive(2**30, turn=turn, on_granted=lambda: None)
        assert room.is_open_after(STALL_IN_NEED_S - 1)
        assert not room.is_open_after(STALL_IN_NEED_S + 2)
        room.memory.forget_receiver(turn)
        room.memory.release(room.memory.limit)

    play(running_broker, story)


def test_a_guest_who_takes_nothing_is_shown_out_after_a_minute(
    running_broker: RunningBroker,
) -> None:
    async def story(room: Room) -> None:
        room.send(WHOLE_FRAME)
        assert room.is_open_after(MINUTE_S - 1)
        assert not room.is_open_after(MINUTE_S + 2)

    play(running_broker, story, taken_max=10)


def test_a_guest_who_takes_nothing_is_shown_out_soon_when_others_need_memory(
    running_broker: RunningBroker,
) -> None:
    async def story(room: Room) -> None:
        room.send(WHOLE_FRAME)
        room.memory.when_room(lambda: None)
        assert room.is_open_after(STALL_IN_NEED_S - 1)
        assert not room.is_open_after(STALL_IN_NEED_S + 2)

    play(running_broker, story, taken_max=10)


def test_a_guest_who_waits_for_our_memory_is_not_to_blame(running_broker: RunningBroker) -> None:
    async def story(room: Room) -> None:
        # More than the overdraft can help with.
        room.memory.charge(room.memory.limit * 2)
        room.send(struct.pack(">i", 200_000) + bytes(65_532))
        assert room.connection.is_waiting_for_memory
        assert room.is_open_after(10 * MINUTE_S - 1)
        room.memory.release(room.memory.limit * 2)
        assert not room.connection.is_waiting_for_memory
        assert not room.transport.is_reading_paused

    play(running_broker, story)


def test_requests_that_hold_each_other_up_are_helped_on(running_broker: RunningBroker) -> None:
    async def story(room: Room) -> None:
        room.memory.charge(room.memory.limit)
        room.send(struct.pack(">i", 200_000) + bytes(65_532))
        assert room.connection.is_waiting_for_memory
        assert room.is_open_after(1)
        assert not room.connection.is_waiting_for_memory
        room.memory.release(room.memory.limit)

    play(running_broker, story)
