import contextlib
import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import aiokafka.codec
import kafka.codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from records.record_examples import CODECS, COMPRESSING, FUZZ_EXAMPLES, LIMIT
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.records import compress as compress_module
from respool.records.batch import Codec
from respool.records.compress import XERIAL_BLOCK_BYTES, codec_of, compress, decompress

RNG = random.Random(7)
TEXT = b"".join(b'{"ride": %d, "fare": %d}' % (n, RNG.randrange(100_000)) for n in range(10_000))
some_bytes = st.binary(max_size=500) | st.tuples(st.binary(max_size=9), st.integers(0, 9000)).map(
    lambda part: part[0] * part[1]
)


def zstd_frame(descriptor: int, fields: bytes, *blocks: bytes) -> bytes:
    """A frame by hand; each block is stored as it is."""
    frame = bytearray(struct.pack("<IB", 0xFD2FB528, descriptor) + fields)
    for number, block in enumerate(blocks, start=1):
        frame += (len(block) << 3 | (number == len(blocks))).to_bytes(3, "little") + block
    return bytes(frame)


def lz4_frame(announced: int, block: bytes) -> bytes:
    """A frame by hand with a sound header; the block is stored as it is."""
    header = lz4.frame.compress_begin(
        lz4.frame.create_compression_context(), source_size=announced, block_linked=False
    )
    return bytes(header) + struct.pack("<I", 1 << 31 | len(block)) + block + bytes(4)


def xerial(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


# What each codec's own library, or a client, makes of some bytes.
THEIRS: list[tuple[str, Codec, Callable[[bytes], bytes]]] = [
    ("gzip", Codec.GZIP, gzip.compress),
    ("gzip by kafka-python", Codec.GZIP, kafka.codec.gzip_encode),
    ("raw snappy, as librdkafka", Codec.SNAPPY, lambda data: bytes(snappy.compress(data))),
    ("xerial by kafka-python", Codec.SNAPPY, kafka.codec.snappy_encode),
    ("xerial by aiokafka", Codec.SNAPPY, aiokafka.codec.snappy_encode),
    ("lz4 by kafka-python", Codec.LZ4, kafka.codec.lz4_encode),
    ("lz4 by aiokafka", Codec.LZ4, aiokafka.codec.lz4_encode),
    ("lz4, linked blocks", Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=True)),
    (
        "lz4, every checksum and the size",
        Codec.LZ4,
        lambda data: lz4.frame.compress(
            data, content_checksum=True, block_checksum=True, store_size=True
        ),
    ),
    ("lz4, 4 MB blocks", Codec.LZ4, lambda data: lz4.frame.compress(data, block_size=7)),
    (
        "lz4, no size",
        Codec.LZ4,
        lambda data: lz4.frame.compress(data, store_size=False, block_linked=False),
    ),
    ("zstd with size", Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    (
        "zstd without size, with checksum",
        Codec.ZSTD,
        lambda data: zstandard.ZstdCompressor(
            write_content_size=False, write_checksum=True
        ).compress(data),
    ),
    (
        "zstd with its largest window",
        Codec.ZSTD,
        lambda data: zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(
                window_log=27, write_content_size=False
            )
        ).compress(data),
    ),
    ("zstd by aiokafka", Codec.ZSTD, aiokafka.codec.zstd_encode),
]
theirs = pytest.mark.parametrize(
    ("codec", "their_compress"), [row[1:] for row in THEIRS], ids=[row[0] for row in THEIRS]
)

OPENERS: list[tuple[str, Codec, Callable[[bytes], bytes]]] = [
    ("gzip", Codec.GZIP, gzip.decompress),
    ("snappy by kafka-python", Codec.SNAPPY, kafka.codec.snappy_decode),
    ("snappy by aiokafka", Codec.SNAPPY, aiokafka.codec.snappy_decode),
    ("lz4", Codec.LZ4, lz4.frame.decompress),
    ("zstd", Codec.ZSTD, lambda data: zstandard.ZstdDecompressor().decompress(data)),
]


@pytest.mark.parametrize("codec", CODECS)
@given(data=some_bytes)
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    for shape in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, shape), limit=len(data)) == data
    assert decompress(codec, memoryview(compress(codec, data)), limit=LIMIT) == data


@theirs
@pytest.mark.parametrize("data", [b"x", TEXT, bytes(LIMIT)], ids=["one", "text", "zeros"])
def test_what_others_compress_can_be_opened(
    codec: Codec, their_compress: Callable[[bytes], bytes], data: bytes
) -> None:
    opened = decompress(codec, their_compress(data), limit=LIMIT)
    assert type(opened) is bytes
    assert opened == data


@pytest.mark.parametrize(
    ("codec", "their_open"), [row[1:] for row in OPENERS], ids=[row[0] for row in OPENERS]
)
@pytest.mark.parametrize("data", [b"x", TEXT, bytes(LIMIT)], ids=["one", "text", "zeros"])
def test_what_we_compress_others_can_open(
    codec: Codec, their_open: Callable[[bytes], bytes], data: bytes
) -> None:
    assert their_open(compress(codec, data)) == data


def test_snappy_known_by_hand() -> None:
    # A length, then a literal of 4 bytes, then a copy of 60 bytes from 4 back: the format's own description.
    raw = b"\x40" + b"\x0cride" + b"\xee\x04\x00"
    assert decompress(Codec.SNAPPY, raw, limit=LIMIT) == b"ride" * 16
    assert decompress(Codec.SNAPPY, xerial(raw, raw), limit=LIMIT) == b"ride" * 32


def test_snappy_is_written_in_blocks_of_32_kib_behind_javas_header() -> None:
    data = compress(Codec.SNAPPY, TEXT)
    assert data[:16] == b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    at, opened = 16, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        opened.append(bytes(snappy.uncompress(data[at + 4 : at + 4 + length])))
        at += 4 + length
    assert b"".join(opened) == TEXT
    assert {len(block) for block in opened[:-1]} == {XERIAL_BLOCK_BYTES}


def test_lz4_blocks_are_independent_as_javas_consumer_wants_them() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert info["block_linked"] is False
    assert info["block_size"] == 64 * 1024


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_is_passed_on_to_the_codec(codec: Codec) -> None:
    low, high = compress(codec, TEXT, 1), compress(codec, TEXT, 9)
    assert len(high) < len(low)
    assert decompress(codec, high, limit=LIMIT) == decompress(codec, low, limit=LIMIT) == TEXT


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 6), (Codec.LZ4, 1), (Codec.ZSTD, 3)])
def test_without_a_level_the_usual_one_is_taken(codec: Codec, level: int) -> None:
    assert compress(codec, TEXT) == compress(codec, TEXT, level) != compress(codec, TEXT, 9)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_several_members_or_frames_are_read_as_one(codec: Codec) -> None:
    data = compress(codec, b"one, ") + compress(codec, b"two")
    assert decompress(codec, data, limit=LIMIT) == b"one, two"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"x", TEXT, bytes(LIMIT)], ids=["one", "text", "zeros"])
def test_the_limit_is_exact(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed, limit=len(data)) == data
    with pytest.raises(MessageTooLarge, match=f"{len(data) - 1}"):
        decompress(codec, compressed, limit=len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_cut_off_anywhere_is_corrupt(codec: Codec) -> None:
    data = compress(codec, b"ride " * 30)
    # Java's snappy header alone is a stream without blocks.
    whole = {16} if codec is Codec.SNAPPY else set()
    for size in set(range(len(data))) - whole:
        with pytest.raises(CorruptMessage):
            decompress(codec, data[:size], limit=LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptMessage):
        decompress(codec, compress(codec, b"ride " * 30) + b"\x00more", limit=LIMIT)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_a_codecs_own_checksum_is_checked(codec: Codec) -> None:
    stored = b"\x01\x23\x45\x67" * 4
    data = bytearray(
        gzip.compress(stored, 0)
        if codec is Codec.GZIP
        else lz4.frame.compress(stored, content_checksum=True)
    )
    at = data.index(b"\x23\x45")
    data[at] ^= 1
    with pytest.raises(CorruptMessage):
        decompress(codec, bytes(data), limit=LIMIT)


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_codec_bits_nobody_defined_are_unsupported(bits: int) -> None:
    with pytest.raises(UnsupportedCompressionType, match=f"codec {bits} is unknown"):
        codec_of(bits)


@pytest.mark.parametrize("codec", CODECS)
def test_codec_bits_name_their_codec(codec: Codec) -> None:
    assert codec_of(int(codec)) is codec


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (xerial()[:12], "header of 12 bytes"),
        (xerial() + b"\x00\x00", "length is incomplete"),
        (xerial() + struct.pack(">i", -1), "block of -1 bytes"),
        (xerial() + struct.pack(">i", 2**31 - 1) + b"abc", "where 3 are left"),
        (xerial() + struct.pack(">i", 0), "broken"),
    ],
)
def test_a_broken_snappy_frame_says_what_is_wrong(blocks: bytes, words: str) -> None:
    with pytest.raises(CorruptMessage, match=words):
        decompress(Codec.SNAPPY, blocks, limit=LIMIT)


FOUR_GB = 4 << 30
LIARS: dict[str, tuple[Codec, bytes]] = {
    "raw snappy": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00a"),
    "xerial snappy": (Codec.SNAPPY, xerial(b"\xff\xff\xff\xff\x0f\x00a")),
    "zstd size": (Codec.ZSTD, zstd_frame(0xE0, struct.pack("<Q", FOUR_GB), b"hello")),
    "zstd window": (Codec.ZSTD, zstd_frame(0, bytes([(32 - 10) << 3]), b"hello")),
    "lz4 size": (Codec.LZ4, lz4_frame(FOUR_GB, b"hello")),
    "gzip size": (Codec.GZIP, gzip.compress(b"hello")[:-4] + struct.pack("<I", 2**32 - 1)),
}


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all memory that `decompress` makes for results."""
    made: list[int] = []
    fill_room = compress_module._fill_room

    def record(room_bytes: int, fill: Callable[[memoryview], int]) -> bytes:
        made.append(room_bytes)
        return fill_room(room_bytes, fill)

    monkeypatch.setattr(compress_module, "_fill_room", record)
    return made


@pytest.mark.parametrize("name", LIARS)
def test_a_header_that_announces_gigabytes_gets_no_memory_for_them(
    name: str, rooms: list[int]
) -> None:
    codec, data = LIARS[name]
    with pytest.raises((CorruptMessage, MessageTooLarge)):
        decompress(codec, data, limit=LIMIT)
    assert max(rooms, default=0) <= LIMIT


def test_a_snappy_block_that_cannot_hold_what_it_announces_gets_no_memory_at_all(
    rooms: list[int],
) -> None:
    announced = b"\x80\x80\x3c"
    for data in (announced + b"\x00a", xerial(announced + b"\x00a")):
        with pytest.raises(CorruptMessage, match="5 bytes cannot hold 983040"):
            decompress(Codec.SNAPPY, data, limit=LIMIT)
    assert rooms == []


def test_a_snappy_block_may_hold_as_much_as_the_format_can() -> None:
    # A literal of one byte, then copies of 64 bytes in three bytes each.
    copies = 1000
    size = 1 + 64 * copies
    header = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    assert decompress(Codec.SNAPPY, header + b"\x00a" + b"\xfe\x01\x00" * copies, limit=LIMIT) == (
        b"a" * size
    )


def test_an_announced_size_that_is_not_true_is_corrupt() -> None:
    assert decompress(Codec.LZ4, lz4_frame(5, b"hello"), limit=LIMIT) == b"hello"
    with pytest.raises(CorruptMessage):
        decompress(Codec.LZ4, lz4_frame(6, b"hello"), limit=LIMIT)
    assert decompress(Codec.ZSTD, zstd_frame(0x20, b"\x05", b"hello"), limit=LIMIT) == b"hello"
    with pytest.raises(CorruptMessage):
        decompress(Codec.ZSTD, zstd_frame(0x20, b"\x06", b"hello"), limit=LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_stops_at_the_limit(codec: Codec, rooms: list[int]) -> None:
    bomb = compress(codec, bytes(32 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match=f"more than {LIMIT} bytes"):
            decompress(codec, bomb, limit=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(rooms, default=0) <= LIMIT
    assert peak < LIMIT + 256 * 1024


def test_a_bomb_of_tiny_snappy_blocks_costs_no_memory_per_block() -> None:
    data = xerial(*[b"\x00"] * 20_000)
    tracemalloc.start()
    try:
        assert decompress(Codec.SNAPPY, data, limit=LIMIT) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024


def test_what_fits_the_usual_room_does_not_get_the_whole_limit(rooms: list[int]) -> None:
    decompress(Codec.ZSTD, compress(Codec.ZSTD, b"ride"), limit=1 << 30)
    assert rooms == [64 * 1024]


SMALL_PROCESS = """
import resource, sys
from respool.model.errors import CorruptMessage, MessageTooLarge
from respool.records.batch import Codec
from respool.records.compress import decompress
# What this process has already, the largest window libzstd allows, and a little.
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
room = used + (128 + 64) * 1024 * 1024
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for line in sys.stdin:
    codec, data = line.split()
    try:
        decompress(Codec(int(codec)), bytes.fromhex(data), limit=16 * 1024 * 1024)
    except (CorruptMessage, MessageTooLarge) as error:
        print(type(error).__name__)
"""


def test_bombs_and_liars_do_not_bring_down_a_process_with_little_memory() -> None:
    zeros = zlib.compressobj(9, wbits=31)
    gzip_bomb = b"".join(zeros.compress(bytes(1 << 24)) for _ in range(16)) + zeros.flush()
    cases = [*LIARS.values(), (Codec.GZIP, gzip_bomb)]
    cases += [(codec, compress(codec, bytes(1 << 26))) for codec in (Codec.LZ4, Codec.ZSTD)]
    done = subprocess.run(
        [sys.executable, "-c", SMALL_PROCESS],
        input="".join(f"{int(codec)} {data.hex()}\n" for codec, data in cases),
        capture_output=True,
        text=True,
        check=True,
    )
    refusals = done.stdout.split()
    assert len(refusals) == len(cases)
    assert refusals[-3:] == ["MessageTooLarge"] * 3


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(codec=st.sampled_from(COMPRESSING), data=st.binary(max_size=200))
def test_any_bytes_are_opened_or_refused_in_our_words(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptMessage, MessageTooLarge):
        assert len(decompress(codec, data, limit=1000)) <= 1000


@pytest.mark.long
@settings(max_examples=FUZZ_EXAMPLES)
@given(
    codec=st.sampled_from(COMPRESSING),
    content=some_bytes,
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
)
def test_damaged_data_is_opened_or_refused_in_our_words(
    codec: Codec, content: bytes, damage: list[tuple[int, int]]
) -> None:
    data = bytearray(compress(codec, content))
    for at, byte in damage:
        data[at % len(data)] = byte
    with contextlib.suppress(CorruptMessage, MessageTooLarge):
        assert len(decompress(codec, bytes(data), limit=1000)) <= 1000
