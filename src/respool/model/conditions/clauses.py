"""The clauses of a condition on records, and their canonical text. `model/where.py` shows the language."""

import re
from dataclasses import dataclass
from typing import TypeAlias

# Not the name of a header, unless in double quotes. Upper and lower case are the same.
KEYWORDS = frozenset({
    "and", "or", "in", "not", "exists", "absent", "key", "starts", "hidden", "include", "tombstones",
})  # fmt: skip

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class HeaderIn:
    """A header of this name has one of these values; negated: none has."""

    name: str
    # Sorted, each once.
    values: tuple[bytes, ...]
    is_negated: bool = False

    def __post_init__(self) -> None:
        assert self.values == in_order(self.values)

    def __str__(self) -> str:
        return f"{name_text(self.name)} {_values_text(self.values, self.is_negated)}"


@dataclass(frozen=True, slots=True)
class HeaderExists:
    """There is a header of this name; negated: there is none."""

    name: str
    is_negated: bool = False

    def __str__(self) -> str:
        return f"{'absent' if self.is_negated else 'exists'}({name_text(self.name)})"


@dataclass(frozen=True, slots=True)
class KeyIn:
    """The key is one of these values; negated: it is another one, or there is no key."""

    # Sorted, each once.
    values: tuple[bytes, ...]
    is_negated: bool = False

    def __post_init__(self) -> None:
        assert self.values == in_order(self.values)

    def __str__(self) -> str:
        return f"key {_values_text(self.values, self.is_negated)}"


@dataclass(frozen=True, slots=True)
class KeyStarts:
    """The key begins with these bytes; with no bytes: there is a key."""

    prefix: bytes

    def __str__(self) -> str:
        return f"key starts {_value_text(self.prefix)}"


@dataclass(frozen=True, slots=True)
class Hidden:
    """The record is delayed: readers do not see it where it was written. Negated: it is not delayed."""

    is_negated: bool = False

    def __str__(self) -> str:
        return "not hidden" if self.is_negated else "hidden"


HeaderClause: TypeAlias = HeaderIn | HeaderExists
KeyClause: TypeAlias = KeyIn | KeyStarts
Clause: TypeAlias = HeaderClause | KeyClause | Hidden


def in_order(values: tuple[bytes, ...] | list[bytes]) -> tuple[bytes, ...]:
    """The values of a clause, so that equal sets are equal clauses."""
    return tuple(sorted(set(values)))


def name_text(name: str) -> str:
    """The name as it is written in a condition."""
    if _PLAIN.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _values_text(values: tuple[bytes, ...], is_negated: bool) -> str:
    if len(values) == 1:
        return f"{'!=' if is_negated else '='} {_value_text(values[0])}"
    return f"{'not in' if is_negated else 'in'} ({', '.join(map(_value_text, values))})"


def _value_text(value: bytes) -> str:
    try:
        return "'" + value.decode().replace("'", "''") + "'"
    except UnicodeDecodeError:
        return f"x'{value.hex()}'"
