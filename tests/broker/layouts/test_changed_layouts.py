"""What may be changed about a topic's partitions, and what is refused: nothing is half done."""

from functools import partial
from typing import Any

import pytest

from broker.group_client import commit, committed, start_with_groups
from broker.layouts.shrinking import change, grow, send, sent, shrink
from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import read
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidConfig
from respool.model.ids import Offset
from respool.model.layouts.partition_layout import PartitionLayout
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply

INVALID_PARTITIONS = 37
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
UNKNOWN_TOPIC = 3


@pytest.fixture
def rides(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=6, respool_shrink_barrier_ms="0")
    return broker


def with_changes(changed: dict[str, str], before: TopicImage) -> dict[str, str]:
    return {**before.overrides, **changed}


def layout(broker: RunningBroker) -> PartitionLayout | None:
    return broker.broker.image.topics["rides"].layout


@pytest.mark.parametrize("to", [0, -1, 6, 7, 2**31 - 1])
def test_a_number_that_is_no_shrink_is_refused(rides: RunningBroker, to: int) -> None:
    code, why = change(rides, to)
    assert code == INVALID_PARTITIONS
    assert "at least 1 and at most 5" in why
    assert layout(rides) is None


@pytest.mark.parametrize("to", [4, 5])
def test_a_number_that_would_split_keys_is_refused_with_those_that_would_not(
    rides: RunningBroker, to: int
) -> None:
    code, why = change(rides, to)
    assert code == INVALID_PARTITIONS
    assert "3, 2, 1" in why
    assert layout(rides) is None


def test_without_keys_any_smaller_number_will_do(rides: RunningBroker) -> None:
    assert change(rides, 4, "shrink-unkeyed") == (0, "")
    assert [sent(rides, number, 0, b"%d" % number) for number in range(6)] == [0, 0, 0, 0, -1, -1]
    assert read(rides, "rides", 0) == [b"0", b"4"]


def test_a_dry_run_changes_nothing(rides: RunningBroker) -> None:
    assert change(rides, 3, validate_only=True) == (0, "")
    assert change(rides, 4, validate_only=True)[0] == INVALID_PARTITIONS
    assert layout(rides) is None


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"cleanup_policy": "compact"}, "compacted"),
        ({"respool_mirror": "true"}, "mirror"),
    ],
)
def test_some_topics_cannot_be_shrunk(
    rides: RunningBroker, overrides: dict[str, str], why: str
) -> None:
    rides.create_topic("other", partitions=4, **overrides)
    code, told = change(rides, 2, topic="other")
    assert code == POLICY_VIOLATION
    assert why in told


def test_internal_topics_views_and_unknown_topics_are_refused(rides: RunningBroker) -> None:
    assert change(rides, 1, topic="__consumer_offsets")[0] == POLICY_VIOLATION
    assert change(rides, 1, topic="nowhere")[0] == UNKNOWN_TOPIC
    rides.create_view("paid", of="rides", where="tag = 'paid'")
    for kind in ("shrink", "retire"):
        code, why = change(rides, 1, kind, topic="paid")
        assert code == POLICY_VIOLATION
        assert "'rides'" in why


def test_an_unknown_change_is_refused(rides: RunningBroker) -> None:
    assert change(rides, 3, "melt")[0] == INVALID_REQUEST


def test_a_shrunk_topic_cannot_become_compacted_or_a_mirror(rides: RunningBroker) -> None:
    shrink(rides, 3)
    for changed in ({"cleanup.policy": "compact"}, {"respool.mirror": "true"}):
        with pytest.raises(InvalidConfig, match="shrunk"):
            rides.run(rides.broker.topics.change_overrides("rides", partial(with_changes, changed)))


def test_a_partition_that_is_offline_refuses_records_for_its_family(rides: RunningBroker) -> None:
    shrink(rides, 3)
    rides.take_offline("rides", 5)
    assert send(rides, 5, 0).error_code != 0
    assert send(rides, 4, 0).error_code == 0


# -- CreatePartitions of stock tools


def test_a_smaller_number_is_refused_as_by_kafka_unless_the_topic_allows_it(
    rides: RunningBroker,
) -> None:
    assert change(rides, 3, "")[0] == INVALID_PARTITIONS
    rides.create_topic("fares", partitions=6, respool_partitions_shrink="true")
    assert change(rides, 3, "", topic="fares") == (0, "")
    assert rides.broker.image.topics["fares"].active_count == 3
    assert change(rides, 3, "", topic="fares")[0] == INVALID_PARTITIONS
    assert change(rides, 2, "", topic="fares")[0] == INVALID_PARTITIONS


def test_growing_after_a_shrink_unseals_and_then_adds(rides: RunningBroker) -> None:
    for number in range(6):
        sent(rides, number, 0, b"%d" % number)
    shrink(rides, 3)
    assert change(rides, 3, "")[0] == INVALID_PARTITIONS
    grow(rides, 6)
    assert sent(rides, 5, 1) == 1
    grow(rides, 12)
    assert sent(rides, 11, 0) == 0
    found = layout(rides)
    assert found is not None
    assert (found.active, found.named, found.family) == (12, 12, 3)


# -- retiring


def test_empty_partitions_that_all_have_read_are_retired_and_their_records_still_taken(
    rides: RunningBroker,
) -> None:
    sent(rides, 0, 0, b"kept")
    shrink(rides, 3)
    assert change(rides, 0, "retire") == (0, "")
    assert len(rides.broker.image.topics["rides"].partitions) == 3
    assert sent(rides, 5, 0, b"late") == -1
    assert read(rides, "rides", 2) == [b"late"]
    assert send(rides, 6, 0).error_code == UNKNOWN_TOPIC
    rides.restart(crash=True)
    assert sent(rides, 5, 1, b"later") == -1
    assert read(rides, "rides", 2) == [b"late", b"later"]


def test_partitions_with_records_are_not_retired_unless_that_is_forced(
    rides: RunningBroker,
) -> None:
    sent(rides, 4, 0, b"a", b"b")
    shrink(rides, 3)
    code, why = change(rides, 0, "retire")
    assert code == POLICY_VIOLATION
    assert "4 (2 offsets)" in why
    assert change(rides, 0, "retire-forced", validate_only=True) == (0, "")
    assert len(rides.broker.image.topics["rides"].partitions) == 6
    assert change(rides, 0, "retire-forced") == (0, "")
    assert len(rides.broker.image.topics["rides"].partitions) == 3


def test_partitions_that_groups_have_not_read_are_not_retired(rides: RunningBroker) -> None:
    sent(rides, 4, 0, b"a", b"b")
    commit(rides, "slow", ("rides", 4, 1), ("rides", 0, 0))
    shrink(rides, 3)
    rides.broker.partitions.find("rides", 4).log.raise_log_start(Offset(2))
    code, why = change(rides, 0, "retire")
    assert code == POLICY_VIOLATION
    assert "slow" in why
    commit(rides, "slow", ("rides", 4, 2))
    assert change(rides, 0, "retire") == (0, "")


def test_nothing_to_retire_is_refused(rides: RunningBroker) -> None:
    assert change(rides, 0, "retire")[0] == INVALID_PARTITIONS
    shrink(rides, 3)
    assert change(rides, 0, "retire") == (0, "")
    assert change(rides, 0, "retire")[0] == INVALID_PARTITIONS


def test_what_was_retired_begins_anew_when_the_topic_grows(rides: RunningBroker) -> None:
    sent(rides, 5, 0, b"a", b"b")
    commit(rides, "readers", ("rides", 5, 2))
    assert committed(rides, "readers") == {("rides", 5): 2}
    shrink(rides, 3)
    assert change(rides, 0, "retire-forced") == (0, "")
    sent(rides, 5, 2, b"c")
    grow(rides, 6)
    # Its offsets were of another log.
    assert committed(rides, "readers") == {}
    assert rides.offset("rides", 5, at=LATEST) == 0
    assert sent(rides, 5, 3, b"d") == 0
    assert sent(rides, 5, 2) == -1
    assert (read(rides, "rides", 5), read(rides, "rides", 2)) == ([b"d"], [b"c"])


# -- what clients are told


def described(broker: RunningBroker) -> list[tuple[str, list[tuple[int, int]]]]:
    """The layout, sealed ends and ends of what is shown, page by page: two partitions each."""
    pages: list[tuple[str, list[tuple[int, int]]]] = []
    cursor: dict[str, object] | None = None
    while not pages or cursor is not None:
        # As our clients read it; others skip the tagged fields.
        frame = broker.frame(
            Api.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": "rides"}],
            response_partition_limit=2,
            cursor=cursor,
        )
        reply: Any = decode_reply(Api.DESCRIBE_TOPIC_PARTITIONS, 0, frame)
        (topic,) = reply.topics
        pages.append((topic.layout, [(one.sealed_end, one.shown_end) for one in topic.partitions]))
        after = reply.next_cursor
        cursor = after and {
            "topic_name": after.topic_name,
            "partition_index": after.partition_index,
        }
    return pages


def test_clients_are_told_where_sealed_partitions_end(rides: RunningBroker) -> None:
    sent(rides, 5, 0, b"a", b"b")
    assert described(rides) == [("", [(-1, -1)] * 2)] * 3
    shrink(rides, 3)
    told = '{"active":3,"named":6}'
    assert described(rides) == [
        (told, [(-1, -1), (-1, -1)]),
        (told, [(-1, -1), (0, -1)]),
        (told, [(0, -1), (2, -1)]),
    ]
    grow(rides, 6)
    assert described(rides) == [('{"active":6,"named":6}', [(-1, -1)] * 2)] * 3


def test_clients_are_told_what_is_not_shown_yet(rides: RunningBroker) -> None:
    rides.run(
        rides.broker.topics.change_overrides(
            "rides", partial(with_changes, {"respool.shrink.barrier.ms": "60000"})
        )
    )
    sent(rides, 5, 0, b"a", b"b")
    sent(rides, 2, 0, b"c")
    shrink(rides, 3)
    assert [page[1] for page in described(rides)][1:] == [[(-1, 1), (0, -1)], [(0, -1), (2, -1)]]
