"""Requests about the stored state of share partitions: refused unless a broker sends them."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.share_group_client import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP,
    beat,
    offsets,
    topic_id,
)
from respool.wire.api_table import API_TABLE, Api


@pytest.mark.parametrize(
    ("api", "partition"),
    [
        (Api.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 9, "start_offset": 0}),
        (Api.READ_SHARE_GROUP_STATE, {"leader_epoch": 9}),
        (
            Api.WRITE_SHARE_GROUP_STATE,
            {
                "state_epoch": 0,
                "leader_epoch": 9,
                "start_offset": 5,
                "delivery_complete_count": 0,
                "state_batches": (),
            },
        ),
        (Api.DELETE_SHARE_GROUP_STATE, {}),
        (Api.READ_SHARE_GROUP_STATE_SUMMARY, {"leader_epoch": 9}),
    ],
)
def test_a_client_can_neither_read_nor_change_stored_state(
    broker: RunningBroker, api: Api, partition: dict[str, Any]
) -> None:
    beat(broker, "one", 0, "orders")
    for sender in ({}, {"sender_id": 1, "sender_epoch": 0}):
        reply = broker.ask(
            api,
            API_TABLE[api].version_max,
            group_id=GROUP,
            topics=[{"topic_id": topic_id(broker), "partitions": [{"partition": 0, **partition}]}],
            **sender,
        )
        ((one,),) = [topic.partitions for topic in reply.results]
        assert one.error_code == CLUSTER_AUTHORIZATION_FAILED
    assert offsets(broker).topics[0].partitions[0].start_offset == -1


def test_no_client_is_told_of_requests_between_brokers(broker: RunningBroker) -> None:
    told = {one.api_key for one in broker.ask(Api.API_VERSIONS, 0).api_keys}
    assert told.isdisjoint(range(83, 88))
