"""Compresses the records of a batch as Kafka's clients do, and decompresses untrusted data.

Memory is bounded by the caller's `limit`, not by sizes announced in the data: codecs write into a preallocated buffer
and stop when it is full. Announced sizes are only used to reject early.

Snappy has two formats. Java clients split the data into blocks (the xerial framing, which we write too); librdkafka
sends one raw block. No raw block starts like xerial's header: its first element would copy from before the start.

```
 0                     8         12          16       20
 | 82 S N A P P Y 00   | version | readable  | length | raw snappy block | length | raw …
                          1         since 1     big-endian
```
"""

import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from struct import Struct

import cramjam

from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.records.batch import Codec

# Kafka's defaults, except for LZ4: its users want the fast mode, and levels from 3 on select the slow one.
GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

GZIP_WINDOW_BITS = 31
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_VERSION = 1
XERIAL_BLOCK_BYTES = 32 * 1024
# A three-byte element expands to at most 64 bytes, so no valid block grows more than that.
SNAPPY_GROWTH_MAX = 22
# Most batches compress less than this, and are decompressed in one step.
GROWTH_USUAL = 8
ROOM_BYTES_MIN = 64 * 1024

_XERIAL_HEADER = Struct(">8sii")
_XERIAL_LENGTH = Struct(">i")

Data = bytes | bytearray | memoryview


def codec_of(bits: int) -> Codec:
    """The codec given by a batch's attributes.

    Raises:
        UnsupportedCompressionType: these bits mean no codec.
    """
    try:
        return Codec(bits)
    except ValueError:
        raise UnsupportedCompressionType(
            f"codec {bits} is unknown, the last known is {max(Codec)}"
        ) from None


def compress(codec: Codec, data: Data, level: int | None = None) -> bytes:
    """Compress as a producer would; `level` is on the codec's own scale, None for the default."""
    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL if level is None else level, GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(data, LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Data, *, limit: int) -> bytes:
    """Decompress data of any Kafka client.

    Raises:
        CorruptMessage: the data is malformed, incomplete or fails its own checksum.
        MessageTooLarge: it contains more than `limit` bytes.
        UnsupportedCompressionType: there is no such codec.
    """
    match codec_of(codec):
        case Codec.NONE:
            if len(data) > limit:
                raise MessageTooLarge(f"records of {len(data)} bytes, limit {limit}")
            return bytes(data)
        case Codec.GZIP:
            return _open_stream(cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return _open_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _open_stream(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            # A frame may require a window of up to 128 MiB; libzstd rejects more. That is address space only: pages are
            # used as bytes are decoded, and decoding ends when the buffer is full.
            return _open_stream(cramjam.zstd.decompress_into, data, limit)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER.pack(XERIAL_MAGIC, XERIAL_VERSION, XERIAL_VERSION)]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Data, level: int) -> bytes:
    # Java's consumer rejects linked blocks. No content checksum: the batch has one.
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))
    return bytes(frame.finish())


def _open_stream(
    decompress_into: Callable[[Data, memoryview], int], data: Data, limit: int
) -> bytes:
    """Decode into a buffer of the usual size, and if that fails, into one of `limit` bytes.

    A failure is a full buffer or broken data, and the library distinguishes them only in its message. So nothing but
    the choice between our two errors depends on the message.
    """
    room_bytes = min(limit, max(ROOM_BYTES_MIN, GROWTH_USUAL * len(data)))
    while True:
        try:
            return _fill_room(room_bytes, lambda room: decompress_into(data, room))
        except cramjam.DecompressionError as error:
            if room_bytes == limit:
                if "write whole buffer" in str(error):
                    raise _too_large(len(data), limit) from error
                raise CorruptMessage(f"{len(data)} compressed bytes are broken: {error}") from error
        room_bytes = limit


def _open_snappy(data: memoryview, limit: int) -> bytes:
    # Two passes over the blocks instead of a list: a list of tiny blocks would be far larger than the data.
    def fill(room: memoryview) -> int:
        at = 0
        for block in _snappy_blocks(data):
            size = _snappy_block_size(block)
            cramjam.snappy.decompress_raw_into(block, room[at : at + size])
            at += size
        return at

    try:
        size = sum(map(_snappy_block_size, _snappy_blocks(data)))
        if size > limit:
            raise _too_large(len(data), limit)
        return _fill_room(size, fill)
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"{len(data)} snappy bytes are broken: {error}") from error


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield data
        return
    at = _XERIAL_HEADER.size
    if len(data) < at:
        raise CorruptMessage(f"a snappy header of {len(data)} bytes, it has {at}")
    while at < len(data):
        start = at + _XERIAL_LENGTH.size
        if start > len(data):
            raise CorruptMessage(f"a snappy block's length is incomplete at byte {len(data)}")
        (length,) = _XERIAL_LENGTH.unpack_from(data, at)
        at = start + length
        if length < 0 or at > len(data):
            raise CorruptMessage(
                f"a snappy block of {length} bytes, where {len(data) - start} are left"
            )
        yield data[start:at]


def _snappy_block_size(block: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > SNAPPY_GROWTH_MAX * len(block):
        raise CorruptMessage(f"a snappy block of {len(block)} bytes cannot hold {size}")
    return size


def _fill_room(room_bytes: int, fill: Callable[[memoryview], int]) -> bytes:
    """Allocate a buffer, let `fill` write to it and return the written size; return that much without a copy.

    Large `bytes(n)` are untouched pages, and BytesIO can write to them while it holds the only reference.
    """
    room = BytesIO(bytes(room_bytes))
    with room.getbuffer() as view:
        written = fill(view)
    room.truncate(written)
    return room.getvalue()


def _too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"{size} compressed bytes hold more than {limit} bytes")
