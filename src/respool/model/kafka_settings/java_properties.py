"""Reads text in the format of Java properties: `name=value` lines, comments, continuations and escapes.

    # a comment; so is a line with !
    retries: 3
    sasl.jaas.config = one value \\
        over two lines
    path=C:\\\\data\\u00e9
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
# Not `splitlines`, which also splits at characters that Java leaves in values.
_LINE_END = re.compile(r"\r\n|\r|\n")
# The name ends at the first unescaped =, : or whitespace.
_PROPERTY = re.compile(r"((?:\\.|[^\\=:\s])*)(\s*[=:]?\s*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProperty:
    name: str
    value: str
    # The first of its lines.
    line: int
    # False: there are only spaces between name and value.
    has_separator: bool


def java_properties(text: str) -> Iterator[JavaProperty]:
    """Yield every property in the order of the text; in Java, the last one of a name wins."""
    for number, line in _logical_lines(text):
        found = _PROPERTY.fullmatch(line)
        assert found is not None, "every line matches"
        yield JavaProperty(
            name=_unescaped(found[1]),
            value=_unescaped(found[3]),
            line=number,
            has_separator=bool(found[2].strip()),
        )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield every line that is not a comment, with its number, joined with its backslash continuations."""
    lines = iter(enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1))
    for number, line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            _, following = next(lines, (0, ""))
            whole = whole[:-1] + following.lstrip()
        yield number, whole


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda one: chr(int(one[1], 16)) if one[1] else _ESCAPES.get(one[2], one[2]), text
    )
