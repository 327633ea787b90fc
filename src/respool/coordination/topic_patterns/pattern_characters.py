"""The characters of topic names, and the classes of them that patterns have names for."""

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
    # Control characters are in no topic's name.
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
# By their first letter, and with each of the second ones.
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
    """The class written `[:name:]`, if there is one."""
    is_in = _POSIX_CLASSES.get(name)
    return None if is_in is None else frozenset(filter(is_in, ANY))


def unicode_class(name: str) -> frozenset[str] | None:
    """The characters of a general category such as `L` or `Nd`, if there is such a one."""
    if name not in _UNICODE_CATEGORIES:
        return None
    return frozenset(char for char in ANY if unicodedata.category(char).startswith(name))
