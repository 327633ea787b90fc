"""Who leads a partition and who follows, as Metadata and DescribeTopicPartitions tell it."""

from collections.abc import Iterable, Iterator

from respool.broker.broker import Broker
from respool.model.cluster import TopicImage
from respool.model.errors import LeaderNotAvailable
from respool.wire.metadata_reply import MetadataPartition

NO_LEADER = -1


def leadership(
    broker: Broker, topic: TopicImage, partitions: Iterable[int]
) -> Iterator[MetadataPartition]:
    """Tell of each of the topic's partitions asked for.

    A partition that is offline, or not open yet, has no leader: LEADER_NOT_AVAILABLE makes clients ask again.
    """
    is_online = broker.partitions.is_online
    for number in partitions:
        image = topic.partitions[number]
        if image.leader is None or not is_online(topic.name, number):
            yield MetadataPartition(
                error_code=LeaderNotAvailable.code,
                partition=number,
                leader=NO_LEADER,
                leader_epoch=image.leader_epoch,
                replicas=image.replicas,
                isr=image.isr,
                offline_replicas=image.replicas,
            )
        else:
            yield MetadataPartition(
                0, number, image.leader, image.leader_epoch, image.replicas, image.isr, ()
            )
