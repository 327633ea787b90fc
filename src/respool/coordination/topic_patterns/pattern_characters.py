"""The characters of topic names, and their named character classes."""

import string
import unicodedata
from collections.abc import Callable

ANY = frozenset(string.ascii_letters + string.digits + "._-")
WORD = frozenset(string.ascii_letters + string.digits + "_")

_DIGITS = frozenset(string.digits)
_NONE: frozenset[str] = frozenset()
ESCAPED_CLASSES = {
    "d": _DIGITS,
    "D": ANY - _DIGITS,
    "s": _NONE,
    "S": ANY,
    "w": WORD,
    "W": ANY - WORD,
    "C": ANY,
    # Topic names contain no control characters.
    **dict.fromkeys("aftnrv", _NONE),
}
_POSIX_CLASSES: dict[str, Callable[[str], bool]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": str.isascii,
    "blank": str.isspace,
    "cntrl": lambda char: not char.isprintable(),
    "digit": str.isdigit,
    "graph": str.isprintable,
    "lower": str.islower,
    "print": str.isprintable,
    "punct": string.punctuation.__contains__,
    "space": str.isspace,
    "upper": str.isupper,
    "word": WORD.__contains__,
    "xdigit": string.hexdigits.__contains__,
}
# General categories: one letter, or two.
_UNICODE_CATEGORIES = frozenset(
    first + second
    for first, seconds in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for second in ("", *seconds)
)


def posix_class(name: str) -> frozenset[str] | None:
    """The characters of the POSIX class `[:name:]`; None if there is no such class."""
    is_in = _POSIX_CLASSES.get(name)
    return None if is_in is None else frozenset(filter(is_in, ANY))


def unicode_class(name: str) -> frozenset[str] | None:
    """The characters of a Unicode category such as `L` or `Nd`; None if there is no such category."""
    if name not in _UNICODE_CATEGORIES:
        return None
    return frozenset(char for char in ANY if unicodedata.category(char).startswith(name))
