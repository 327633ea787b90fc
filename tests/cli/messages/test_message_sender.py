import pytest

from respool.cli.messages.message_sender import Replicas, explain
from respool.model.topic_config import TopicConfig

DEFAULTS = TopicConfig().as_text


def test_the_limit_on_bytes_is_told_with_a_way_out() -> None:
    refusal = explain("MSG_SIZE_TOO_LARGE", topic="rides", settings=DEFAULTS)
    assert refusal is not None
    assert "at most 1,048,588 bytes at once (1.0 MiB, max.message.bytes)" in refusal.why
    assert "respool topic alter rides --set max.message.bytes=" in refusal.hint


def test_a_compacted_topic_wants_keys() -> None:
    compacted = {**DEFAULTS, "cleanup.policy": "compact,delete"}
    refusal = explain("INVALID_RECORD", topic="cars", settings=compacted)
    assert refusal is not None
    assert "every message needs a key" in refusal.why
    assert "--key" in refusal.hint


def test_a_mirror_is_somebody_elses_to_write() -> None:
    mirror = {**DEFAULTS, "respool.mirror": "true"}
    refusal = explain("POLICY_VIOLATION", topic="rides", settings=mirror)
    assert refusal is not None
    assert "only respool mirror writes it" in refusal.why
    assert "respool mirror promote rides" in refusal.hint
    assert explain("POLICY_VIOLATION", topic="rides", settings=DEFAULTS) is None


def test_the_window_for_timestamps_is_told() -> None:
    refusal = explain("INVALID_TIMESTAMP", topic="rides", settings=DEFAULTS)
    assert refusal is not None
    assert "at most any time before and 1h after the broker's clock" in refusal.why


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"])
def test_too_few_replicas_are_told_against_what_the_topic_asks_for(code: str) -> None:
    strict = {**DEFAULTS, "min.insync.replicas": "2"}
    refusal = explain(code, topic="rides", settings=strict, replicas=Replicas(held=3, in_sync=1))
    assert refusal is not None
    assert "2 replicas in sync (min.insync.replicas), and has 1" in refusal.why
    assert "respool topic alter rides --set min.insync.replicas=" in refusal.hint
    # Where there are enough, or nobody knows, it was something else.
    assert (
        explain(code, topic="rides", settings=strict, replicas=Replicas(held=3, in_sync=2)) is None
    )
    assert explain(code, topic="rides", settings=strict) is None


def test_where_nobody_leads_no_setting_helps() -> None:
    nobody = Replicas(held=1, in_sync=0)
    refusal = explain("_MSG_TIMED_OUT", topic="rides", settings=DEFAULTS, replicas=nobody)
    assert refusal is not None
    assert "a partition of rides has no leader" in refusal.why
    assert "min.insync.replicas" not in refusal.hint
    assert "--acks" not in refusal.hint


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    """Ten were, of a partition that has two and takes messages with both in sync."""
    strict = {**DEFAULTS, "min.insync.replicas": "10"}
    code = "_MSG_TIMED_OUT"
    both = Replicas(held=2, in_sync=2)
    assert explain(code, topic="rides", settings=strict, replicas=both) is None
    refusal = explain(code, topic="rides", settings=strict, replicas=Replicas(held=2, in_sync=1))
    assert refusal is not None
    assert "with 2 replicas in sync" in refusal.why


@pytest.mark.parametrize("code", ["INVALID_RECORD", "NOT_LEADER_FOR_PARTITION"])
def test_what_no_setting_explains_stays_as_it_is(code: str) -> None:
    assert explain(code, topic="rides", settings=DEFAULTS) is None


@pytest.mark.parametrize("settings", [{}, {"max.message.bytes": ""}])
def test_a_broker_that_tells_no_settings_is_not_explained(settings: dict[str, str]) -> None:
    assert explain("MSG_SIZE_TOO_LARGE", topic="rides", settings=settings) is None
