"""DescribeLogDirs (key 35): the sizes of partitions on this broker's disk. There is a single log directory."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.outcome import Reply
from respool.broker.partitions.partition import Partition
from respool.model.errors import NotLeader, StorageError, StorageFailed, UnknownTopicOrPartition
from respool.ports.disk import Disk
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

UNKNOWN_BYTES = -1


@serves(Api.DESCRIBE_LOG_DIRS, versions=(1, 5), rights=(DESCRIBE_CLUSTER,))
async def describe_log_dirs(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER)
    if refusal is not None:
        fields = {"throttle_time": 0, "error_code": refusal.code, "results": ()}
        return [encode_reply(request, fields)]
    folder: dict[str, object] = {
        "error_code": 0,
        "log_dir": broker.settings.data,
        "topics": _topics(_wanted(request, broker)),
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
        # With a single directory there is none to keep new replicas out of.
        "is_cordoned": False,
    }
    try:
        folder |= await broker.offload.run(partial(_measure, broker.world.disk))
    except StorageError:
        folder |= {"error_code": StorageFailed.code, "topics": ()}
    return [encode_reply(request, {"throttle_time": 0, "error_code": 0, "results": [folder]})]


def _measure(disk: Disk) -> dict[str, object]:
    return {"total_bytes": disk.total_bytes(), "usable_bytes": disk.free_bytes()}


def _wanted(request: Request, broker: Broker) -> Iterable[Partition]:
    """Return the requested partitions that are here. Those without a log in this directory are omitted, as in Kafka."""
    if request.body.topics is None:
        yield from broker.partitions
        return
    for topic in request.body.topics:
        for number in topic.partitions:
            try:
                yield broker.partitions.find(topic.topic, number)
            except (UnknownTopicOrPartition, NotLeader):
                # The partition does not exist, is on other brokers, or is not open here yet.
                continue


def _topics(partitions: Iterable[Partition]) -> list[dict[str, object]]:
    topics = defaultdict(list)
    for partition in partitions:
        if partition.is_online:
            topics[partition.name.topic].append(
                {
                    "partition_index": partition.name.partition,
                    "partition_size": partition.log.size_bytes,
                    # Both fields are about a replica that is moving to another log directory.
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    return [{"name": name, "partitions": found} for name, found in topics.items()]
