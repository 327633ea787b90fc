"""Names of options that need no reading: those that Spark adds, those that are refused, those that change nothing here.

A job that was written for Spark's Kafka connector may set any setting of Kafka's Java clients. What says how the Java
client does its work is let pass without effect: this client has buffers and threads of its own. What says what is read
or who may read it is never passed over.
"""

from respool.client.kafka import client_config

# Lower-cased. Spark puts these among the options by itself, or its own doors read them.
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

# Lower-cased name -> why.
REFUSED = {
    "kafka.auto.offset.reset": "where a read begins is said by startingOffsets, and after a restart by the checkpoint",
    "kafka.key.deserializer": "keys are binary columns; decode them in Spark",
    "kafka.value.deserializer": "values are binary columns; decode them in Spark",
    "kafka.key.serializer": "keys are binary or string columns; encode them in Spark",
    "kafka.value.serializer": "values are binary or string columns; encode them in Spark",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint; see commitOffsets for showing it in a group",
    "kafka.interceptor.classes": "these are Java classes, and there is no Java in this client",
}

# Settings of Kafka's clients, and of Spark's connector, about how its client works inside.
WITHOUT_EFFECT = frozenset(
    f"kafka.{name}" for name in (*client_config.WITHOUT_EFFECT, client_config.CONNECT_TIMEOUT)
)

# Settings of Kafka's producer: nothing to a source. A sink reads those that it knows, and passes these over.
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
