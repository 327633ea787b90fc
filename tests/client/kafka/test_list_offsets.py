"""ListOffsets of partitions whose leaders change meanwhile."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.list_offsets import LATEST, OffsetAt, list_offsets
from support.scripted_cluster import ONE, TWO, ScriptedCluster

LED = [("rides", 0), ("rides", 1)]
SEVEN = OffsetAt(offset=7, timestamp_ms=-1)


def offsets(codes: Mapping[int, ErrorCode]) -> Any:
    """Offset 7 in each partition, but an error in these."""

    def answer(fields: Mapping[str, Any]) -> Any:
        topics = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(
                        partition_index=one["partition_index"],
                        error_code=codes.get(one["partition_index"], ErrorCode.none),
                        offset=7,
                        timestamp=-1,
                    )
                    for one in topic["partitions"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(topics=topics)

    return answer


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available])
def test_with_led_only_a_leader_that_leads_no_more_is_left_out_at_once(code: ErrorCode) -> None:
    brokers = ScriptedCluster(offsets({1: code}))
    assert list_offsets(brokers, LED, LATEST, led_only=True) == {("rides", 0): SEVEN}
    assert [one.address for one in brokers.asked] == [ONE, TWO]
    assert brokers.now == 0


def test_with_led_only_a_partition_without_a_leader_is_not_asked_for() -> None:
    brokers = ScriptedCluster(offsets({}))
    found = list_offsets(brokers, [*LED, ("rides", 2)], LATEST, led_only=True)
    assert found == dict.fromkeys(LED, SEVEN)
    assert brokers.now == 0


def test_with_led_only_other_errors_are_raised() -> None:
    brokers = ScriptedCluster(offsets({1: ErrorCode.topic_authorization_failed}))
    with pytest.raises(BrokerRefused, match="rides/1 failed: TOPIC_AUTHORIZATION_FAILED"):
        list_offsets(brokers, LED, LATEST, led_only=True)


def test_a_leader_that_leads_no_more_is_asked_again_once_the_metadata_name_the_new_one() -> None:
    brokers = ScriptedCluster(
        offsets({}), offsets({1: ErrorCode.not_leader_or_follower}), offsets({})
    )
    assert list_offsets(brokers, LED, LATEST) == dict.fromkeys(LED, SEVEN)
    assert [one.address for one in brokers.asked] == [ONE, TWO, TWO]
    assert 0 < brokers.now < 1


def test_a_leader_that_never_comes_back_is_an_error_after_the_time_for_retries() -> None:
    brokers = ScriptedCluster(offsets({1: ErrorCode.not_leader_or_follower}), retry_ms=10_000)
    with pytest.raises(BrokerRefused, match="rides/1 failed: NOT_LEADER_OR_FOLLOWER"):
        list_offsets(brokers, LED, LATEST)
    assert 10 <= brokers.now < 11
