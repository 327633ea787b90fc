"""Leaders and replicas of partitions, as Metadata and DescribeTopicPartitions report them."""

from collections.abc import Iterable, Iterator

from respool.broker.broker import Broker
from respool.model.cluster import TopicImage
from respool.model.errors import LeaderNotAvailable
from respool.wire.metadata_reply import MetadataPartition

NO_LEADER = -1


def leadership(
    broker: Broker, topic: TopicImage, partitions: Iterable[int]
) -> Iterator[MetadataPartition]:
    """Yield the metadata of each of the given partitions.

    No leader is reported if the leader is gone or probably dead, if its log has failed, or if the leader is this broker
    and the replica here is offline or not open yet. For LEADER_NOT_AVAILABLE clients soon retry; with a leader that
    they cannot reach, some clients keep reconnecting for a long time.
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
