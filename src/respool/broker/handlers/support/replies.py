"""Parts of replies that several APIs share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from respool.model.errors import RequestError
from respool.model.ids import TopicPartition

Item = TypeVar("Item")


def error_fields(error: RequestError | None) -> dict[str, object]:
    """Return the error's code and message; without an error, 0 and null."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def error_code(error: RequestError | None) -> int:
    return 0 if error is None else error.code


def by_topic(
    items: Mapping[TopicPartition, Item],
) -> Iterable[tuple[str, Sequence[tuple[int, Item]]]]:
    """Group the items of partitions by topic, keeping their order."""
    topics: dict[str, list[tuple[int, Item]]] = {}
    for name, item in items.items():
        topics.setdefault(name.topic, []).append((name.partition, item))
    return topics.items()
