"""Parses settings under Kafka's names: each has a type, limits, and a help text.

A setting is a dataclass field, `retention_ms` for `retention.ms`, with its rule as the field's metadata.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from respool.model.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)
# For longer names, no similar name is suggested.
NAME_LENGTH_MAX = 64


class ConfigKind(StrEnum):
    """The types of DescribeConfigs, as far as they are used here."""

    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRule:
    """How a setting is parsed, and its help text."""

    kind: ConfigKind
    doc: str
    parse: Callable[[str], Any]


def _whole_number(kind: ConfigKind, low: int, high: int, doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise InvalidConfig(f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            raise InvalidConfig(f"{number} is outside {low} to {high}")
        return number

    return {"rule": ConfigRule(kind=kind, doc=doc, parse=parse)}


def one_of(kind: ConfigKind, words: type[StrEnum], doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> StrEnum:
        try:
            return words(text.strip())
        except ValueError:
            known = ", ".join(word.value for word in words)
            raise InvalidConfig(f"{text!r} is not one of: {known}") from None

    return {"rule": ConfigRule(kind=kind, doc=doc, parse=parse)}


def fraction(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise InvalidConfig(f"{text!r} is not a number") from None
        # Not written as "outside", because comparisons with NaN are always false.
        if not 0 <= number <= 1:
            raise InvalidConfig(f"{number} is not within 0 and 1")
        return number

    return {"rule": ConfigRule(kind=ConfigKind.DOUBLE, doc=doc, parse=parse)}


def yes_or_no(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise InvalidConfig(f"{text!r} is not one of: true, false")
        return word == "true"

    return {"rule": ConfigRule(kind=ConfigKind.BOOLEAN, doc=doc, parse=parse)}


def int_between(low: int, high: int, doc: str) -> dict[str, ConfigRule]:
    return _whole_number(ConfigKind.INT, low, high, doc)


def long_between(low: int, high: int, doc: str) -> dict[str, ConfigRule]:
    return _whole_number(ConfigKind.LONG, low, high, doc)


def rules_of(kind: type[Any]) -> Mapping[str, ConfigRule]:
    """The rules of a settings dataclass, by setting name."""
    return {one.name.replace("_", "."): one.metadata["rule"] for one in dataclasses.fields(kind)}


def parse_each(
    overrides: Mapping[str, str],
    rules: Mapping[str, ConfigRule],
    *,
    of: str,
    refused: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Parse overrides; return values by field name. `of` is the kind of settings in errors.

    `refused` are known names without a valid value, and why.

    Raises:
        InvalidConfig: a name is unknown or a value is invalid; the message names it.
    """
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        rule = rules.get(name)
        if rule is None and refused is not None and name in refused:
            raise InvalidConfig(f"{name} is refused: {refused[name]}")
        if rule is None:
            raise unknown_config(name, rules, of=of)
        try:
            values[name.replace(".", "_")] = rule.parse(text)
        except InvalidConfig as error:
            raise InvalidConfig(f"{name}: {error}") from None
    return values


def unknown_config(name: str, rules: Mapping[str, ConfigRule], *, of: str) -> InvalidConfig:
    """The error for a name that is unknown, in Kafka's words, which tools search for."""
    shown = name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}..."
    if not shown.isprintable():
        shown = repr(shown)
    return InvalidConfig(f"Unknown {of} config name: {shown}{_closest(name, rules)}")


def texts_of(config: Any, rules: Mapping[str, ConfigRule]) -> Mapping[str, str]:
    """Every setting by its Kafka name, as text."""
    return {name: _text(getattr(config, name.replace(".", "_"))) for name in rules}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _closest(name: str, rules: Mapping[str, ConfigRule]) -> str:
    # No setting's name is that long, and the search is slow for long texts.
    alike = get_close_matches(name, rules, n=1) if len(name) <= NAME_LENGTH_MAX else []
    return f"; did you mean {alike[0]}?" if alike else ""
