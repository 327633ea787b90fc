r"""Parses a pattern of topic names. The syntax is RE2's, which Kafka's coordinator uses (KIP-848).

RE2 has neither back references nor look-around, so its patterns can be matched in linear time. Topic names consist of
65 different characters, so a character class is a subset of these; an expression that only matches other characters,
such as `\n`, is an empty class. Lazy repetition matches the same names as greedy repetition, so both parse to the same
node. Groups serve no other purpose than grouping.
"""

import string
from enum import Enum
from typing import NamedTuple, TypeAlias

from respool.coordination.topic_patterns.pattern_characters import (
    ANY,
    ESCAPED_CLASSES,
    WORD,
    posix_class,
    unicode_class,
)
from respool.model.coordinator_errors import InvalidRegularExpression

PATTERN_LENGTH_MAX = 4_096
_DEPTH_MAX = 100
_REPEAT_MAX = 1_000


class Chars(NamedTuple):
    """Matches one character out of a set."""

    allowed: frozenset[str]


class Sequence(NamedTuple):
    parts: tuple["Node", ...]


class Choice(NamedTuple):
    branches: tuple["Node", ...]


class Repeat(NamedTuple):
    part: "Node"
    low: int
    # None: unlimited.
    high: int | None


class Assertion(Enum):
    """An assertion about a position between two characters."""

    START = "start"
    END = "end"
    WORD_BOUNDARY = "word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Assertion


def parse(text: str) -> Node:
    """Parse a pattern.

    Raises:
        InvalidRegularExpression: the pattern is invalid or too long.
    """
    if len(text) > PATTERN_LENGTH_MAX:
        raise InvalidRegularExpression(
            f"the pattern has {len(text)} characters, limit {PATTERN_LENGTH_MAX}"
        )
    return _Parser(text).whole()


_SINGLE: dict[str, Node] = {".": Chars(ANY), "^": Assertion.START, "$": Assertion.END}
_PLACES = {
    "A": Assertion.START,
    "z": Assertion.END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("a ) without its (")
        return node

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._took("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in {"", "|", ")"}:
            if self._took(r"\Q"):
                parts.extend(self._quoted())
            elif (repeat := self._repeat_here()) is not None:
                if not parts:
                    raise self._wrong("nothing to repeat")
                parts[-1] = Repeat(parts[-1], *repeat)
            elif (part := self._part()) is not None:
                parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _part(self) -> Node | None:
        """Parse an atom, which can be repeated; None if it only sets flags."""
        char = self._next()
        if char in _SINGLE:
            return _SINGLE[char]
        if char == "[":
            return Chars(self._class())
        if char == "(":
            return self._group()
        if char == "\\":
            return _PLACES[self._next()] if self._peek() in _PLACES else Chars(self._escape())
        return Chars(self._fold(frozenset(char)))

    def _quoted(self) -> list[Node]:
        end = self._text.find(r"\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else None]
        self._at += len(quoted) + (2 if end >= 0 else 0)
        return [Chars(self._fold(frozenset(char))) for char in quoted]

    # --- repetition

    def _repeat_here(self) -> tuple[int, int | None] | None:
        repeat = self._one_repeat()
        if repeat is None:
            return None
        self._took("?")
        if self._one_repeat() is not None:
            raise self._wrong("a repetition of a repetition")
        return repeat

    def _one_repeat(self) -> tuple[int, int | None] | None:
        if self._took("*"):
            return 0, None
        if self._took("+"):
            return 1, None
        if self._took("?"):
            return 0, 1
        return self._counted() if self._peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """Parse `{n}`, `{n,}` or `{n,m}`; any other brace is a literal."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if end < 0 or not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        bounds = int(low), (int(low) if not comma else int(high) if high else None)
        if max(bounds[0], bounds[1] or 0) > _REPEAT_MAX or (
            bounds[1] is not None and bounds[1] < bounds[0]
        ):
            raise self._wrong(f"{{{low}{comma}{high}}} is not a count up to {_REPEAT_MAX}")
        self._at = end + 1
        return bounds

    # --- groups

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"groups deeper than {_DEPTH_MAX}")
        ignored_case = self._ignores_case
        if self._took("?") and self._sets_flags_only():
            self._depth -= 1
            return None
        node = self._choice()
        if not self._took(")"):
            raise self._wrong("a ( without its )")
        # Flags apply until the end of the group in which they are set.
        self._ignores_case = ignored_case
        self._depth -= 1
        return node

    def _sets_flags_only(self) -> bool:
        """Parse the name or the flags after `(?`; return True for flags without content, such as `(?i)`."""
        if self._took("P<") or self._took("<"):
            end = self._text.find(">", self._at)
            name = self._text[self._at : max(end, self._at)]
            if not name or not all(char in WORD for char in name):
                raise self._wrong(
                    "a group's name is missing or has other than letters, digits and _"
                )
            self._at = end + 1
            return False
        value = True
        while True:
            match self._next():
                case "i":
                    self._ignores_case = value
                case "m" | "s" | "U":
                    # These flags have no effect: names have one line, and only whole names match.
                    pass
                case "-" if value:
                    value = False
                case ":":
                    return False
                case ")":
                    return True
                case _:
                    raise self._wrong("a kind of group that RE2 does not have")

    # --- character classes

    def _class(self) -> frozenset[str]:
        negated = self._took("^")
        allowed: frozenset[str] = frozenset()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            allowed |= self._posix_class() or self._range()
        self._at += 1
        allowed = self._fold(allowed)
        return ANY - allowed if negated else allowed

    def _posix_class(self) -> frozenset[str] | None:
        end = self._text.find(":]", self._at)
        if not self._text.startswith("[:", self._at) or end < 0:
            return None
        name = self._text[self._at + 2 : end]
        found = posix_class(name.removeprefix("^"))
        if found is None:
            raise self._wrong(f"there is no class [:{name}:]")
        self._at = end + 2
        return ANY - found if name.startswith("^") else found

    def _range(self) -> frozenset[str]:
        low = self._class_char()
        if not isinstance(low, str):
            return low
        rest = self._text[self._at : self._at + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return frozenset(low)
        self._at += 1
        high = self._class_char()
        if not isinstance(high, str) or high < low:
            raise self._wrong("a range that ends before it begins")
        return frozenset(char for char in ANY if low <= char <= high)

    def _class_char(self) -> str | frozenset[str]:
        char = self._next()
        if char != "\\":
            return char
        return self._escaped()

    def _escape(self) -> frozenset[str]:
        escaped = self._escaped()
        return self._fold(frozenset(escaped)) if isinstance(escaped, str) else escaped

    def _escaped(self) -> str | frozenset[str]:
        """Parse an escape, which stands for a character or a class."""
        char = self._next()
        if char in ESCAPED_CLASSES:
            return ESCAPED_CLASSES[char]
        if char in {"p", "P"}:
            return self._unicode_class(negated=char == "P")
        if char == "x":
            return self._hexadecimal()
        if char in "01234567" and (char == "0" or self._peek() in set("01234567")):
            return self._octal(char)
        if char.isascii() and not char.isalnum():
            return char
        raise self._wrong(f"\\{char} means nothing in RE2")

    def _unicode_class(self, *, negated: bool) -> frozenset[str]:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        found = unicode_class(name)
        if found is None:
            raise self._wrong(f"there is no class of characters {name!r} here")
        return ANY - found if negated else found

    def _hexadecimal(self) -> str:
        if self._took("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or not all(digit in string.hexdigits for digit in digits):
            raise self._wrong("\\x without a hexadecimal number")
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise self._wrong(f"there is no character {digits}")
        return chr(number)

    def _octal(self, first: str) -> str:
        digits = first
        while len(digits) < 3 and self._peek() in set("01234567"):
            digits += self._next()
        return chr(int(digits, 8))

    def _fold(self, chars: frozenset[str]) -> frozenset[str]:
        """Limit a class to characters of topic names, and add the other case if case is ignored."""
        if self._ignores_case:
            chars |= {char.swapcase() for char in chars if char.isascii()}
        return chars & ANY

    # --- reading

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise self._wrong("it ends too early")
        self._at += 1
        return char

    def _took(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _wrong(self, why: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(
            f"the pattern {shortened(self._text)} is wrong at character {self._at}: {why}"
        )


def shortened(text: str) -> str:
    """The beginning of a pattern, for error messages."""
    return repr(text) if len(text) <= 100 else f"{text[:100]!r}..."


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
