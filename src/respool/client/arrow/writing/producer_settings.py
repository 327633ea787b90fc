"""The settings of an `ArrowProducer`: invalid or contradictory ones are refused, by name."""

from typing import Literal

from respool.client.arrow.writing.delivery import ACKS_ALL
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.partition_queue import IN_FLIGHT_MAX
from respool.records.batch import Codec

Acks = Literal["all", -1, 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

BATCH_BYTES_MIN = 1_024
LEVELS = {Codec.GZIP: (0, 9), Codec.LZ4: (0, 12), Codec.ZSTD: (1, 22)}
# For zstd. At its usual level, 3, a core encodes 2.6 M rows of 100 bytes per second, at this one 3.9 M
# (bench/columnar.py).
FASTEST_LEVEL = 1


def acks_of(acks: Acks) -> int:
    if acks == "all":
        return ACKS_ALL
    if acks not in {-1, 0, 1}:
        raise BadArgument(f"acks={acks!r} is not 'all', 1 or 0")
    return acks


def codec_of(compression: str | None) -> Codec:
    try:
        return Codec[(compression or "none").upper()]
    except KeyError:
        names = ", ".join(one.name.lower() for one in Codec)
        raise BadArgument(f"compression {compression!r} is not one of {names}") from None


def level_of(codec: Codec, level: int | None) -> int | None:
    if level is None:
        return FASTEST_LEVEL if codec is Codec.ZSTD else None
    name = codec.name.lower()
    if codec not in LEVELS:
        raise BadArgument(f"compression_level={level}: {name!r} has no levels")
    low, high = LEVELS[codec]
    if not low <= level <= high:
        raise BadArgument(f"compression_level={level}: {name!r} has {low} to {high}")
    return level


def check_settings(
    *,
    acks: int,
    is_idempotent: bool,
    in_flight_max: int,
    batch_bytes: int,
    buffer_bytes: int,
    linger_ms: int,
    transactional_id: str | None,
) -> None:
    if is_idempotent and acks != ACKS_ALL:
        raise BadArgument(f"idempotent=True needs acks='all', not {acks}")
    if transactional_id is not None and not is_idempotent:
        raise BadArgument("transactions need acks='all' and idempotent=True")
    if transactional_id is not None and not transactional_id:
        raise BadArgument("the transactional id is empty")
    if in_flight_max < 1 or (is_idempotent and in_flight_max > IN_FLIGHT_MAX):
        raise BadArgument(
            f"in_flight_max={in_flight_max}: at least 1, and with idempotence at most {IN_FLIGHT_MAX}, "
            "which is as many as brokers know again"
        )
    if not BATCH_BYTES_MIN <= batch_bytes <= buffer_bytes:
        raise BadArgument(
            f"batch_bytes={batch_bytes}: from {BATCH_BYTES_MIN} to buffer_bytes={buffer_bytes}"
        )
    if linger_ms < 0:
        raise BadArgument(f"linger_ms={linger_ms} is negative")


def check_timeouts(**timeouts_ms: int | None) -> None:
    for name, timeout_ms in timeouts_ms.items():
        if timeout_ms is not None and timeout_ms < 1:
            raise BadArgument(f"{name}={timeout_ms}: it is a time in milliseconds, from 1 on")
