"""Columns as text, as in SQL: `ride_id string, fare double, stops array<struct<at timestamp, zone string>>`. Pure.

```
columns  name type [, name type]...
type     boolean | int | long | float | double | string | binary | date | timestamp | decimal(p,s)
         | array<type> | struct<columns>, also with colons: struct<at: timestamp>
name     a word; or anything in backticks, where a backtick is doubled
```
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from respool.model.errors import InvalidConfig

# Values may be nested this deep. Deeper declarations are refused, which bounds the parser's stack.
DEPTH_MAX = 32
COLUMNS_MAX = 2000
NAME_LENGTH_MAX = 255

# Aliases of types, from Spark and databases.
_ALIASES = {
    "bool": "boolean",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
}
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z_][\w.$-]*)|(\d+)|([<>(),:]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
# Readers of Delta and Iceberg, such as Spark, cannot name such columns.
_UNUSABLE = re.compile(r"[ ,;{}()\n\t=\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: "ColumnType"

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class StructOf:
    fields: "tuple[Column, ...]"

    def __str__(self) -> str:
        return f"struct<{columns_text(self.fields)}>"


ColumnType: TypeAlias = Primitive | Decimal | ArrayOf | StructOf


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType

    def __str__(self) -> str:
        is_plain = _PLAIN_NAME.fullmatch(self.name)
        name = self.name if is_plain else "`" + self.name.replace("`", "``") + "`"
        return f"{name} {self.type}"


def columns_text(columns: Sequence[Column]) -> str:
    return ", ".join(map(str, columns))


def is_column_name(name: str) -> bool:
    """True if every reader of Delta and Iceberg tables can name such a column."""
    return 0 < len(name) <= NAME_LENGTH_MAX and not _UNUSABLE.search(name)


def parse_columns(text: str) -> tuple[Column, ...]:
    """
    Raises:
        InvalidConfig: the text declares no columns; the message names what was expected, and where.
    """
    parser = _ColumnParser(text)
    found = parser.columns(end=None, depth=1)
    if parser.count > COLUMNS_MAX:
        raise InvalidConfig(f"{parser.count} columns are declared, the limit is {COLUMNS_MAX}")
    return found


class _ColumnParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self.count = 0

    @staticmethod
    def _split(text: str) -> list[tuple[str, int]]:
        found, at = [], 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                near = text[at : at + 20].strip()
                raise InvalidConfig(
                    f"columns: {near!r} at position {at} is neither a name nor a type"
                )
            found.append((match.group().strip(), match.start()))
            at = match.end()
        return found

    def columns(self, *, end: str | None, depth: int) -> tuple[Column, ...]:
        found = list(self._column_list(end, depth))
        names = [one.name.lower() for one in found]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfig(
                    f"columns: {name!r} is declared twice; names that differ only in case are the same column"
                )
        return tuple(found)

    def _column_list(self, end: str | None, depth: int) -> Iterator[Column]:
        while True:
            name = self._name()
            if self._peek() == ":":
                self._at += 1
            self.count += 1
            yield Column(name, self._type(depth))
            mark = self._next(
                "',' or the end" if end is None else f"',' or {end!r}", may_end=end is None
            )
            if mark == end or not mark:
                return
            if mark != ",":
                raise self._expected("','")

    def _type(self, depth: int) -> ColumnType:
        if depth > DEPTH_MAX:
            raise InvalidConfig(f"columns: types are nested more than {DEPTH_MAX} deep")
        word = self._next("a type").lower()
        word = _ALIASES.get(word, word)
        if word == "array":
            self._take("<")
            element = self._type(depth + 1)
            self._take(">")
            return ArrayOf(element)
        if word == "struct":
            self._take("<")
            return StructOf(self.columns(end=">", depth=depth + 1))
        if word == "decimal":
            return self._decimal()
        if word not in _PRIMITIVES:
            known = ", ".join((*_PRIMITIVES, "decimal(p,s)", "array<…>", "struct<…>"))
            raise InvalidConfig(f"columns: there is no type {word!r}, there are {known}")
        return Primitive(word)

    def _decimal(self) -> Decimal:
        self._take("(")
        precision = self._number()
        self._take(",")
        scale = self._number()
        self._take(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise InvalidConfig(
                f"columns: decimal({precision},{scale}): 1 to 38 digits, and no more than these after the point"
            )
        return Decimal(precision, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal() or len(word) > 3:
            raise self._expected("a number of digits")
        return int(word)

    def _name(self) -> str:
        word = self._next("the name of a column")
        if word.startswith("`"):
            word = word[1:-1].replace("``", "`")
        elif not (word[0].isalpha() or word[0] == "_"):
            raise self._expected("the name of a column")
        if not is_column_name(word):
            raise InvalidConfig(
                f"columns: {word!r} cannot be a column: 1 to {NAME_LENGTH_MAX} characters, without spaces and ,;{{}}()="
            )
        return word

    def _take(self, wanted: str) -> None:
        if self._next(repr(wanted)) != wanted:
            raise self._expected(repr(wanted))

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str, *, may_end: bool = False) -> str:
        if self._at >= len(self._tokens):
            if may_end:
                return ""
            raise InvalidConfig(
                f"columns: {wanted} was expected at the end of {self._text[-40:]!r}"
            )
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _expected(self, wanted: str) -> InvalidConfig:
        word, position = self._tokens[self._at - 1]
        return InvalidConfig(f"columns: {wanted} was expected at position {position}, not {word!r}")
