"""What a condition asks of a tag index: which headers, or the key, must have one of which hashes.

Only clauses that a batch without a value cannot fulfill are of use: `tag != 'a'` may hold for any batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from respool.model.conditions.clauses import HeaderClause, HeaderExists, HeaderIn, KeyIn
from respool.model.where import Where
from respool.records.siphash import siphash

# A header's name; None: the key.
TagName = bytes | None


class TagClause(NamedTuple):
    name: TagName
    # Hashes of values, one of which must occur; None: any value, or none.
    hashes: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TagQuery:
    """All clauses must hold for a batch that may match."""

    clauses: tuple[TagClause, ...]
    # Identifies the secret of the hashes.
    secret_check: int

    @classmethod
    def of(cls, where: Where, secret: bytes) -> "TagQuery | None":
        """None if an index says nothing about the condition."""
        clauses = tuple(_clauses(where, secret))
        return cls(clauses, secret_check(secret)) if clauses else None


def indexed_names(where: Where) -> tuple[TagName, ...]:
    """The names by which an index helps to find what matches, each once."""
    return tuple(dict.fromkeys(one.name for one in _clauses(where, bytes(16))))


def secret_check(secret: bytes) -> int:
    """A number that shows whether two secrets are the same, and nothing else about them."""
    return siphash(b"respool tag index", secret)


def _clauses(where: Where, secret: bytes) -> Iterable[TagClause]:
    # A tombstone may match whatever its headers are.
    headers: tuple[HeaderClause, ...] = () if where.include_tombstones else where.header_clauses
    for one in headers:
        if one.is_negated:
            continue
        name = one.name.encode()
        if isinstance(one, HeaderIn):
            yield TagClause(name, tuple(siphash(value, secret) for value in one.values))
        elif isinstance(one, HeaderExists):
            yield TagClause(name, None)
    for key in where.key_clauses:
        if isinstance(key, KeyIn) and not key.is_negated:
            yield TagClause(None, tuple(siphash(value, secret) for value in key.values))
