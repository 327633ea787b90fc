"""A view's settings: which topic it is of, which records it shows, and whether all-topics requests list it.

A view has nothing else of its own: storage, retention and replicas are its parent's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from respool.model.cluster import TopicImage
from respool.model.config_rules import (
    ConfigKind,
    ConfigRule,
    parse_each,
    rules_of,
    texts_of,
    unknown_config,
    yes_or_no,
)
from respool.model.errors import InvalidConfig
from respool.model.topic_config import CONFIG_RULES
from respool.model.where import Where, parse_where

PREFIX = "respool.view."
OF = "respool.view.of"
WHERE = "respool.view.where"
LISTED = "respool.view.listed"
# Settings that stay as the view was created: another parent has other offsets.
FIXED = frozenset({OF})


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    respool_view_listed: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether requests for all topics show the view, and patterns match it. A consumer of 'rides.*' would read "
            "the records of a listed view twice."
        ),
    )
    respool_view_of: str = field(
        metadata={
            "rule": ConfigRule(
                kind=ConfigKind.STRING,
                doc="The topic whose records the view shows. Set when the view is created.",
                parse=str.strip,
            )
        }
    )
    respool_view_where: Where = field(
        metadata={
            "rule": ConfigRule(
                kind=ConfigKind.STRING,
                doc="Which records the view shows, by headers and keys: tag = 'paid' and region in ('eu', 'us').",
                parse=parse_where,
            )
        }
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """
        Raises:
            InvalidConfig: a setting is missing, unknown, or invalid; the message names it.
        """
        for name in given:
            if name in CONFIG_RULES and name not in VIEW_RULES:
                raise InvalidConfig(
                    f"{name} is a setting of topics; a view stores nothing, so set it for its parent"
                )
        for name in (OF, WHERE):
            if name not in given:
                raise InvalidConfig(f"{name} is missing: a view has {OF} and {WHERE}")
        return cls(**parse_each(given, VIEW_RULES, of="view"))

    @cached_property
    def as_text(self) -> Mapping[str, str]:
        """Every setting by its name, as text."""
        return texts_of(self, VIEW_RULES)


VIEW_RULES: Mapping[str, ConfigRule] = dict(sorted(rules_of(ViewConfig).items()))


def describes_view(overrides: Mapping[str, str]) -> bool:
    """True if what has these settings is to be a view."""
    return any(name.startswith(PREFIX) for name in overrides)


def settings_of(topic: TopicImage) -> Mapping[str, str]:
    """The stored settings of a topic or view, in the form in which they are set."""
    if topic.view is None:
        return topic.overrides
    return {OF: topic.view.parent, WHERE: str(topic.view.where), **topic.overrides}


def config_of(view: TopicImage) -> ViewConfig:
    """A view's settings, as far as this version understands them."""
    return ViewConfig.parse(settings_of(replace(view, overrides=understood_view(view.overrides))))


def understood_view(overrides: Mapping[str, str]) -> dict[str, str]:
    """The stored settings of a view that this version knows, each checked on its own."""
    return {
        name: text for name, text in overrides.items() if name == LISTED and _is_valid(name, text)
    }


def parse_listed(overrides: Mapping[str, str]) -> bool:
    """`respool.view.listed` as stored; false if this version does not understand it."""
    return understood_view(overrides).get(LISTED, "false").strip().lower() == "true"


def _is_valid(name: str, text: str) -> bool:
    try:
        VIEW_RULES[name].parse(text)
    except InvalidConfig:
        return False
    return True


def check_is_no_view_setting(name: str, topic: str) -> None:
    """
    Raises:
        InvalidConfig: a setting of views is given for a topic.
    """
    if name.startswith(PREFIX):
        if name not in VIEW_RULES:
            raise unknown_config(name, VIEW_RULES, of="view")
        raise InvalidConfig(f"{name} is a setting of views, and {topic!r} is a topic")
