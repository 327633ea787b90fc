"""Many topics made and deleted, through librdkafka's admin client: it speaks to both brokers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ANSWER_SECONDS_MAX = 120.0
# It remarks on its own end otherwise.
LOG_ERRORS = 3


def create_topics(address: str, names: Iterable[str], *, settings: Mapping[str, str]) -> None:
    """In one request."""
    from confluent_kafka.admin import NewTopic

    wanted = [NewTopic(name, num_partitions=1, config=dict(settings)) for name in names]
    # Held until all is answered: without its owner a request is cancelled.
    admin = _admin(address)
    _wait(admin.create_topics(wanted, request_timeout=ANSWER_SECONDS_MAX))


def delete_topics(address: str, names: Sequence[str]) -> None:
    admin = _admin(address)
    _wait(admin.delete_topics(list(names), request_timeout=ANSWER_SECONDS_MAX))


def _admin(address: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": address, "log_level": LOG_ERRORS})


def _wait(futures: Mapping[str, Any]) -> None:
    for future in futures.values():
        future.result(ANSWER_SECONDS_MAX)
