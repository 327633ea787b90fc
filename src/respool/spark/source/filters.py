"""Reduces a read by the filters that Spark pushes down. Pure.

Topics, partitions and offsets are excluded in the plan, and never leave the broker. For times, brokers look up the
first offset in their index; the messages from there on are filtered one by one as they are decoded, because they need
not be in order of time. Keys and values are filtered there, too. Filters that are not fully applied here go back to
Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Literal, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

Operation: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "null", "not null"]

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": lambda value, several: value in several,
    "not in": lambda value, several: value not in several,
}
_OPERATIONS: Mapping[type[Filter], Operation] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    IsNull: "null",
    IsNotNull: "not null",
}
_NEGATED: Mapping[Operation, Operation] = {"=": "!=", "in": "not in"}
_KINDS: Mapping[str, type] = {
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp": datetime,
    "key": bytes,
    "value": bytes,
}
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestamptype"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column. Can be pickled."""

    column: str
    operation: Operation
    value: Any = None

    def holds(self, value: Any) -> bool:
        return _COMPARED[self.operation](value, self.value)


@dataclass(slots=True, kw_only=True)
class Narrowing:
    """The remaining read. Can be pickled."""

    # Conditions on topic and partition.
    places: list[Condition] = field(default_factory=list)
    offset_min: int = 0
    # Exclusive.
    offset_end: int | None = None
    since_ms: int | None = None
    # Exclusive.
    until_ms: int | None = None
    # Applied to every message when it is decoded.
    rows: list[Condition] = field(default_factory=list)

    def wants(self, topic: str, partition: int) -> bool:
        values = {"topic": topic, "partition": partition}
        return all(one.holds(values[one.column]) for one in self.places)

    def range_of(self, begin: int, end: int) -> tuple[int, int]:
        begin = max(begin, self.offset_min)
        end = end if self.offset_end is None else min(end, self.offset_end)
        return begin, max(begin, end)

    def take(self, one: Filter) -> bool:
        """Apply the filter; returns False, without any change, if Spark must apply it."""
        condition = _condition(one)
        if condition is None:
            return False
        if condition.operation in {"null", "not null"}:
            return self._take_null(condition)
        if not _is_comparable(condition):
            return False
        match condition.column:
            case "topic" | "partition":
                self.places.append(condition)
            case "offset":
                self._take_offset(condition)
            case "timestamp":
                return self._take_time(condition)
            case _:
                if condition.operation not in {"=", "!=", "in", "not in"}:
                    return False
                self.rows.append(condition)
        return True

    def _take_null(self, condition: Condition) -> bool:
        if condition.column in _NEVER_NULL:
            # NOT NULL always holds; IS NULL never does, so no query needs it.
            return condition.operation == "not null"
        if condition.column in {"key", "value"}:
            self.rows.append(condition)
            return True
        return False

    def _take_offset(self, condition: Condition) -> None:
        first, end = _hull(condition) if condition.value != () else (None, 0)
        if first is not None:
            self.offset_min = max(self.offset_min, first)
        if end is not None:
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)
        if condition.operation in {"in", "not in", "!="}:
            self.rows.append(condition)

    def _take_time(self, condition: Condition) -> bool:
        if condition.operation in {"in", "not in", "!="} or condition.value.tzinfo is None:
            return False
        at_us = (condition.value - _EPOCH) // _MICROSECOND
        # Messages have milliseconds, Spark's times microseconds: the first ms at or after it, and the first after it.
        first_ms, after_ms = -(-at_us // 1000), at_us // 1000 + 1
        since_ms = {">": after_ms, ">=": first_ms, "=": first_ms}.get(condition.operation)
        until_ms = {"<": first_ms, "<=": after_ms, "=": after_ms}.get(condition.operation)
        if (since_ms is not None and since_ms < 0) or (until_ms is not None and until_ms <= 0):
            # Messages without a timestamp count as just before 1970, and brokers cannot look up earlier times.
            return False
        if since_ms is not None:
            self.since_ms = since_ms if self.since_ms is None else max(self.since_ms, since_ms)
        if until_ms is not None:
            self.until_ms = until_ms if self.until_ms is None else min(self.until_ms, until_ms)
        return True


def narrow(filters: Sequence[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The reduced read, and the filters that Spark must still apply."""
    narrowing = Narrowing()
    return narrowing, [one for one in filters if not narrowing.take(one)]


def _condition(one: Filter) -> Condition | None:
    negated = isinstance(one, Not)
    inner = one.child if isinstance(one, Not) else one
    operation = _OPERATIONS.get(type(inner))
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if operation is None or len(path) != 1:
        return None
    value = getattr(inner, "value", None)
    if isinstance(inner, EqualNullSafe):
        if negated:
            return None
        if value is None:
            operation = "null"
    if negated:
        if operation not in _NEGATED:
            return None
        operation = _NEGATED[operation]
    return Condition(path[0].lower(), operation, value)


def _is_comparable(condition: Condition) -> bool:
    kind = _KINDS.get(condition.column)
    several = condition.operation in {"in", "not in"}
    values = condition.value if several else (condition.value,)
    # Not null, which SQL compares differently.
    return kind is not None and all(
        isinstance(one, kind) and not isinstance(one, bool) for one in values
    )


def _hull(condition: Condition) -> tuple[int | None, int | None]:
    """The first offset that may match, and the one after the last."""
    value = condition.value
    several = value if isinstance(value, tuple) and value else (value,)
    first = {"=": value, ">=": value, ">": several[0] + 1, "in": min(several)}
    behind = {"=": several[0] + 1, "<": value, "<=": several[0] + 1, "in": max(several) + 1}
    return first.get(condition.operation), behind.get(condition.operation)
