"""DescribeTopicPartitions (key 75): topics and their partitions in pages, for clusters too large for one Metadata.

Topics are sorted by name. A reply holds at most as many partitions as the client and `PARTITIONS_MAX` allow; its cursor
names the first partition that did not fit, and the client's next request starts there. If it is advertised, the Java
admin client and Spark's driver use this API before any other.

Of topics that were shrunk, our clients learn from tagged fields which partitions are sealed (`wire/layout_change.py`).
"""

from collections.abc import Iterable

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import why_unknown
from respool.broker.handlers.support.leadership import leadership, unreached_by
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_TOPIC, operations_of
from respool.broker.outcome import Reply
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import InvalidRequest, RequestError
from respool.model.security.acl import AclResource
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.layout_change import PartitionCounts, format_counts
from respool.wire.metadata_reply import MetadataPartition

# Kafka's max.request.partition.size.limit.
PARTITIONS_MAX = 2_000


@serves(Api.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), rights=(DESCRIBE_TOPIC,))
def describe_topic_partitions(request: Request, broker: Broker) -> Reply:
    body = request.body
    try:
        names = _names_from_cursor(request, broker)
    except RequestError as error:
        topics = [_refused(topic.name, error) for topic in body.topics]
        return [encode_reply(request, {"throttle_time": 0, "topics": topics})]
    page = _Page(request, broker, max(1, min(body.response_partition_limit, PARTITIONS_MAX)))
    for name in names:
        # The topic at the cursor may have been deleted since; the page then starts with the next topic.
        is_begun = body.cursor is not None and name == body.cursor.topic_name
        page.add(name, first=body.cursor.partition_index if is_begun else 0)
        if page.next_cursor is not None:
            break
    fields = {"throttle_time": 0, "topics": page.topics, "next_cursor": page.next_cursor}
    return [encode_reply(request, fields)]


def _names_from_cursor(request: Request, broker: Broker) -> list[str]:
    """Return the requested topics from the cursor on, sorted. No topic named means all of them."""
    body = request.body
    cursor = body.cursor
    wanted: Iterable[str] = {topic.name for topic in body.topics} or {
        topic.name
        for topic in broker.image.listed()
        if broker.access.sees(request, DESCRIBE_TOPIC, topic.name)
    }
    if cursor is None:
        return sorted(wanted)
    if body.topics and cursor.topic_name not in wanted:
        raise InvalidRequest(f"the cursor's topic {cursor.topic_name!r} is not asked for")
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition is {cursor.partition_index}")
    return sorted(name for name in wanted if name >= cursor.topic_name)


class _Page:
    def __init__(self, request: Request, broker: Broker, partitions_max: int) -> None:
        self._request = request
        self._broker = broker
        self._room = partitions_max
        self._unreached = unreached_by(request, broker.image)
        self.topics: list[dict[str, object]] = []
        # The first partition that did not fit; None if all fit.
        self.next_cursor: dict[str, object] | None = None

    def add(self, name: str, *, first: int) -> None:
        """Add the topic's partitions from `first` on, up to the page's limit; set the cursor if some do not fit."""
        if self._room == 0:
            self.next_cursor = {"topic_name": name, "partition_index": 0}
            return
        access = self._broker.access
        refusal = access.refusal(self._request, DESCRIBE_TOPIC, name)
        if refusal is not None:
            self.topics.append(_refused(name, refusal))
            return
        topic = self._broker.image.readable(name)
        if topic is None:
            self.topics.append(_refused(name, why_unknown(name)))
            return
        end = min(first + self._room, len(topic.partitions))
        partitions = [
            _partition_fields(one, topic.partitions[one.partition])
            | _layout_fields(topic, one.partition)
            for one in leadership(self._broker, topic, range(first, end), unreached=self._unreached)
        ]
        self._room -= len(partitions)
        self.topics.append(
            {
                "error_code": 0,
                "name": name,
                "topic_id": topic.id,
                "is_internal": topic.internal,
                "partitions": partitions,
                "topic_authorized_operations": access.operations(
                    self._request, AclResource.TOPIC, name, having=operations_of(topic)
                ),
                **_counts_fields(topic),
            }
        )
        if end < len(topic.partitions):
            self.next_cursor = {"topic_name": name, "partition_index": end}


def _partition_fields(partition: MetadataPartition, image: PartitionImage) -> dict[str, object]:
    return {
        "error_code": partition.error_code,
        "partition_index": partition.partition,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": image.elr,
        "last_known_elr": () if image.last_leader is None else (image.last_leader,),
        "offline_replicas": partition.offline_replicas,
    }


def _counts_fields(topic: TopicImage) -> dict[str, object]:
    layout = topic.layout
    # With epoch 0 only the replicas are being aligned: nothing is sealed, or ever was.
    if layout is None or layout.epoch == 0:
        return {}
    return {"layout": format_counts(PartitionCounts(layout.active, layout.named))}


def _layout_fields(topic: TopicImage, number: int) -> dict[str, object]:
    handover = topic.partitions[number].handover
    if topic.layout is None or handover is None:
        return {}
    fields: dict[str, object] = {}
    if topic.layout.is_sealed(number) and handover.sealed_end is not None:
        fields["sealed_end"] = handover.sealed_end
    if handover.hold is not None:
        fields["shown_end"] = handover.hold.end
    return fields


def _refused(name: str, error: RequestError) -> dict[str, object]:
    return {"error_code": error.code, "name": name, "topic_id": None, "partitions": ()}
