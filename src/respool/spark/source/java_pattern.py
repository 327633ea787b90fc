"""Translates a Java regular expression (`subscribePattern`) to Python, or refuses it. Pure.

The two dialects agree on most common syntax. Syntax that means something else in Python, or nothing, is refused: a
pattern that silently matched other topics would be worse than none.
"""

import re
from collections.abc import Iterator

from respool.spark.option_values import BadOption

_POSIX = {
    "lower": "a-z",
    "upper": "A-Z",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
}


def topic_pattern(option: str, said: str) -> re.Pattern[str]:
    """Return a pattern to be matched against whole names (`fullmatch`), as in Java.

    Raises:
        BadOption: it cannot be translated, or is invalid.
    """
    if not said:
        raise BadOption(f"{option} is empty: a regular expression for topics' names")
    try:
        return re.compile("".join(_translated(said)), re.ASCII)
    except (re.error, _Untranslatable) as error:
        raise BadOption(f"{option} = {said!r} cannot be used: {error}") from None


class _Untranslatable(Exception):
    pass


def _translated(said: str) -> Iterator[str]:
    at, in_class = 0, False
    while at < len(said):
        rest = said[at:]
        if rest.startswith("\\"):
            taken, text = _escape(rest, in_class=in_class)
        elif in_class:
            taken, text = _inside_class(rest)
            in_class = text != "]"
        elif rest.startswith("["):
            taken, text = _class_start(rest)
            in_class = True
        elif rest.startswith("(?"):
            taken, text = _group(rest)
        else:
            taken, text = 1, rest[0]
        at += taken
        yield text


def _class_start(rest: str) -> tuple[int, str]:
    start = "[^" if rest.startswith("[^") else "["
    if rest[len(start) :].startswith("]"):
        # Java treats it as an error, Python as the bracket itself.
        raise _Untranslatable("a class [] with nothing in it")
    return len(start), start


def _inside_class(rest: str) -> tuple[int, str]:
    if rest.startswith("&&"):
        raise _Untranslatable("Python's patterns have no intersections (&&) of classes")
    if rest.startswith("["):
        raise _Untranslatable("Python's patterns have no classes inside classes")
    if rest[0] in "~|-" and rest[1:2] == rest[0]:
        # Python reserves these for future use.
        return 2, "\\" + rest[0]
    return 1, rest[0]


def _escape(rest: str, *, in_class: bool) -> tuple[int, str]:
    sign = rest[1:2]
    if sign == "Q":
        literal, _, _ = rest[2:].partition("\\E")
        return min(len(rest), len(literal) + 4), re.escape(literal)
    if sign in {"p", "P"}:
        return _named_class(rest, in_class=in_class)
    if found := re.match(r"\\k<(\w+)>", rest):
        return found.end(), f"(?P={found[1]})"
    if sign in {"z", "Z"} and not in_class:
        # Topic names have no line ends, before which Java's \Z would match, too.
        return 2, r"\Z"
    found = re.match(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^\w]|[dDsSwWtnrfa])", rest)
    if found is None and not in_class:
        found = re.match(r"\\[bBA1-9]", rest)
    if found is None:
        raise _Untranslatable(f"\\{sign} has no counterpart in Python's patterns")
    return found.end(), found[0]


def _named_class(rest: str, *, in_class: bool) -> tuple[int, str]:
    found = re.match(r"\\([pP])\{(?:Is)?(\w+)\}", rest)
    members = None if found is None else _POSIX.get(found[2].lower())
    if found is None or members is None or (in_class and found[1] == "P"):
        raise _Untranslatable(f"{rest[:12]} has no counterpart in Python's patterns")
    if in_class:
        return found.end(), members
    return found.end(), f"[{'^' if found[1] == 'P' else ''}{members}]"


def _group(rest: str) -> tuple[int, str]:
    if found := re.match(r"\(\?<([a-zA-Z]\w*)>", rest):
        return found.end(), f"(?P<{found[1]}>"
    if rest.startswith(("(?:", "(?=", "(?!", "(?>")):
        return 3, rest[:3]
    if rest.startswith(("(?<=", "(?<!")):
        return 4, rest[:4]
    if found := re.match(r"\(\?[ims]+(?:-[ims]+)?[:)]", rest):
        return found.end(), found[0]
    raise _Untranslatable(f"{rest[:5]} has no counterpart in Python's patterns")
