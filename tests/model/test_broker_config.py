"""A broker's settings that are changed while it runs."""

import pytest

from respool.model.broker_config import BrokerConfig, overrides_for
from respool.model.config_rules import LONG_MAX
from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId

RATE = "follower.replication.throttled.rate"


def test_without_any_there_is_no_limit() -> None:
    config = BrokerConfig.parse({})
    assert config.follower_replication_throttled_rate == LONG_MAX
    assert config.leader_replication_throttled_rate == LONG_MAX
    assert config.respool_copy_bytes_per_s_max == 0


def test_what_is_set_for_a_broker_goes_before_what_is_set_for_all() -> None:
    overrides = {"": {RATE: "5", "respool.copy.bytes.per.s.max": "7"}, "2": {RATE: "6"}}
    assert overrides_for(BrokerId(1), overrides)[RATE] == "5"
    assert overrides_for(BrokerId(2), overrides) == {
        RATE: "6",
        "respool.copy.bytes.per.s.max": "7",
    }
    assert overrides_for(BrokerId(1), {}) == {}


def test_what_was_never_set_is_as_in_the_settings_file() -> None:
    base = BrokerConfig(respool_copy_bytes_per_s_max=9)
    config = BrokerConfig.parse({RATE: "5"}, base=base)
    assert config.as_text["respool.copy.bytes.per.s.max"] == "9"
    assert config.as_text[RATE] == "5"


@pytest.mark.parametrize("text", ["-1", "fast", str(LONG_MAX + 1)])
def test_a_rate_that_cannot_be_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidConfig, match=RATE):
        BrokerConfig.parse({RATE: text})


def test_a_misspelt_name_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean {RATE}"):
        BrokerConfig.parse({"follower.replication.throttle.rate": "5"})
