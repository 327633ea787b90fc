"""Names of options that are never parsed: those that Spark adds, those that are refused, those that are ignored.

A job written for Spark's Kafka connector may set any setting of Kafka's Java clients. Settings for the internals of the
Java client are ignored: this client has its own buffers and threads. Settings that decide what is read, or who may read
it, are never ignored.
"""

from respool.client.kafka import client_config

# Lower-cased. Options that Spark adds by itself, or reads before the data source does.
SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "outputmode",
        "path",
        "paths",
        "queryname",
        "serialization.format",
    }
)

# Lower-cased name -> the reason for the refusal.
REFUSED = {
    "kafka.auto.offset.reset": "where a read begins is said by startingOffsets, and after a restart by the checkpoint",
    "kafka.key.deserializer": "keys are binary columns; decode them in Spark",
    "kafka.value.deserializer": "values are binary columns; decode them in Spark",
    "kafka.key.serializer": "keys are binary or string columns; encode them in Spark",
    "kafka.value.serializer": "values are binary or string columns; encode them in Spark",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint; see commitOffsets for showing it in a group",
    "kafka.interceptor.classes": "these are Java classes, and there is no Java in this client",
}

# Settings for the internals of Kafka's clients and of Spark's connector.
WITHOUT_EFFECT = frozenset(
    f"kafka.{name}" for name in (*client_config.WITHOUT_EFFECT, client_config.CONNECT_TIMEOUT)
)

# Settings of Kafka's producer: ignored by the source. The sink uses those that it knows, and ignores the others.
PRODUCERS = frozenset(
    f"kafka.{name}"
    for name in (
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
        "transactional.id",
    )
)
