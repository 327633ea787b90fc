"""The only module that imports confluent-kafka; it also translates its errors."""

import logging
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from respool.client.kafka.bootstrap import (
    FIRST_CONNECT_MS,
    FIRST_CONTACT_MS,
    Bootstrap,
    failed_connections,
)
from respool.client.kafka.retries import RetryTimer
from respool.client.messages.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    Fenced,
    MessagesNeedExtra,
    NoBroker,
    UnknownTopic,
)
from respool.model.errors import SettingsError

try:
    import confluent_kafka
    import confluent_kafka.admin
except ImportError as error:
    raise MessagesNeedExtra(error) from error

KafkaError = confluent_kafka.KafkaError
KafkaException = confluent_kafka.KafkaException
KafkaProducer = confluent_kafka.Producer
KafkaConsumer = confluent_kafka.Consumer
TopicPartition = confluent_kafka.TopicPartition
OFFSET_STORED = confluent_kafka.OFFSET_STORED
TopicCollection = confluent_kafka.TopicCollection
KafkaAdmin = confluent_kafka.admin.AdminClient
NewTopic = confluent_kafka.admin.NewTopic
ConfigResource = confluent_kafka.admin.ConfigResource
TOPIC_RESOURCE = confluent_kafka.admin.ResourceType.TOPIC
MAY_WRITE = frozenset(
    {confluent_kafka.admin.AclOperation.WRITE, confluent_kafka.admin.AclOperation.ALL}
)

log = logging.getLogger("respool.client.messages")
Made = TypeVar("Made")

# How long a broker that accepts connections may take for its first answer; later librdkafka reconnects by itself.
CONNECT_SECONDS = 10.0
# Not every broker knows a newly created topic at once.
TOPIC_SECONDS = 3.0
_RETRY_SECONDS = 0.1
_TOLD_SECONDS = 30.0

# librdkafka's own codes begin with an underscore.
PARTITION_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
OFFSET_GONE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
MAX_POLL_EXCEEDED = KafkaError._MAX_POLL_EXCEEDED  # noqa: SLF001
STATE = KafkaError._STATE  # noqa: SLF001
NO_OFFSET = KafkaError._NO_OFFSET  # noqa: SLF001
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
TOPIC_EXISTS = KafkaError.TOPIC_ALREADY_EXISTS
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
# Not reported: librdkafka retries them.
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
# A rebalance: the partition is being reassigned.
REBALANCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)
FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


class LibraryLog:
    """Forwards librdkafka's log to Python's; messages about unreachable brokers are rate-limited."""

    def __init__(self) -> None:
        self._told_at = -_TOLD_SECONDS

    def log(self, level: int, message: str, *arguments: object) -> None:
        if arguments and arguments[0] == "FAIL":
            level = logging.DEBUG
            if time.monotonic() - self._told_at >= _TOLD_SECONDS:
                level, self._told_at = logging.WARNING, time.monotonic()
        log.log(level, message, *arguments)


def make(kind: Callable[..., Made], settings: Mapping[str, object]) -> Made:
    """Create a librdkafka client of this kind that logs to Python's logging.

    Raises:
        BadArgument: an unknown setting, or an invalid value.
    """
    try:
        return kind(dict(settings), logger=LibraryLog())
    except (KafkaException, TypeError, ValueError) as error:
        raise BadArgument(
            f"librdkafka refuses a setting: {reason(error)}; its CONFIGURATION.md lists them all"
        ) from error


def reason(error: BaseException) -> str:
    """librdkafka's message, without its error code."""
    if isinstance(error, KafkaException):
        kafka_error = error.args[0]
        return f"{kafka_error.str()} ({kafka_error.name()})"
    return str(error)


def check_reachable(bootstrap: Bootstrap, *, retry: RetryTimer | None = None) -> None:
    """Check a client's first connection: librdkafka retries silently if nothing listens.

    Raises:
        NoBroker: no address accepts a connection, for as long as `retry` lasts.
    """
    if "://" in bootstrap.servers:
        return
    retry = RetryTimer(FIRST_CONTACT_MS) if retry is None else retry
    while True:
        try:
            reasons = failed_connections(bootstrap, timeout_s=FIRST_CONNECT_MS / 1000)
        except SettingsError:
            # librdkafka accepts more forms than HOST:PORT, and reports invalid ones.
            return
        if not reasons:
            return
        retry.wait_or_raise(NoBroker(bootstrap, reasons))


def partitions_of(client: Any, topic: str, bootstrap: str, *, seconds: float) -> int:
    """Return the topic's number of partitions.

    Raises:
        BrokerUnreachable: no broker answers.
        UnknownTopic: it does not exist, even after a short wait.
    """
    began = time.monotonic()
    while True:
        found = metadata_of(client, topic, bootstrap, seconds=seconds).topics[topic]
        if found.error is None and found.partitions:
            return len(found.partitions)
        passed = time.monotonic() - began
        if passed > min(seconds, TOPIC_SECONDS):
            # Fetch the metadata of all topics only in this case.
            others = metadata_of(client, None, bootstrap, seconds=seconds).topics
            raise _unknown_topic(topic, list(others)) from (
                KafkaException(found.error) if found.error else None
            )
        time.sleep(_RETRY_SECONDS)


def metadata_of(client: Any, topic: str | None, bootstrap: str, *, seconds: float) -> Any:
    try:
        arguments = () if topic is None else (topic,)
        return client.list_topics(*arguments, timeout=seconds)
    except KafkaException as error:
        raise unreachable(bootstrap, seconds, error) from error


def unreachable(bootstrap: str, seconds: float, error: Any) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"no broker answers at {bootstrap} within {seconds:g} s: {reason(error)};"
        " is it running, and is this the address it advertises?"
    )


def fenced(doing: str, error: Any) -> Fenced:
    return Fenced(
        f"{doing}: {reason(error)}. Another instance with the same id has started, or this one's transaction outlived"
        " transaction.timeout.ms. Nothing of the open transaction counts. End this instance; if it was the only one,"
        " start it again, with shorter transactions"
    )


def is_fencing(error: Any) -> bool:
    """True if this `KafkaError` means that another instance has fenced this client."""
    return error.code() in FENCED or (error.fatal() and "fenced" in str(error).lower())


def _unknown_topic(topic: str, others: list[str]) -> ClientError:
    unknown = UnknownTopic(topic)
    close = get_close_matches(topic, others, n=3)
    if close:
        unknown.args = (f"{unknown.args[0]}; did you mean {' or '.join(close)}?",)
    return unknown
