"""DescribeShareGroupOffsets: starts and lag of share groups."""

from broker.group_client import (
    restart,
)
from broker.running_broker import RunningBroker
from broker.share_group_client import (
    GROUP,
    beat,
    offsets,
    topic_id,
)
from respool.coordination.share.share_state import ShareKey, ShareStateUpdate, StateBatch
from respool.model.ids import LeaderEpoch, Offset


def test_what_is_written_by_a_leader_is_described(broker: RunningBroker) -> None:
    broker.produce("orders", values=(b"a", b"b", b"c", b"d"))
    beat(broker, "one", 0, "orders")
    key = ShareKey(GROUP, topic_id(broker), 0)
    states = broker.broker.coordinators.share_states

    async def write() -> None:
        state = await states.read(key, LeaderEpoch(0))
        await states.write(
            key,
            ShareStateUpdate(
                state_epoch=state.state_epoch,
                leader_epoch=LeaderEpoch(0),
                start_offset=Offset(1),
                finished_count=1,
                batches=(StateBatch(1, 1, 0, 1), StateBatch(2, 2, 2, 1)),
            ),
        )

    broker.run(write())
    restart(broker, crash=True)
    asked = {"topic_name": "orders", "partitions": [0, 1, 9]}
    (topic,) = offsets(broker, asked).topics
    found = [(one.start_offset, one.lag) for one in topic.partitions]
    assert found == [(1, 4 - 1 - 1), (-1, -1), (-1, -1)]
    read = broker.run(broker.broker.coordinators.share_states.read(key, LeaderEpoch(1)))
    assert read.batches == (StateBatch(1, 1, 0, 1), StateBatch(2, 2, 2, 1))
    # As in Kafka, a group or a topic that does not exist is no error.
    assert (offsets(broker, group="none").error_code, offsets(broker, group="none").topics) == (
        0,
        (),
    )
    (topic,) = offsets(broker, {"topic_name": "none", "partitions": [0]}).topics
    assert [(one.start_offset, one.error_code) for one in topic.partitions] == [(-1, 0)]
