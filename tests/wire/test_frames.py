import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.wire.frames import FrameReader
from respool.wire.protocol_errors import FrameMalformed, FrameTooLarge, ProtocolViolation
from wire.entities import examples


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive(reader: FrameReader, data: bytes) -> bytes:
    """Put as much as fits into the reader's buffer; return the rest."""
    buffer = reader.get_buffer()
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    reader.on_received(count)
    return data[count:]


def frames_of(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


def test_a_frame_is_given_once_it_is_whole_and_not_before() -> None:
    reader = FrameReader(frame_bytes_max=100)
    wire = framed(b"abcdefgh")
    for byte in wire[:-1]:
        receive(reader, bytes([byte]))
        assert reader.next_frame() is None
        assert reader.is_mid_frame
    receive(reader, wire[-1:])
    assert frames_of(reader) == [b"abcdefgh"]
    assert not reader.is_mid_frame


def test_frames_that_come_together_are_given_one_by_one() -> None:
    reader = FrameReader(frame_bytes_max=100)
    receive(reader, framed(b"first one") + framed(b"second one") + b"\0\0")
    assert frames_of(reader) == [b"first one", b"second one"]
    assert reader.is_mid_frame


def test_a_frame_is_a_read_only_view_of_the_buffer() -> None:
    reader = FrameReader(frame_bytes_max=100)
    buffer = reader.get_buffer()
    buffer[:12] = framed(b"abcdefgh")
    reader.on_received(12)
    frame = reader.next_frame()
    assert frame is not None
    assert frame.readonly
    buffer[4] = ord("X")
    assert bytes(frame) == b"Xbcdefgh"


def test_a_frame_as_large_as_allowed_passes_and_one_byte_more_is_refused_by_its_size_alone() -> (
    None
):
    reader = FrameReader(frame_bytes_max=20)
    receive(reader, framed(b"x" * 20))
    assert frames_of(reader) == [b"x" * 20]
    receive(reader, struct.pack(">i", 21))
    with pytest.raises(FrameTooLarge, match="frame of 21 bytes, limit 20"):
        reader.next_frame()


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7])
def test_a_size_that_holds_no_header_is_refused(size: int) -> None:
    reader = FrameReader(frame_bytes_max=20)
    receive(reader, struct.pack(">i", size))
    with pytest.raises(FrameMalformed, match=f"frame of {size} bytes"):
        reader.next_frame()


def test_after_a_refusal_there_are_no_more_frames() -> None:
    reader = FrameReader(frame_bytes_max=20)
    receive(reader, struct.pack(">i", -1) + framed(b"abcdefgh"))
    for _ in range(3):
        with pytest.raises(ProtocolViolation):
            reader.next_frame()
    assert reader.growth_wanted == 0


def test_an_announced_length_takes_no_memory() -> None:
    reader = FrameReader(frame_bytes_max=2**31 - 1, buffer_bytes=64)
    receive(reader, struct.pack(">i", 2**31 - 1))
    assert reader.next_frame() is None
    assert reader.growth_wanted == 0
    assert reader.capacity == 64


def test_growth_is_wanted_when_the_buffer_is_full_and_doubles_up_to_the_frame() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    rest = framed(b"x" * 300)
    capacities = []
    while rest:
        rest = receive(reader, rest)
        if reader.next_frame() is None and (growth := reader.growth_wanted):
            before = reader.capacity
            reader.grow()
            assert reader.capacity == before + growth
            capacities.append(reader.capacity)
    assert capacities == [128, 256, 304]


def test_without_growth_a_full_buffer_takes_no_more() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    receive(reader, framed(b"x" * 300))
    assert reader.next_frame() is None
    with pytest.raises(AssertionError, match="no room"):
        reader.get_buffer()


def test_a_full_buffer_says_so_whether_a_frame_is_whole_or_not() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=24)
    receive(reader, framed(b"eight...") + framed(b"of 8 too"))
    assert reader.is_full
    assert reader.growth_wanted == 0, "the frame at the front is whole"
    assert reader.next_frame() is not None
    assert not reader.is_full
    receive(reader, struct.pack(">i", 9) + b"seven..")
    assert frames_of(reader) == [b"of 8 too"]
    receive(reader, b"...")
    assert frames_of(reader) == [b"seven...."]


def test_a_peer_owes_nothing_while_a_whole_frame_is_not_taken() -> None:
    reader = FrameReader(frame_bytes_max=100)
    receive(reader, framed(b"eight...") + b"\0")
    assert not reader.is_mid_frame
    assert reader.next_frame() is not None
    assert reader.is_mid_frame


def test_growing_when_it_is_not_wanted_is_a_mistake() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    with pytest.raises(AssertionError):
        reader.grow()
    assert reader.capacity == 64


def test_a_large_buffer_is_given_back_once_no_large_frame_came_for_a_while() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    rest = framed(b"x" * 124)
    while rest:
        rest = receive(reader, rest)
        if reader.next_frame() is None and reader.growth_wanted:
            reader.grow()
    assert reader.capacity == 128
    assert reader.maybe_shrink() == 0, "a large frame has just come"
    assert reader.maybe_shrink() == 64
    assert reader.capacity == 64
    assert reader.maybe_shrink() == 0
    receive(reader, framed(b"still reading"))
    assert frames_of(reader) == [b"still reading"]


def test_a_large_buffer_is_kept_while_bytes_are_in_it() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    receive(reader, framed(b"x" * 100))
    assert reader.next_frame() is None
    reader.grow()
    assert reader.maybe_shrink() == 0
    assert reader.maybe_shrink() == 0
    receive(reader, b"x" * 40)
    assert frames_of(reader) == [b"x" * 100]


def test_a_buffer_is_released_down_to_what_is_unread() -> None:
    reader = FrameReader(frame_bytes_max=10_000, buffer_bytes=64)
    wire = framed(b"x" * 400) + framed(b"y" * 180)
    while not frames_of(reader):
        if reader.growth_wanted:
            reader.grow()
        wire = receive(reader, wire)
    assert reader.capacity == 404
    receive(reader, wire[:100])
    assert reader.release() == 304
    assert (reader.capacity, reader.is_full, reader.is_mid_frame) == (100, True, True)
    assert reader.release() == 0
    reader.grow()
    receive(reader, wire[100:])
    assert frames_of(reader) == [b"y" * 180]
    assert reader.release() == 184 - 64
    assert reader.capacity == 64


@pytest.mark.long
@settings(max_examples=examples(400, long=40_000), deadline=None)
@given(
    bodies=st.lists(st.binary(min_size=8, max_size=400), max_size=12),
    chunks=st.lists(st.integers(1, 300), min_size=1, max_size=20),
    buffer_bytes=st.integers(5, 200),
    shrinks=st.lists(st.sampled_from(["", "shrink", "release"]), min_size=1, max_size=7),
)
def test_however_bytes_are_cut_the_same_frames_come_out_and_memory_follows_what_came(
    bodies: list[bytes], chunks: list[int], buffer_bytes: int, shrinks: list[str]
) -> None:
    reader = FrameReader(frame_bytes_max=400, buffer_bytes=buffer_bytes)
    rest = b"".join(map(framed, bodies))
    frames: list[bytes] = []
    turn = 0
    while rest:
        count = chunks[turn % len(chunks)]
        rest = receive(reader, rest[:count]) + rest[count:]
        frames += frames_of(reader)
        before = reader.capacity
        match shrinks[turn % len(shrinks)]:
            case "shrink":
                assert reader.maybe_shrink() == before - reader.capacity
            case "release":
                assert reader.release() == before - reader.capacity
        if reader.growth_wanted:
            held = reader.capacity
            reader.grow()
            # All that was held is full, so memory is at most twice what the peer has really sent.
            assert held < reader.capacity <= min(2 * held, 404)
        turn += 1
    assert frames == bodies
    assert not reader.is_mid_frame


@pytest.mark.long
@settings(max_examples=examples(300, long=20_000), deadline=None)
@given(
    data=st.lists(
        st.binary(max_size=60)
        | st.binary(min_size=8, max_size=60).map(framed)
        | st.integers(-(2**31), 2**31 - 1).map(struct.Struct(">i").pack),
        max_size=6,
    ).map(b"".join),
    chunk=st.integers(1, 70),
)
def test_any_bytes_give_frames_or_a_refusal_as_the_simplest_reader_does(
    data: bytes, chunk: int
) -> None:
    expected, refused = simplest_reader(data, frame_bytes_max=50)
    reader = FrameReader(frame_bytes_max=50, buffer_bytes=16)
    frames: list[bytes] = []
    rest = data
    try:
        while rest:
            rest = receive(reader, rest[:chunk]) + rest[chunk:]
            while (frame := reader.next_frame()) is not None:
                frames.append(bytes(frame))
            if reader.growth_wanted:
                reader.grow()
    except ProtocolViolation:
        assert refused
    else:
        assert not refused
    assert frames == expected


def simplest_reader(data: bytes, *, frame_bytes_max: int) -> tuple[list[bytes], bool]:
    frames: list[bytes] = []
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "big", signed=True)
        if not 8 <= size <= frame_bytes_max:
            return frames, True
        if len(data) < 4 + size:
            break
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames, False
