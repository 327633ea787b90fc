"""What each guarantee sets, and which raw settings it refuses."""

from typing import Any

import pytest

from respool.client.messages.errors import BadArgument, SettingContradicts
from respool.client.messages.guarantee import GUARANTEES, consumer_settings, producer_settings


def test_at_most_once_asks_for_no_answer_and_never_sends_again() -> None:
    made = producer_settings("at-most-once", {})
    assert made == {"acks": "0", "retries": 0, "enable.idempotence": False}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_others_wait_for_all_replicas_and_may_send_again_without_harm(delivery: str) -> None:
    made = producer_settings(delivery, {})
    assert made["acks"] == "all"
    assert made["enable.idempotence"] is True
    assert "retries" not in made


@pytest.mark.parametrize("delivery", GUARANTEES)
def test_no_consumer_commits_by_the_clock_sees_aborted_messages_or_jumps_in_silence(
    delivery: str,
) -> None:
    assert consumer_settings(delivery, {}) == {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


@pytest.mark.parametrize(
    ("delivery", "raw"),
    [
        ("at-most-once", {"retries": 3}),
        ("at-most-once", {"message.send.max.retries": "3"}),
        ("at-most-once", {"enable.idempotence": True}),
        ("at-least-once", {"acks": 0}),
        ("at-least-once", {"request.required.acks": "0"}),
        ("at-least-once", {"retries": 0}),
        ("exactly-once", {"acks": 1}),
        ("exactly-once", {"enable.idempotence": "false"}),
        ("exactly-once", {"retries": 0}),
    ],
)
def test_a_raw_setting_that_breaks_the_promise_is_refused_with_a_reason(
    delivery: str, raw: dict[str, Any]
) -> None:
    ((name, value),) = raw.items()
    with pytest.raises(SettingContradicts, match=f"{name}={value!r}.*{delivery}.*: .*"):
        producer_settings(delivery, raw)


def test_an_exactly_once_consumer_must_not_see_what_was_aborted() -> None:
    with pytest.raises(SettingContradicts, match="aborted"):
        consumer_settings("exactly-once", {"isolation.level": "read_uncommitted"})


@pytest.mark.parametrize(
    ("delivery", "raw"),
    [
        ("at-most-once", {"acks": "all"}),
        ("at-least-once", {"acks": -1}),
        ("at-least-once", {"retries": 5}),
        ("exactly-once", {"acks": "ALL", "enable.idempotence": "true"}),
        ("exactly-once", {"linger.ms": 3}),
    ],
)
def test_a_raw_setting_that_keeps_the_promise_is_taken(delivery: str, raw: dict[str, Any]) -> None:
    made = producer_settings(delivery, raw)
    assert all(
        str(made[name]).lower() in {str(value).lower(), "all"} for name, value in raw.items()
    )


def test_at_least_once_with_one_answer_does_without_idempotence() -> None:
    # The requirement documents count acks=1 as at least once; librdkafka has no idempotence with it.
    assert producer_settings("at-least-once", {"acks": 1}) == {
        "acks": "1",
        "enable.idempotence": False,
    }


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "group.id", "transactional.id", "enable.auto.commit", "error_cb"]
)
def test_what_has_an_argument_is_not_a_setting(name: str) -> None:
    with pytest.raises(SettingContradicts, match=name):
        consumer_settings("at-least-once", {name: "x"})


def test_there_is_no_fourth_guarantee() -> None:
    with pytest.raises(BadArgument, match="at-most-once, at-least-once, exactly-once"):
        producer_settings("sometimes", {})
