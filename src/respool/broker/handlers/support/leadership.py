"""Leaders and replicas of partitions, as replies report them: in metadata, and as a hint in NOT_LEADER replies."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from respool.broker.broker import Broker
from respool.broker.handlers.support.listener_addresses import reached
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import FencedLeaderEpoch, LeaderNotAvailable, ListenerNotFound, NotLeader
from respool.model.ids import BrokerId
from respool.model.security.principal import ClientSession
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import NodeEndpoint
from respool.wire.metadata_reply import MetadataPartition

NO_LEADER = -1
# Metadata before that has no error for a missing listener.
LISTENER_ERROR_FROM_VERSION = 6
_MISSED = frozenset({NotLeader.code, FencedLeaderEpoch.code})

# Broker id and leader epoch.
Hint = tuple[int, int]


class Unreached(NamedTuple):
    """The brokers without the listener of a client, and the error of partitions that they lead."""

    brokers: frozenset[BrokerId]
    error_code: int


def unreached_by(request: Request, image: ClusterImage) -> Unreached:
    brokers = frozenset(
        one.id for one in image.brokers.values() if reached(one, request.session) is None
    )
    is_old = request.api.key is Api.METADATA and request.version < LISTENER_ERROR_FROM_VERSION
    return Unreached(brokers, LeaderNotAvailable.code if is_old else ListenerNotFound.code)


def leadership(
    broker: Broker, topic: TopicImage, partitions: Iterable[int], *, unreached: Unreached
) -> Iterator[MetadataPartition]:
    """Yield the metadata of each of the given partitions.

    No leader is reported if the leader is gone or probably dead, if its log has failed, or if the leader is this broker
    and the replica here is offline or not open yet. For LEADER_NOT_AVAILABLE clients soon retry; with a leader that
    they cannot reach, some clients keep reconnecting for a long time. The same holds for a leader without the listener
    that the client uses.
    """
    me, brokers, is_online = broker.id, broker.image.brokers, broker.partitions.is_online
    suspects = () if broker.member is None else broker.member.suspects
    for number in partitions:
        image = topic.partitions[number]
        is_mine_offline = me in image.replicas and not is_online(topic.log_name, number)
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
        elif image.leader in unreached.brokers:
            yield MetadataPartition(
                unreached.error_code,
                number,
                NO_LEADER,
                image.leader_epoch,
                image.replicas,
                image.isr,
                offline,
            )
        else:
            yield MetadataPartition(
                0, number, image.leader, image.leader_epoch, image.replicas, image.isr, offline
            )


def leader_hint(
    image: ClusterImage, me: BrokerId, topic: str, partition: int, error_code: int
) -> Hint | None:
    """Return the current leader for a NOT_LEADER reply (KIP-951): clients go there without a metadata request.

    None if this broker knows no other.
    """
    name = image.log_name(topic)
    if error_code not in _MISSED or not image.has_partition(name, partition):
        return None
    found = image.topics[name].partitions[partition]
    leader = found.serving_leader
    if leader is None or leader == me or leader not in image.brokers:
        return None
    return leader, found.leader_epoch


def endpoints_of(
    image: ClusterImage, hints: Iterable[Hint | None], session: ClientSession
) -> list[NodeEndpoint]:
    """Return the endpoints of the brokers that a reply names, as this client reaches them."""
    ids = sorted({BrokerId(hint[0]) for hint in hints if hint is not None})
    found = (reached(image.brokers[broker], session) for broker in ids if broker in image.brokers)
    return [NodeEndpoint(*one) for one in found if one is not None]
