"""Options as passed to Spark: case-insensitive names, text values. Parsed once; invalid ones are refused.

Every name that this code queries becomes a known one; an option with any other name is reported as a mistake, with the
closest known name.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches

from respool.model.errors import RespoolError
from respool.model.times import TimeNotUnderstood, parse_time
from respool.spark.options_kafka import REFUSED, SPARKS_OWN, WITHOUT_EFFECT

_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_BYTES = re.compile(r"(\d+)\s*([kmgt]?)i?b?")
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class BadOption(RespoolError, ValueError):
    """An option is invalid, or contradicts another. The message names it."""


class Options:
    """The given options, with case-insensitive names. Every name that is looked up counts as known."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        # Lower-cased name -> its spelling in the documentation.
        self._known: dict[str, str] = {}

    def has(self, name: str) -> bool:
        self._known[name.lower()] = name
        return name.lower() in self._given

    @property
    def given(self) -> Mapping[str, str]:
        """All given options, by lower-cased name."""
        return self._given

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given[name.lower()].strip() if self.has(name) else default

    def as_given(self, name: str) -> str | None:
        """The value with surrounding blanks: they may be part of a password."""
        return self._given[name.lower()] if self.has(name) else None

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of these words, case-insensitive."""
        said = self.text(name, default)
        assert said is not None
        for one in choices:
            if said.lower() == one.lower():
                return one
        raise BadOption(f"{name} = {said!r}: it may be {' or '.join(map(repr, choices))}")

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def whole(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1
    ) -> int | None:
        said = self.text(name)
        if said is None:
            return default
        try:
            number = int(said)
        except ValueError:
            raise BadOption(f"{name} = {said!r}: a whole number is needed") from None
        if not least <= number <= most:
            raise BadOption(f"{name} = {number}: from {least} to {most}")
        return number

    def milliseconds(self, name: str, default: int) -> int:
        """A duration as in Spark's options: 500ms, 30s, 15m, 2h; a bare number is milliseconds."""
        said = self.text(name)
        if said is None:
            return default
        found = _DURATION.fullmatch(said.lower())
        if found is None or found[2] not in _UNITS_MS:
            raise BadOption(f"{name} = {said!r}: a time such as 500ms, 30s, 15m or 2h")
        return int(found[1]) * _UNITS_MS[found[2]]

    def time_ms(self, name: str, *, now: datetime | None = None) -> int | None:
        """A point in time: milliseconds since 1970, or text as on the command line, such as `3 days ago`."""
        said = self.text(name)
        if said is None:
            return None
        if said.removeprefix("-").isdecimal():
            return self.whole(name)
        try:
            return parse_time(said, now=now or datetime.now(UTC))
        except TimeNotUnderstood as error:
            raise BadOption(f"{name} = {error}; or milliseconds since 1970") from None

    def byte_count(self, name: str) -> int | None:
        """A number of bytes: 1048576, 64m, 1g."""
        said = self.text(name)
        if said is None:
            return None
        found = _BYTES.fullmatch(said.lower())
        if found is None or not int(found[1]):
            raise BadOption(f"{name} = {said!r}: bytes, such as 1048576, 64m or 1g")
        return int(found[1]) * _BYTE_UNITS[found[2]]

    def refuse(self, names: Iterable[str], why: str) -> None:
        """
        Raises:
            BadOption: one of these was given.
        """
        for name in names:
            if self.has(name):
                raise BadOption(f"{name} = {self.text(name)!r}: {why}")

    def refuse_unknown(self, *, also: Collection[str] = ()) -> None:
        """Call this after all options have been queried. The names in `also` are accepted, too.

        Raises:
            BadOption: a name is unknown; if ignored, its user would not notice the mistake.
        """
        known = self._known | {name.lower(): name for name in (*WITHOUT_EFFECT, *also)}
        for name, value in self._given.items():
            if name in known or name in SPARKS_OWN:
                continue
            if name in REFUSED:
                raise BadOption(f"{name} = {value!r}: {REFUSED[name]}")
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            meant = f"; did you mean {known[near[0]]!r}?" if near else ""
            raise BadOption(f"there is no option {name!r}{meant or ':'} docs/spark.md lists all")
