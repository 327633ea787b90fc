"""Kafka's topic settings for how hard the broker compresses, when it recompresses batches."""

import dataclasses
from dataclasses import dataclass, field

from respool.model.config_rules import ConfigRule, int_between

# zlib's own default, which is 6.
GZIP_DEFAULT = -1
LZ4_DEFAULT = 9


def _gzip_level(doc: str) -> dict[str, ConfigRule]:
    levels = int_between(1, 9, doc)["rule"]

    def parse(text: str) -> int:
        return GZIP_DEFAULT if text.strip() == str(GZIP_DEFAULT) else levels.parse(text)

    return {"rule": dataclasses.replace(levels, parse=parse)}


@dataclass(frozen=True, kw_only=True)
class CompressionLevels:
    compression_gzip_level: int = field(
        default=GZIP_DEFAULT,
        metadata=_gzip_level(
            "With compression.type=gzip: 1 (fast) to 9 (small) for batches that the broker recompresses; -1 is 6."
        ),
    )
    compression_lz4_level: int = field(
        default=LZ4_DEFAULT,
        metadata=int_between(
            1,
            17,
            "With compression.type=lz4: 1 (fast) to 17 (small) for batches that the broker recompresses. 9 is fast, "
            "too, as in Kafka; 12 and more are the same.",
        ),
    )
    compression_zstd_level: int = field(
        default=3,
        metadata=int_between(
            -131_072,
            22,
            "With compression.type=zstd: -131072 (fast) to 22 (small) for batches that the broker recompresses.",
        ),
    )
