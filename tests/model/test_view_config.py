from dataclasses import replace
from uuid import UUID

import pytest

from respool.model.cluster import TopicImage, ViewOf
from respool.model.errors import InvalidConfig
from respool.model.ids import TopicId
from respool.model.topic_config import TopicConfig
from respool.model.view_config import (
    LISTED,
    OF,
    WHERE,
    ViewConfig,
    check_is_no_view_setting,
    config_of,
    describes_view,
    settings_of,
)
from respool.model.where import parse_where

PAID = {OF: "rides", WHERE: "tag='paid'"}
VIEW = TopicImage(
    name="rides.v.paid",
    id=TopicId(UUID(int=2)),
    partitions=(),
    overrides={},
    config=TopicConfig(),
    view=ViewOf(parent="rides", parent_id=TopicId(UUID(int=1)), where=parse_where("tag='paid'")),
)


def test_a_view_has_a_parent_and_a_condition_and_is_not_listed() -> None:
    config = ViewConfig.parse(PAID)
    assert config.as_text == {OF: "rides", WHERE: "tag = 'paid'", LISTED: "false"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({WHERE: "tag = 'a'"}, "respool.view.of is missing: a view has respool.view.of and"),
        ({OF: "rides"}, "respool.view.where is missing"),
        ({**PAID, LISTED: "perhaps"}, "respool.view.listed: 'perhaps' is not one of: true, false"),
        ({**PAID, "respool.view.lsted": "true"}, "did you mean respool.view.listed?"),
        (
            {**PAID, "retention.ms": "1"},
            "retention.ms is a setting of topics; a view stores nothing",
        ),
        (
            {**PAID, WHERE: "absent(tag) and tag = 'a'"},
            "respool.view.where: no record can match absent(tag) and tag = 'a'",
        ),
    ],
)
def test_what_is_no_view_is_refused_with_the_reason(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        ViewConfig.parse(given)
    assert reason in str(refused.value)


def test_a_condition_that_does_not_parse_names_the_position_and_what_was_expected() -> None:
    with pytest.raises(InvalidConfig) as refused:
        ViewConfig.parse({**PAID, WHERE: "tag = paid"})
    assert "respool.view.where: position 7" in str(refused.value)
    assert "expected" in str(refused.value)


def test_any_setting_of_views_asks_for_a_view() -> None:
    assert describes_view({LISTED: "true"})
    assert not describes_view({"retention.ms": "1"})


def test_a_setting_of_views_is_none_of_topics() -> None:
    check_is_no_view_setting("retention.ms", "rides")
    with pytest.raises(InvalidConfig, match="is a setting of views, and 'rides' is a topic"):
        check_is_no_view_setting(WHERE, "rides")


def test_what_a_newer_version_set_for_a_view_is_kept_and_not_read() -> None:
    foreign = {"respool.view.newer": "1", LISTED: "sometimes"}
    view = replace(VIEW, overrides=foreign)
    assert settings_of(view) == {OF: "rides", WHERE: "tag = 'paid'", **foreign}
    assert config_of(view) == config_of(VIEW) == ViewConfig.parse(PAID)
