"""The headers that a topic's tag index is made for before there is a view: `tag, region, key`."""

import re
from dataclasses import dataclass
from typing import Self

from respool.model.conditions.clauses import name_text
from respool.model.errors import InvalidConfig

NAMES_MAX = 16
KEY = "key"

_NAME = re.compile(r'\s*(?:(?P<plain>[A-Za-z0-9_.-]+)|"(?P<quoted>(?:[^"]|"")*)")\s*(?:,|\Z)')


@dataclass(frozen=True, slots=True)
class TagNames:
    # Headers; None is the record's key.
    names: tuple[str | None, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Names with commas between them. `key` is the record's key, and `"key"` a header of that name.

        Raises:
            InvalidConfig: the text is malformed, or has too many names.
        """
        names: dict[str | None, None] = {}
        at = 0
        while text[at:].strip():
            found = _NAME.match(text, at)
            if found is None:
                raise InvalidConfig(
                    f"position {at + 1}: expected the name of a header, in double quotes if it is "
                    "not a plain word, and commas between names"
                )
            quoted = found["quoted"]
            if quoted is not None:
                names[quoted.replace('""', '"')] = None
            else:
                names[None if found["plain"] == KEY else found["plain"]] = None
            at = found.end()
        if len(names) > NAMES_MAX:
            raise InvalidConfig(f"{len(names)} names, at most {NAMES_MAX} are allowed")
        return cls(tuple(names))

    def __str__(self) -> str:
        return ",".join(KEY if name is None else name_text(name) for name in self.names)
