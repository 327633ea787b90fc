"""`ssl.principal.mapping.rules`: from the subject of a certificate to a user's name, as in Kafka.

    RULE:^CN=([^,]*),OU=kafka.*$/$1/L, RULE:^CN=(.*?),.*$/$1@example/, DEFAULT

The first rule whose pattern matches the whole subject gives the name; `DEFAULT` gives the subject itself. Without a
match the client is refused.
"""

import re
from dataclasses import dataclass
from typing import Self

from respool.model.errors import SettingsError

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP = re.compile(r"\$(\d)|\\(.)", re.DOTALL)
# A nested repetition: matching such a pattern can take exponential time.
_NESTED = re.compile(r"[*+}]\??\)[*+{]")
PATTERN_LENGTH_MAX = 512
SUBJECT_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class _MappingRule:
    # None: DEFAULT.
    pattern: re.Pattern[str] | None
    template: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _GROUP.sub(
            lambda one: (found[int(one[1])] or "") if one[1] else one[2], self.template
        )
        if self.case:
            return name.lower() if self.case == "L" else name.upper()
        return name


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    _rules: tuple[_MappingRule, ...]

    @classmethod
    def parse(cls, setting: str, text: str) -> Self:
        """
        Raises:
            SettingsError: `text` is not a list of rules, or a pattern cannot be used.
        """
        rules, at = [], 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise SettingsError(
                    f"{setting}: {text[at : at + 40]!r} is neither DEFAULT nor RULE:pattern/replacement/[L|U]"
                )
            rules.append(_rule(setting, found))
            at = found.end()
            if separator := re.compile(r"\s*,\s*|\s*$").match(text, at):
                at = separator.end()
            else:
                raise SettingsError(f"{setting}: a comma is missing before {text[at : at + 40]!r}")
        if not rules:
            raise SettingsError(f"{setting}: there is no rule; DEFAULT takes the subject itself")
        return cls(tuple(rules))

    def name_of(self, subject: str) -> str | None:
        """The user's name; None: no rule matches, so the client is refused."""
        if len(subject) > SUBJECT_LENGTH_MAX:
            return None
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name or None
        return None


def _rule(setting: str, found: re.Match[str]) -> _MappingRule:
    if found[1]:
        return _MappingRule(pattern=None)
    pattern = found[2].replace("\\/", "/")
    if len(pattern) > PATTERN_LENGTH_MAX or _NESTED.search(pattern):
        raise SettingsError(
            f"{setting}: the pattern {pattern[:40]!r} repeats a repetition, which could take very long, or is longer "
            f"than {PATTERN_LENGTH_MAX}"
        )
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(f"{setting}: the pattern {pattern[:40]!r}: {error}") from None
    groups = {int(one[1]) for one in _GROUP.finditer(found[3]) if one[1]}
    if groups and max(groups) > compiled.groups:
        raise SettingsError(
            f"{setting}: ${max(groups)} has no group in the pattern {pattern[:40]!r}"
        )
    return _MappingRule(pattern=compiled, template=found[3].replace("\\/", "/"), case=found[4])
