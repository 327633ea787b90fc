"""The broker settings that can be changed while it runs, and how the others are refused."""

import pytest

from respool.model.dynamic_config import (
    DYNAMIC_RULES,
    check_is_dynamic,
    parse_changes,
    shown_name,
)
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.settings import SETTINGS


def test_values_are_kept_as_they_are_shown() -> None:
    assert parse_changes(
        {
            "unclean.leader.election.enable": "TRUE",
            "log.retention.hours": " 1_0 ",
            "log.cleanup.policy": "compact, delete",
        }
    ) == {
        "unclean.leader.election.enable": "true",
        "log.retention.hours": "10",
        "log.cleanup.policy": "compact,delete",
    }


def test_throttles_and_defaults_of_topics_can_be_changed() -> None:
    check_is_dynamic(DYNAMIC_RULES)
    assert {"leader.replication.throttled.rate", "log.retention.hours"} <= set(DYNAMIC_RULES)


def test_static_settings_are_all_named() -> None:
    names = ["num.partitions", "num.io.threads", "node.id", *map(shown_name, SETTINGS)]
    static = [name for name in names if name not in DYNAMIC_RULES]
    with pytest.raises(InvalidRequest, match="Cannot update these configs dynamically") as caught:
        check_is_dynamic(names)
    assert all(name in str(caught.value) for name in static)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log.retention.mss", "did you mean log.retention.ms"),
        ("retention.ms", "log.retention.ms"),
        ("respool.mirror", "a topic's setting"),
    ],
)
def test_an_unknown_name_is_said_to_be_unknown(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        check_is_dynamic(["num.partitions", name])
