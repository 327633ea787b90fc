"""confluent-kafka for `respool produce` and `consume`: its clients, and its errors translated into ours."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from respool.cli.connection_options import BrokerConnection
from respool.model.extras import how_to_install
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.operate.cluster_admin import CLIENT_ID, CONNECT_SECONDS, REQUEST_SECONDS
from respool.operate.errors import NobodyLeads, TopicExists

try:
    import confluent_kafka
except ImportError as error:
    raise OperatorError(
        "this command needs the Kafka client library, which is not installed",
        hint=f"install it: {how_to_install('client')}",
    ) from error

client = confluent_kafka


KafkaError = client.KafkaError
KafkaException = client.KafkaException
TopicPartition = client.TopicPartition
TIMESTAMP_NOT_AVAILABLE = client.TIMESTAMP_NOT_AVAILABLE
NOT_FOUND_CODES = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the names of librdkafka's own codes
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
UNLED_CODES = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
UNREACHABLE_CODES = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
    }
)
PARTITION_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
DAMAGED_CODES = frozenset(
    {
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError.INVALID_MSG,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
# Too long without a poll: the group has reassigned our partitions. The library rejoins by itself.
POLLED_TOO_LATE = KafkaError._MAX_POLL_EXCEEDED  # noqa: SLF001
OFFSET_GONE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001


class translated:  # noqa: N801 - lowercase, as it is used like a function: `with translated(broker):`
    """Turn the client library's errors into `OperatorError`s with Kafka's own message."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaException):
            raise to_cli_error(error.args[0], self._broker) from error
        if isinstance(error, FutureTimeout):
            raise Unreachable(
                f"the broker at {self._broker} did not answer within {REQUEST_SECONDS:.0f} seconds"
            ) from error


def make_producer(connection: BrokerConnection, **config: object) -> Any:
    """`config` has librdkafka's names, with underscores instead of dots."""
    with translated(connection.bootstrap):
        return client.Producer(_settings(connection) | _dotted(config), logger=quiet())


def make_consumer(
    connection: BrokerConnection, *, on_error: Callable[[Any], None], **config: object
) -> Any:
    # Without check.crcs, librdkafka returns whatever a damaged batch decodes to.
    settings = _settings(connection) | {"check.crcs": True} | _dotted(config)
    settings["error_cb"] = on_error
    with translated(connection.bootstrap):
        return client.Consumer(settings, logger=quiet())


def _settings(connection: BrokerConnection) -> dict[str, object]:
    return {
        "client.id": CLIENT_ID,
        # Short backoffs: a user who restarts a broker expects the command to reconnect soon.
        "reconnect.backoff.max.ms": 1000,
        "socket.connection.setup.timeout.ms": int(CONNECT_SECONDS * 1000),
        **connection.library_settings(),
    }


def _dotted(config: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in config.items()}


def to_cli_error(error: Any, broker: str) -> OperatorError:
    text = reason(error)
    if error.code() in NOT_FOUND_CODES:
        return NotFound(
            f"no such topic or partition at {broker}: {text}", hint="see: respool topic list"
        )
    if error.code() in UNREACHABLE_CODES:
        return Unreachable(
            f"the broker at {broker} does not answer: {text}",
            hint="is the address it advertises (respool serve --advertised) reachable from here?",
        )
    if error.code() in UNLED_CODES:
        return NobodyLeads(text)
    if error.code() == KafkaError.INVALID_CONFIG:
        return UsageError(text)
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(text)
    return OperatorError(text)


def reason(error: Any) -> str:
    """Kafka's message for an error, or for an exception that wraps one, without the library's prefixes."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    text = str(inner.str()).strip().removeprefix("Local: ").removeprefix("Broker: ")
    return f"{text} ({inner.name()})" if inner.name() not in text else text


def quiet() -> logging.Logger:
    """A logger that keeps librdkafka's messages off the terminal. Relevant errors are raised by its calls."""
    logger = logging.getLogger("respool.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
