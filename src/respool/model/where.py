"""Which records of a topic a view shows: clauses joined by `and`. Its parser and canonical text; no evaluation.

    tag = 'paid' and region in ('eu', 'us')         a header has one of these values
    tag != 'test' and region not in ('eu', 'us')    the negation: no header of this name has one of them
    exists(tag) and absent("trace id")              there is, is no header of this name, whatever its value
    key = 'ride-1'  key in ('a', 'b')  key != 'a'  key not in ('a', 'b')  key starts 'ride-'
    hidden  not hidden                              delayed records, in topics with respool.delay
    tag = 'paid' include tombstones                 as well records with a key and no value, whatever their headers

A value is text in single quotes (a quote in it is written twice), compared as UTF-8, or bytes: `x'00ff'`. A name that
is not a plain word (`[A-Za-z0-9_.-]`), or is one of the language's words, stands in double quotes. If a record has
several headers of one name, one of them suffices. A null value equals nothing, and neither does a null key:
`tag != 'a'` holds for a record without that header, and `tag = 'a'` does not.

`ports/record_scan.py` evaluates it for the records of a batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from respool.model.conditions.clause_parser import ClauseParser, InvalidWhere
from respool.model.conditions.clauses import (
    Clause,
    HeaderClause,
    HeaderExists,
    HeaderIn,
    Hidden,
    KeyClause,
    KeyIn,
    KeyStarts,
    in_order,
    name_text,
)
from respool.model.conditions.contradictions import contradiction

CLAUSES_MAX = 8
VALUES_MAX = 64
TEXT_BYTES_MAX = 4 * 1024

# Values of one header, from Python: {"tag": "paid", "region": ["eu", "us"]}
Tags = Mapping[str, str | bytes | Iterable[str | bytes]]


def parse_where(text: str) -> "Where":
    """Parse a condition; the module docstring shows the language.

    Raises:
        InvalidWhere: the text is malformed; the message has the position, counted from 1, and what was expected there.
    """
    _check_size(len(_encoded(text)))
    clauses, include_tombstones = ClauseParser(text).parse()
    return _checked(clauses, include_tombstones=include_tombstones)


def where_of_tags(tags: Tags) -> "Where":
    """The condition that each of these headers has one of its values.

    Raises:
        InvalidWhere: a name or a value has the wrong type, there are no values, or there are too many.
    """
    return _checked([_tag_clause(name, given) for name, given in tags.items()])


@dataclass(frozen=True, slots=True)
class Where:
    """All clauses must hold. Its text, `str(where)`, is canonical and can be parsed again."""

    clauses: tuple[Clause, ...]
    # Records with a key and without a value pass the clauses on headers.
    include_tombstones: bool = False

    def __post_init__(self) -> None:
        """
        Raises:
            InvalidWhere: no record can match.
        """
        assert self.clauses, "a condition without clauses"
        impossible = contradiction(self.clauses)
        if impossible:
            raise InvalidWhere(f"no record can match {' and '.join(map(str, impossible))}")

    def __str__(self) -> str:
        text = " and ".join(map(str, self.clauses))
        return f"{text} include tombstones" if self.include_tombstones else text

    def and_(self, other: "Where") -> "Where":
        """Both hold. The limits of a text do not apply to the result.

        Raises:
            InvalidWhere: no record can match, or only one of two that name headers includes tombstones.
        """
        both = (self, other)
        # Without clauses on headers it makes no difference, and must make none to the other's.
        include_tombstones = {one.include_tombstones for one in both if one.header_clauses}
        if len(include_tombstones) > 1:
            raise InvalidWhere(f"only one of ({self}) and ({other}) includes tombstones")
        clauses = tuple(dict.fromkeys((*self.clauses, *other.clauses)))
        return Where(
            clauses,
            any(include_tombstones or {one.include_tombstones for one in both}),
        )

    @property
    def header_clauses(self) -> tuple[HeaderClause, ...]:
        return tuple(one for one in self.clauses if isinstance(one, HeaderIn | HeaderExists))

    @property
    def key_clauses(self) -> tuple[KeyClause, ...]:
        return tuple(one for one in self.clauses if isinstance(one, KeyIn | KeyStarts))

    @property
    def hidden(self) -> bool | None:
        """True if only hidden records match, False if none of them does, None if it makes no difference."""
        for one in self.clauses:
            if isinstance(one, Hidden):
                return not one.is_negated
        return None

    @property
    def header_names(self) -> tuple[str, ...]:
        """The headers that decide, each once."""
        return tuple(dict.fromkeys(one.name for one in self.header_clauses))


NOT_HIDDEN = Where((Hidden(is_negated=True),))
HIDDEN = Where((Hidden(),))


def _checked(given: Sequence[Clause], *, include_tombstones: bool = False) -> Where:
    clauses = tuple(dict.fromkeys(given))
    if not clauses:
        raise InvalidWhere("a condition has at least one clause, such as tag = 'paid'")
    if len(clauses) > CLAUSES_MAX:
        raise InvalidWhere(f"{len(clauses)} clauses, at most {CLAUSES_MAX} are allowed")
    values = sum(len(one.values) for one in clauses if isinstance(one, HeaderIn | KeyIn))
    if values > VALUES_MAX:
        raise InvalidWhere(f"{values} values, at most {VALUES_MAX} are allowed")
    where = Where(clauses, include_tombstones)
    # The canonical text may be longer than the given one, and must be parsable, too.
    _check_size(len(str(where).encode()))
    return where


def _check_size(size: int) -> None:
    if size > TEXT_BYTES_MAX:
        raise InvalidWhere(f"a condition of {size} bytes, at most {TEXT_BYTES_MAX} are allowed")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidWhere(f"position {error.start + 1}: half of a surrogate pair") from None


def _tag_clause(name: object, given: object) -> HeaderIn:
    if not isinstance(name, str):
        raise InvalidWhere(f"{name!r} is not the name of a header: give text")
    _encoded(name)
    if isinstance(given, str | bytes):
        given = [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InvalidWhere(
            f"{name_text(name)}: {given!r} is not a value; give text, bytes, or several"
        )
    values = in_order([_tag_value(name, one) for one in given])
    if not values:
        raise InvalidWhere(f"{name_text(name)}: no values, so that no record could match")
    return HeaderIn(name, values)


def _tag_value(name: str, value: object) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return _encoded(value)
    raise InvalidWhere(f"{name_text(name)}: {value!r} is not a value; give text or bytes")
