"""AlterReplicaLogDirs (key 34): move replicas to another log directory of this broker. Respool has only one.

So the request either changes nothing or fails. Kafka's kafka-reassign-partitions names the directories that it saw
earlier when it cancels a reassignment, and treats any error here as a failure of the whole cancellation.
"""

from collections import defaultdict

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.outcome import Reply
from respool.model.errors import (
    LogDirNotFound,
    ReplicaNotAvailable,
    RequestError,
    StorageFailed,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), rights=(ALTER_CLUSTER,))
def alter_replica_log_dirs(request: Request, broker: Broker) -> Reply:
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    refusal = broker.access.refusal(request, ALTER_CLUSTER)
    for folder in request.body.dirs:
        for topic in folder.topics:
            for number in topic.partitions:
                error = refusal or _why_not(broker, folder.path, topic.name, number)
                topics[topic.name].append(
                    {"partition_index": number, "error_code": error_code(error)}
                )
    results = [{"topic_name": name, "partitions": found} for name, found in topics.items()]
    return [encode_reply(request, {"throttle_time": 0, "results": results})]


def _why_not(broker: Broker, path: str, topic: str, number: int) -> RequestError | None:
    if path != broker.settings.data:
        return LogDirNotFound(
            f"{path} is not a data folder of this broker, which has {broker.settings.data}"
        )
    try:
        partition = broker.partitions.find(topic, number)
    except RequestError as error:
        # The replica is on other brokers, or is not open here yet. For this code the tool retries.
        return ReplicaNotAvailable(str(error))
    return None if partition.is_online else StorageFailed(f"{partition.name} is offline")
