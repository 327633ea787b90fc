"""The codec and level in which a topic's batches are stored, if the topic and not the producer chooses it."""

from typing import NamedTuple

from respool.model.kafka_settings.compression_levels import LZ4_DEFAULT
from respool.model.topic_config import CompressionType, TopicConfig
from respool.records.batch import Codec

_CODECS = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


class TopicCodec(NamedTuple):
    codec: Codec
    # On the codec's own scale; None: its default.
    level: int | None

    @classmethod
    def of(cls, config: TopicConfig) -> "TopicCodec | None":
        """None if batches keep their producer's codec."""
        if config.compression_type is CompressionType.PRODUCER:
            return None
        codec = _CODECS[config.compression_type]
        match codec:
            case Codec.GZIP:
                return cls(codec, config.compression_gzip_level)
            case Codec.LZ4 if config.compression_lz4_level != LZ4_DEFAULT:
                # Kafka's default selects the fast mode, although its number is that of a slow one.
                return cls(codec, config.compression_lz4_level)
            case Codec.ZSTD:
                return cls(codec, config.compression_zstd_level)
        return cls(codec, None)
