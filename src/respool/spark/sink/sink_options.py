"""All options of the sink, parsed once on the driver. Invalid or contradictory options are refused by name."""

from dataclasses import dataclass
from typing import Any, Self

from respool.client.kafka.bootstrap import LASTING_CONTACT_MS
from respool.spark.client_options import SECURITY_NAMES, ClientOptions, security_of
from respool.spark.option_values import BadOption, Options

TRANSACTION_TIMEOUT_MS = 600_000
DELIVERY_TIMEOUT_MS = 120_000
BATCH_BYTES = 1024 * 1024
BUFFER_BYTES = 64 * 1024 * 1024

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LEVELLED = ("gzip", "lz4", "zstd")
_PARTITIONERS = ("murmur2", "round-robin")
# The ends of Java class names -> the equivalent partitioner here.
_CLASSES = {"DefaultPartitioner": "murmur2", "RoundRobinPartitioner": "round-robin"}
# Settings for the internals of the Java producer.
_WITHOUT_EFFECT = (
    "kafka.max.block.ms",
    "kafka.max.request.size",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The name under which a batch write is remembered, so that repeating it adds nothing."""

    app: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    client: ClientOptions
    topic: str | None
    include_headers: bool
    exactly_once: bool
    transaction_timeout_ms: int
    delivery_timeout_ms: int
    compression: str
    compression_level: int | None
    batch_bytes: int
    buffer_bytes: int
    linger_ms: int
    in_flight_max: int
    partitioner: str
    stamp: Stamp | None

    @classmethod
    def of(cls, options: Options, *, is_stream: bool) -> Self:
        """
        Raises:
            BadOption: one is unknown or invalid, or contradicts another.
        """
        security_of(options)
        for name in NAMES:
            options.has(name)
        options.refuse(
            ["kafka.transactional.id"],
            "the sink names its transactions itself, by query, batch and task",
        )
        options.refuse_unknown(also=(*_WITHOUT_EFFECT, *SECURITY_NAMES))
        exactly_once = options.flag("exactlyOnce", default=True)
        _check_promises(options, exactly_once=exactly_once)
        compression = options.choice("kafka.compression.type", _CODECS, "none")
        whole = _Whole(options)
        return cls(
            client=ClientOptions.of(options),
            topic=options.text("topic"),
            include_headers=options.flag("includeHeaders", default=True),
            exactly_once=exactly_once,
            transaction_timeout_ms=_transaction_timeout(options),
            delivery_timeout_ms=whole("kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS, least=1),
            compression=compression,
            compression_level=options.whole(f"kafka.compression.{compression}.level", least=-7)
            if compression in _LEVELLED
            else None,
            batch_bytes=whole("kafka.batch.size", BATCH_BYTES, least=1_024, most=2**30),
            buffer_bytes=whole("kafka.buffer.memory", BUFFER_BYTES, least=2**20),
            linger_ms=whole("kafka.linger.ms", 0, most=60_000),
            in_flight_max=whole("kafka.max.in.flight.requests.per.connection", 5, least=1, most=5),
            partitioner=_partitioner(options),
            stamp=_stamp(options, is_stream=is_stream),
        )

    def producer_settings(self) -> dict[str, Any]:
        """The arguments for `ArrowProducer`."""
        return {
            "bootstrap": self.client.brokers,
            "first_contact_ms": LASTING_CONTACT_MS,
            "client_id": self.client.client_id,
            "security": self.client.security,
            "request_timeout_ms": self.client.request_timeout_ms,
            "connect_timeout_ms": self.client.connect_timeout_ms,
            "delivery_timeout_ms": self.delivery_timeout_ms,
            "compression": self.compression,
            "compression_level": self.compression_level,
            "batch_bytes": min(self.batch_bytes, self.buffer_bytes),
            "buffer_bytes": self.buffer_bytes,
            "linger_ms": self.linger_ms,
            "in_flight_max": self.in_flight_max,
            "partitioner": self.partitioner,
        }


# All options; queried first, so that a misspelled name is reported before the option that it leaves missing.
NAMES = (
    "bootstrap",
    "exactlyOnce",
    "includeHeaders",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.bootstrap.servers",
    "kafka.buffer.memory",
    "kafka.client.id",
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.type",
    "kafka.compression.zstd.level",
    "kafka.default.api.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.linger.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.partitioner.class",
    "kafka.partitioner.ignore.keys",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.transaction.timeout.ms",
    "partitioner",
    "topic",
    "transactionTimeout",
    "txnAppId",
    "txnVersion",
)


class _Whole:
    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        number = self._options.whole(name, default, least=least, most=most)
        assert number is not None
        return number


def _check_promises(options: Options, *, exactly_once: bool) -> None:
    acks = options.text("kafka.acks", "all")
    if acks not in {"all", "-1"}:
        raise BadOption(
            f"kafka.acks = {acks!r}: rows that only one broker has may be lost when it is; it can only be 'all'"
        )
    if exactly_once and not options.flag("kafka.enable.idempotence", default=True):
        raise BadOption(
            "kafka.enable.idempotence = 'false' contradicts exactly-once writing; exactlyOnce=false does without it"
        )
    if options.flag("kafka.partitioner.ignore.keys", default=False):
        raise BadOption(
            "kafka.partitioner.ignore.keys = 'true': use partitioner=round-robin for this"
        )


def _transaction_timeout(options: Options) -> int:
    ours, kafkas = "transactionTimeout", "kafka.transaction.timeout.ms"
    if options.has(ours) and options.has(kafkas):
        raise BadOption(f"{ours} and {kafkas} are given: they mean the same, so only one can be")
    if options.has(kafkas):
        number = options.whole(kafkas, TRANSACTION_TIMEOUT_MS, least=1, most=2**31 - 1)
        assert number is not None
        return number
    timeout_ms = options.milliseconds(ours, TRANSACTION_TIMEOUT_MS)
    if not 1_000 <= timeout_ms < 2**31:
        raise BadOption(f"{ours} = {timeout_ms} ms: at least a second, and less than 25 days")
    return timeout_ms


def _partitioner(options: Options) -> str:
    java = options.text("kafka.partitioner.class")
    if java is None:
        return options.choice("partitioner", _PARTITIONERS, "murmur2")
    if options.has("partitioner"):
        raise BadOption("partitioner and kafka.partitioner.class are given: only one can be")
    found = _CLASSES.get(java.rpartition(".")[2])
    if found is None:
        raise BadOption(
            f"kafka.partitioner.class = {java!r}: there is no Java in this client. "
            f"partitioner may be {' or '.join(_PARTITIONERS)}; or give each row its partition in a column"
        )
    return found


def _stamp(options: Options, *, is_stream: bool) -> Stamp | None:
    app = options.text("txnAppId")
    version = options.whole("txnVersion")
    if app is None and version is None:
        return None
    if is_stream:
        raise BadOption(
            "txnAppId and txnVersion are for batch writes: a stream has its query and batch"
        )
    if not app or version is None:
        raise BadOption(
            "txnAppId and txnVersion go together: the name of a job, and a number that grows"
        )
    if not options.flag("exactlyOnce", default=True):
        raise BadOption("txnAppId needs exactlyOnce=true")
    return Stamp(app=app, version=version)
