"""The condition on records that the arguments of a read state: `tags`, and the keys that `where` requires."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from respool.client.arrow.reading.where_keys import key_clauses_of
from respool.client.kafka.errors import BadArgument
from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.where import CLAUSES_MAX, Tags, Where, parse_where, where_of_tags

if TYPE_CHECKING:
    import pyarrow.compute as pc

# Values of headers, or a condition in the language of views.
TagFilter: TypeAlias = Tags | str


def condition_of(tags: TagFilter | None, where: "pc.Expression | None") -> Where | None:
    """The condition that every returned record fulfills; None if there is none.

    Raises:
        BadArgument: `tags` is not a condition, or no record can match it.
    """
    condition = None if tags is None else _parsed(tags)
    # Any of them may be left out: `where` is evaluated for each row, too.
    clauses = tuple(dict.fromkeys(key_clauses_of(where)))[:CLAUSES_MAX]
    if not clauses:
        return condition
    try:
        keys = Where(clauses)
        return keys if condition is None else condition.and_(keys)
    except InvalidWhere:
        # No record can match. `where` is evaluated for each row, and finds none.
        return condition


def text_for_brokers(condition: Where | None) -> str:
    """The condition as brokers read it; empty if there is none, or if they would refuse its size."""
    if condition is None:
        return ""
    text = str(condition)
    try:
        parse_where(text)
    except InvalidWhere:
        return ""
    return text


def _parsed(tags: TagFilter) -> Where:
    if not isinstance(tags, Mapping | str):
        raise BadArgument(
            f"tags = {tags!r}: header names with the values to read, such as {{'region': ['eu', 'us']}}, "
            "or a condition, such as \"region in ('eu', 'us') and absent(test)\""
        )
    if not tags:
        raise BadArgument(f"tags = {tags!r} names no header: leave it out to read everything")
    try:
        return parse_where(tags) if isinstance(tags, str) else where_of_tags(tags)
    except InvalidWhere as error:
        raise BadArgument(f"tags = {tags!r}: {error}") from error
