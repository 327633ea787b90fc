"""Finds out that no record can match: `absent(tag) and tag = 'a'`. Two values of one header do not contradict each
other.
"""

from collections.abc import Iterable, Sequence

from respool.model.conditions.clauses import (
    Clause,
    HeaderClause,
    HeaderExists,
    HeaderIn,
    Hidden,
    KeyClause,
    KeyIn,
    KeyStarts,
)


def contradiction(clauses: Sequence[Clause]) -> list[Clause]:
    """Clauses that cannot all hold; none if a record can match."""
    headers: dict[str, list[HeaderClause]] = {}
    for one in clauses:
        if isinstance(one, HeaderIn | HeaderExists):
            headers.setdefault(one.name, []).append(one)
    candidates: list[Sequence[Clause]] = [
        *(named for named in headers.values() if not _header_possible(named)),
    ]
    keys = [one for one in clauses if isinstance(one, KeyIn | KeyStarts)]
    if not _key_possible(keys):
        candidates.append(keys)
    hidden = [one for one in clauses if isinstance(one, Hidden)]
    if len(set(hidden)) > 1:
        candidates.append(hidden)
    return list(candidates[0]) if candidates else []


def _header_possible(clauses: Sequence[HeaderClause]) -> bool:
    required = [
        set(one.values) for one in clauses if isinstance(one, HeaderIn) and not one.is_negated
    ]
    excluded = _union(one.values for one in clauses if isinstance(one, HeaderIn) and one.is_negated)
    exists = {one.is_negated for one in clauses if isinstance(one, HeaderExists)}
    is_absent = True in exists
    if is_absent and (required or False in exists):
        return False
    # Another header of the name may satisfy each of them.
    return all(values - excluded for values in required)


def _key_possible(clauses: Sequence[KeyClause]) -> bool:
    prefixes = sorted((one.prefix for one in clauses if isinstance(one, KeyStarts)), key=len)
    required = [set(one.values) for one in clauses if isinstance(one, KeyIn) and not one.is_negated]
    if required:
        excluded = _union(
            one.values for one in clauses if isinstance(one, KeyIn) and one.is_negated
        )
        left = set.intersection(*required) - excluded
        return any(all(map(value.startswith, prefixes)) for value in left)
    return all(map(prefixes[-1].startswith, prefixes)) if prefixes else True


def _union(several: Iterable[Iterable[bytes]]) -> set[bytes]:
    return {value for values in several for value in values}
