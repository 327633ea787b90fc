"""AlterPartitionReassignments (key 45): reassign partitions to other replicas, or cancel reassignments (KIP-455).

The reply only confirms that the reassignment has begun; ListPartitionReassignments shows when it is complete.
"""

from collections import Counter

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import by_topic, error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.metadata.partition_changes import Answers, PartitionChanges
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest
from respool.model.ids import BrokerId, TopicPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), rights=(ALTER_CLUSTER,))
async def alter_partition_reassignments(request: Request, broker: Broker) -> Reply:
    body = request.body
    may_change_factor = getattr(body, "allow_replication_factor_change", True)
    refusal = broker.access.refusal(request, ALTER_CLUSTER)
    if refusal is not None:
        refused = {
            "allow_replication_factor_change": may_change_factor,
            **error_fields(refusal),
            "responses": (),
        }
        return [encode_reply(request, {"throttle_time": 0, **refused})]
    asked = [
        (TopicPartition(topic.name, one.partition_index), one.replicas)
        for topic in body.topics
        for one in topic.partitions
    ]
    times_named = Counter(of for of, _ in asked)
    twice: Answers = {
        of: InvalidRequest(f"the partition {of} is in the request more than once")
        for of, times in times_named.items()
        if times > 1
    }
    targets = {
        of: None if replicas is None else tuple(map(BrokerId, replicas))
        for of, replicas in asked
        if of not in twice
    }
    answers = twice | await PartitionChanges(broker.catalog).reassign(
        targets, may_change_factor=may_change_factor
    )
    accepted = [
        f"{of} to {'its replicas (cancelled)' if target is None else list(target)}"
        for of, target in targets.items()
        if answers[of] is None
    ]
    if accepted:
        broker.admin_log.log(request, f"reassigned partitions: {listed(accepted)}")
    fields = {
        "throttle_time": 0,
        "allow_replication_factor_change": may_change_factor,
        **error_fields(None),
        "responses": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, **error_fields(error)} for number, error in results
                ],
            }
            for topic, results in by_topic({of: answers[of] for of in times_named})
        ],
    }
    return [encode_reply(request, fields)]
