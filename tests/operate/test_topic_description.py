"""What a topic promises, in words."""

import pytest

from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.operate.cluster_admin import TopicSetting
from respool.operate.topic_description import (
    asks_for_too_many,
    fewest_replicas,
    promise,
    retention,
    retention_limits,
)

LEADER = PartitionLeader(broker=1, epoch=0)


@pytest.mark.parametrize(
    ("flush", "words"),
    [
        ("always", "acks=all answers after the data is on disk (fdatasync)"),
        (
            "interval",
            "acks=all answers from the page cache; synced every 250 ms: a power cut may lose up to that",
        ),
        (
            "os",
            "acks=all answers from the page cache; the operating system decides when: Kafka's promise",
        ),
        ("", "unknown: this broker does not have respool.flush, so it is not a Respool broker"),
    ],
)
def test_every_flush_has_its_promise_in_words(flush: str, words: str) -> None:
    settings = [TopicSetting(name="respool.flush.interval.ms", value="250", source="topic")]
    if flush:
        settings.append(TopicSetting(name="respool.flush", value=flush, source="topic"))
    assert promise(settings) == words


@pytest.mark.parametrize(
    ("asked", "replicas", "together"),
    [
        ("1", 3, ""),
        ("2", 3, "; at least 2 replicas must have it"),
        ("9", 3, "; at least 3 replicas must have it"),
        ("2", 1, ""),
        ("2", None, "; at least 2 replicas must have it"),
    ],
)
def test_no_more_replicas_are_promised_than_there_are(
    asked: str, replicas: int | None, together: str
) -> None:
    settings = [
        TopicSetting(name="respool.flush", value="always", source="default"),
        TopicSetting(name="min.insync.replicas", value=asked, source="topic"),
    ]
    told = promise(settings, replicas=replicas)
    assert told == "acks=all answers after the data is on disk (fdatasync)" + together


def test_the_partition_with_the_fewest_replicas_counts() -> None:
    topic = TopicMetadata(
        name="t", id=None, leaders={0: LEADER, 1: LEADER}, replicas={0: (1, 2, 3), 1: (1, 2)}
    )
    assert fewest_replicas(topic) == 2
    assert fewest_replicas(TopicMetadata(name="t", id=None, leaders={0: LEADER})) is None


def test_too_many_are_told_only_where_they_are_too_many() -> None:
    asked = {"min.insync.replicas": "2"}
    assert asks_for_too_many("t", asked, replicas=2) is None
    assert asks_for_too_many("t", asked, replicas=None) is None
    assert asks_for_too_many("t", {}, replicas=1) is None
    told = asks_for_too_many("t", asked, replicas=1)
    assert told == "t has only 1 replica, so min.insync.replicas=2 means no more than that one"


@pytest.mark.parametrize(
    ("policy", "policies", "kept"),
    [
        ("", [], "for ever"),
        ("delete", ["delete"], "1s"),
        ("compact", ["compact"], "until its key has a newer one"),
        ("compact,delete", ["compact", "delete"], "1s or until its key has a newer one"),
    ],
)
def test_a_cleanup_policy_says_how_long_messages_are_kept(
    policy: str, policies: list[str], kept: str
) -> None:
    settings = [
        TopicSetting(name="cleanup.policy", value=policy, source="topic"),
        TopicSetting(name="retention.ms", value="1000", source="topic"),
    ]
    assert retention(settings) == kept
    assert retention_limits(settings)["cleanup_policy"] == policies


@pytest.mark.parametrize(
    ("ms", "kept"),
    [
        ("604800000", "7d"),
        ("5000000000", "57d 20h 53m 20s"),
        ("5400000", "90m"),
        ("86400001", "1d 1ms"),
    ],
)
def test_a_long_retention_is_said_in_days(ms: str, kept: str) -> None:
    assert (
        retention(
            [
                TopicSetting(name="retention.ms", value=ms, source="topic"),
                TopicSetting(name="cleanup.policy", value="delete", source="topic"),
            ]
        )
        == kept
    )
