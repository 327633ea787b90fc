"""The names of a group's topics, for every group id there can be."""

from hypothesis import given
from hypothesis import strategies as st

from respool.model.ids import TOPIC_NAME_LENGTH_MAX, check_topic_name
from respool.model.retry.group_topics import dead_letter_topic, retry_topic

GROUPS = st.one_of(st.text(min_size=1), st.text("ab._-/", min_size=1), st.text("g", min_size=200))


def test_a_group_that_can_name_a_topic_names_its_topics() -> None:
    assert retry_topic("billing-2.eu") == "retry.billing-2.eu"
    assert dead_letter_topic("billing-2.eu") == "dlq.billing-2.eu"


def test_other_characters_become_underscores_and_a_digest_follows() -> None:
    """As documented for programs in other languages, so it must never change."""
    assert retry_topic("orders/eu") == "retry.orders_eu-df09ed59"
    assert dead_letter_topic("orders/eu") == "dlq.orders_eu-df09ed59"
    assert retry_topic("orders:eu") == "retry.orders_eu-32e750fe"


def test_a_long_group_is_shortened_to_a_name_of_the_limit() -> None:
    assert len(retry_topic("g" * 243)) == TOPIC_NAME_LENGTH_MAX
    assert retry_topic("g" * 243) == "retry." + "g" * 243
    assert len(retry_topic("g" * 244)) == TOPIC_NAME_LENGTH_MAX
    assert retry_topic("g" * 244) != retry_topic("g" * 245)


@given(GROUPS)
def test_every_group_has_names_that_a_topic_can_have(group: str) -> None:
    check_topic_name(retry_topic(group))
    check_topic_name(dead_letter_topic(group))


@given(GROUPS, GROUPS)
def test_two_groups_never_share_a_topic(one: str, other: str) -> None:
    assert (retry_topic(one) == retry_topic(other)) == (one == other)
    assert (dead_letter_topic(one) == dead_letter_topic(other)) == (one == other)


@given(GROUPS)
def test_both_names_have_the_same_part_for_the_group(group: str) -> None:
    assert retry_topic(group).removeprefix("retry.") == dead_letter_topic(group).removeprefix(
        "dlq."
    )
