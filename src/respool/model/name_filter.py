"""Allow and deny lists of names, as glob patterns separated by commas: `rides*,fares`."""

import re
from fnmatch import translate


class NameFilter:
    def __init__(self, *, allow: str, deny: str) -> None:
        """A name passes if it matches a pattern of `allow` and none of `deny`. Case-sensitive."""
        self._allow = _pattern(allow)
        self._deny = _pattern(deny)

    def passes(self, name: str) -> bool:
        return _matches(self._allow, name) and not _matches(self._deny, name)


def _pattern(globs: str) -> re.Pattern[str] | None:
    given = [one.strip() for one in globs.split(",") if one.strip()]
    return re.compile("|".join(map(translate, given))) if given else None


def _matches(pattern: re.Pattern[str] | None, name: str) -> bool:
    return pattern is not None and pattern.match(name) is not None
