"""AlterShareGroupOffsets and DeleteShareGroupOffsets: of empty groups only."""

from broker.group_client import (
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
)
from broker.running_broker import RunningBroker
from broker.share_group_client import (
    GROUP,
    INVALID_REQUEST,
    UNKNOWN_TOPIC_OR_PARTITION,
    alter,
    beat,
    describe,
    offsets,
)
from respool.wire.api_table import Api


def test_offsets_of_an_empty_group_can_be_altered_and_deleted(broker: RunningBroker) -> None:
    reply = alter(broker, (0, 5), (7, 1), (1, -2))
    (topic,) = reply.responses
    assert reply.error_code == 0
    assert [one.error_code for one in topic.partitions] == [
        0,
        UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REQUEST,
    ]
    (topic,) = alter(broker, (0, 5), topic="none").responses
    assert [one.error_code for one in topic.partitions] == [UNKNOWN_TOPIC_OR_PARTITION]
    assert [one.start_offset for one in offsets(broker).topics[0].partitions] == [5, -1, -1]
    assert describe(broker).group_state == "Empty"

    epoch = beat(broker, "one", 0, "orders").member_epoch
    assert alter(broker, (0, 1)).error_code == NON_EMPTY_GROUP
    delete = {"group_id": GROUP, "topics": [{"topic_name": "orders"}, {"topic_name": "none"}]}
    reply = broker.ask(Api.DELETE_SHARE_GROUP_OFFSETS, 0, **delete)
    assert reply.error_code == NON_EMPTY_GROUP
    assert epoch
    beat(broker, "one", -1)
    reply = broker.ask(Api.DELETE_SHARE_GROUP_OFFSETS, 0, **delete)
    assert (reply.error_code, [one.error_code for one in reply.responses]) == (
        0,
        [0, UNKNOWN_TOPIC_OR_PARTITION],
    )
    assert offsets(broker).topics == ()
    unknown = {**delete, "group_id": "none"}
    assert broker.ask(Api.DELETE_SHARE_GROUP_OFFSETS, 0, **unknown).error_code == GROUP_ID_NOT_FOUND
