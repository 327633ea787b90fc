"""Where kio's classes refuse what brokers send: our own tools read replies with these instead.

DescribeTransactions. A transactional id that has begun no transaction has the start time -1. To Kafka's definition that
is an int64 like any other; kio takes the field for a time, and finds no such time. Here it may be None.
"""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache
from typing import Any

from kio.static.primitive import TZAware

from respool.wire.api_table import Api
from respool.wire.schema import EntityClass, response_class, schema_of

_MARKS = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


@cache
def reply_class(key: int, version: int) -> EntityClass:
    """What to read a reply with."""
    loaded = response_class(key, version)
    if key != Api.DESCRIBE_TRANSACTIONS:
        return loaded
    (states,) = (item for item in schema_of(loaded) if item.name == "transaction_states")
    assert states.struct is not None
    state: Any = _with_types(states.struct, {"transaction_start_time": TZAware | None})
    # Two steps, since mypy takes what is in the brackets for a type that it must know.
    array: Any = tuple
    return _with_types(loaded, {"transaction_states": array[state, ...]})


def _with_types(entity_class: EntityClass, types: Mapping[str, Any]) -> EntityClass:
    """The same class, but for the types of these fields."""
    return make_dataclass(
        entity_class.__name__,
        [
            (
                item.name,
                types.get(item.name, item.type),
                field(metadata=item.metadata)
                if item.default is MISSING
                else field(metadata=item.metadata, default=item.default),
            )
            for item in fields(entity_class)
        ],
        namespace={mark: getattr(entity_class, mark) for mark in _MARKS},
        frozen=True,
        slots=True,
        kw_only=True,
    )
