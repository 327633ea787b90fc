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

    A partition whose leader is not there, or is probably dead, or whose log has failed there, has none, nor has one
    that is offline here, or not open yet: LEADER_NOT_AVAILABLE makes clients ask again, and soon; one that cannot be
    reached some of them try for long.
    """
    me, brokers, is_online = broker.id, broker.image.brokers, broker.partitions.is_online
    suspects = () if broker.member is None else broker.member.suspects
    for number in partitions:
        image = topic.partitions[number]
        is_mine_offline = me in image.replicas and not is_online(topic.name, number)
        offline = tuple(
            one
            for one in image.replicas
            if one not in brokers or one in image.offline or (is_mine_offline and one == me)
        )
        if image.leader is None or image.leader in offline or image.leader in suspects:
            yield MetadataPartition(
                error_code=LeaderNotAvailable.code,
                partition=number,
                leader=NO_LEADER,
                leader_epoch=image.leader_epoch,
                replicas=image.replicas,
                isr=image.isr,
                offline_replicas=offline,
            )
        else:
            yield MetadataPartition(
                0, number, image.leader, image.leader_epoch, image.replicas, image.isr, offline
            )
