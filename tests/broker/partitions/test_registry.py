"""The partitions a broker holds: how they go while something is being done to them."""

from broker.running_broker import RunningBroker


def test_a_partition_is_deleted_when_nobody_changes_its_log_any_more(
    running_broker: RunningBroker,
) -> None:
    """Another thread may be cutting it off; and the name may be used again at once."""
    running_broker.create_topic("rides")
    running_broker.produce("rides")
    partition = running_broker.broker.partitions.find("rides", 0)
    running_broker.run(partition.changing.acquire())
    deletion = running_broker.start(running_broker.broker.topics.delete("rides"))
    assert not partition.is_online
    assert running_broker.disk.exists("rides-0")
    partition.changing.release()
    running_broker.finish(deletion)
    assert not running_broker.disk.exists("rides-0")
