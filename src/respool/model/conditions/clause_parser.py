"""Parses the text of a condition into its clauses. `model/where.py` shows the language."""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from respool.model.conditions.clauses import (
    KEYWORDS,
    Clause,
    HeaderExists,
    HeaderIn,
    Hidden,
    KeyIn,
    KeyStarts,
    in_order,
)
from respool.model.errors import InvalidConfig

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[^']*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<word>[A-Za-z0-9_.-]+)
    | (?P<sign>!=|[=(),])
    | (?P<end>\Z)
    | (?P<unknown>\S.*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CLAUSE = "a header's name, exists(…), absent(…), key, hidden or not hidden"


class InvalidWhere(InvalidConfig):
    """The text is not a valid condition on records."""


class _Token(NamedTuple):
    kind: str
    text: str
    begin: int

    @property
    def keyword(self) -> str:
        """The keyword or sign that this is, else nothing."""
        if self.kind == "sign":
            return self.text
        word = self.text.lower() if self.kind == "word" else ""
        return word if word in KEYWORDS else ""


class ClauseParser:
    """Recursive descent over the tokens, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self._next = next(self._tokens)

    def parse(self) -> tuple[list[Clause], bool]:
        """Return the clauses, and whether tombstones are included.

        Raises:
            InvalidWhere: with the position, counted from 1, and what was expected there.
        """
        clauses = [self._clause()]
        while self._accept("and"):
            clauses.append(self._clause())
        include_tombstones = self._accept("include")
        if include_tombstones:
            self._expect("tombstones", "`tombstones`")
        if self._next.keyword == "or":
            self._fail("the end or `and`; one of several values of a name is: name in ('a', 'b')")
        if self._next.kind != "end":
            self._fail(
                "the end" if include_tombstones else "the end, `and` or `include tombstones`"
            )
        return clauses, include_tombstones

    def _clause(self) -> Clause:
        match self._next.keyword:
            case "exists" | "absent" as word:
                self._advance()
                self._expect("(", "`(`; a header of this name is written in double quotes")
                name = self._name("a header's name")
                self._expect(")", "`)`")
                return HeaderExists(name, is_negated=word == "absent")
            case "key":
                self._advance()
                if self._accept("starts"):
                    return KeyStarts(self._value())
                return KeyIn(*self._comparison("=, !=, in, not in or starts"))
            case "hidden":
                self._advance()
                return Hidden()
            case "not":
                self._advance()
                self._expect("hidden", "`hidden`; for values, write: name not in ('a', 'b')")
                return Hidden(is_negated=True)
        name = self._name(_CLAUSE)
        return HeaderIn(name, *self._comparison("=, !=, in or not in"))

    def _comparison(self, expected: str) -> tuple[tuple[bytes, ...], bool]:
        """The values, and whether the comparison is negated."""
        if self._accept("="):
            return (self._value(),), False
        if self._accept("!="):
            return (self._value(),), True
        is_negated = self._accept("not")
        self._expect("in", "`in`" if is_negated else expected)
        self._expect("(", "`(` and values")
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(")", "`,` or `)`")
        return in_order(values), is_negated

    def _name(self, expected: str) -> str:
        token = self._next
        if token.kind == "name":
            self._advance()
            return token.text[1:-1].replace('""', '"')
        if token.kind != "word":
            self._fail(expected)
        if token.keyword:
            self._fail(f"{expected}; a header of this name is written in double quotes")
        self._advance()
        return token.text

    def _value(self) -> bytes:
        token = self._next
        if token.kind == "text":
            self._advance()
            return token.text[1:-1].replace("''", "'").encode()
        if token.kind != "bytes":
            self._fail("a value in single quotes, such as 'paid'")
        if not re.fullmatch("([0-9a-fA-F]{2})*", token.text[2:-1]):
            self._fail("an even number of hexadecimal digits, such as x'00ff'")
        self._advance()
        return bytes.fromhex(token.text[2:-1])

    def _accept(self, keyword: str) -> bool:
        if self._next.keyword != keyword:
            return False
        self._advance()
        return True

    def _expect(self, keyword: str, expected: str) -> None:
        if not self._accept(keyword):
            self._fail(expected)

    def _advance(self) -> None:
        self._next = next(self._tokens)

    def _fail(self, expected: str) -> NoReturn:
        token = self._next
        position = f"position {token.begin + 1}"
        if token.kind == "unknown" and token.text[0] in "'\"":
            raise InvalidWhere(f"{position}: the quote is not closed")
        found = f"`{_shortened(token.text)}`" if token.text else "the end"
        raise InvalidWhere(f"{position}: found {found}, expected {expected}")


def _split(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        assert found is not None, "any text is a token of some kind"
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
        at = found.end()


def _shortened(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:19]}…"
